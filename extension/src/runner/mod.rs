//! Carries out passes: reads what a pass asks for, makes the writes that it says, and calls it again until it has come to its end.

mod isolate;
pub(crate) mod reads;
pub(crate) mod writes;

pub(crate) use isolate::isolated;

use std::{collections::HashSet, fmt::Display, sync::Arc};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::{Client, runtime::controller::Action};
use sluice_core::step::{Ask, Clock, Done, Known, Stop, Subject, Write};
pub use sluice_core::step::{Error, PassError};
use tokio::time::Instant;

use crate::remote::Remote;
use reads::Answered;

/// So many requests of a pass are under way at once. A workload whose control plane rolls has to serve as many connections.
const AT_ONCE: usize = 4;

/// What one pass over an `S` is carried out with.
pub(crate) trait Host<S: Subject>: Sync {
    /// The client of the management API server.
    fn client(&self) -> &Client;

    /// The name that writes are made under.
    fn manager(&self) -> &'static str;

    /// Namespace and name of what the pass is made over, for the log.
    fn subject(&self) -> (&str, &str);

    /// Answers what is asked for from memory, and what only these passes ask for.
    fn answer(&self, remote: Option<&Arc<Remote>>, ask: &Ask) -> impl Future<Output = Answered> + Send;

    /// Writes are about to be made. A pass that is cut off may have made them.
    fn writing(&self, after: S::After) -> impl Future<Output = ()> + Send;
}

/// One pass that is under way.
struct Runner<'a, H> {
    host: &'a H,
    /// The connection to the workload, once the pass has asked for it.
    remote: Option<Arc<Remote>>,
}

/// Makes one pass. Says what came of it, and what it has left.
pub(crate) async fn run<S, H>(host: &H, facts: &S, memory: &S::Memory) -> (Result<Done, Error>, S::After)
where
    S: Subject<Hold: Display>,
    H: Host<S>,
{
    let began = Clock {
        now: Timestamp::now(),
        instant: Instant::now().into_std(),
    };
    let mut known = Known::new(facts, memory, began);
    let mut runner = Runner { host, remote: None };
    loop {
        let mut after = S::after(memory);
        let outcome = match S::pass(&known, &mut after) {
            Ok(done) => Ok(done),
            Err(Stop::Need(asks)) => match runner.read(&mut known, asks).await {
                Ok(()) => continue,
                Err(error) => Err(error),
            },
            Err(Stop::Write(writes)) => {
                host.writing(after).await;
                runner.write(&mut known, writes).await;
                continue;
            }
            Err(Stop::Failed(failure)) => Err(Error::Refused(failure)),
            Err(Stop::Held(hold)) => Err(Error::Unfinished(hold.to_string())),
        };
        return (outcome, after);
    }
}

/// When the next pass is made.
pub(crate) fn action(done: Done) -> Action {
    match done {
        Done::After(time) => Action::requeue(time),
        Done::Wait | Done::Forget => Action::await_change(),
    }
}

impl<H> Runner<'_, H> {
    /// Reads all of `asks`, a few at once.
    async fn read<S>(&mut self, known: &mut Known<'_, S>, asks: Vec<Ask>) -> Result<(), Error>
    where
        S: Subject,
        H: Host<S>,
    {
        let asks: HashSet<Ask> = asks.into_iter().filter(|ask| !known.has(ask)).collect();
        if asks.is_empty() {
            return Err(Error::Unfinished("it asks for what it knows".to_owned()));
        }
        let (host, remote) = (self.host, self.remote.clone());
        let read = asks
            .into_iter()
            .map(async |ask| (reads::answer(host, remote.as_ref(), &ask).await, ask));
        let mut answers = stream::iter(read).buffer_unordered(AT_ONCE);
        while let Some(((answer, remote), ask)) = answers.next().await {
            self.remote = remote.or(self.remote.take());
            known.learn(ask, answer);
        }
        Ok(())
    }

    /// Makes `writes` in their order, up to the first one that is refused.
    async fn write<S>(&self, known: &mut Known<'_, S>, writes: Vec<Write>)
    where
        S: Subject,
        H: Host<S>,
    {
        let (client, manager) = (self.host.client(), self.host.manager());
        for write in writes {
            // Several packages need the same identity.
            if known.has_made(&write) {
                continue;
            }
            let outcome = writes::make(client, self.remote.as_deref(), manager, &write).await;
            let refused = outcome.is_err();
            known.wrote(write, outcome);
            if refused {
                return;
            }
        }
    }
}
