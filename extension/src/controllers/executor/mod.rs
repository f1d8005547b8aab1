//! Carries out passes: reads what a pass asks for, makes the writes that it says, and calls it again until it has come to its end.

mod counted;
mod isolate;
pub(crate) mod reads;
pub(crate) mod writes;

pub(crate) use counted::counted;
pub(crate) use isolate::isolated;

use std::{collections::HashSet, fmt::Display, time::Duration};

use futures::{StreamExt as _, stream};
use kube::Client;
use sluice_core::protocol::{
    Context, Done, Failure, Interrupt, Object, Read, ReadResult, Reconciler, Server, Write,
};
pub use sluice_core::protocol::{Error, ReconcileFailure};

use crate::clock::clock;

/// So many requests of a pass are under way at once. A workload whose control plane rolls has to serve as many connections.
const AT_ONCE: usize = 4;

/// What one pass over an `S` is carried out with.
pub(crate) trait Host<S: Reconciler>: Sync {
    /// The name that writes are made under.
    const MANAGER: &'static str;

    /// Namespace and name of what the pass is made over, for the log.
    fn subject(&self) -> (&str, &str);

    /// The client of a server.
    ///
    /// # Errors
    /// The pass has no connection to it.
    fn client(&self, server: Server) -> Result<&Client, Failure>;

    /// How long an answer to this is waited for, where that is less than any request may take.
    fn read_timeout(&self, _ask: &Read) -> Option<Duration> {
        None
    }

    /// Answers what is asked for from memory, and what only these passes ask for.
    fn answer(&self, ask: &Read) -> impl Future<Output = Result<ReadResult, Failure>> + Send;

    /// Keeps what the next pass has to know, because writes are about to be made: a pass that is cut off may have made them.
    fn writing(&self, effects: S::Effects) -> impl Future<Output = ()> + Send;

    /// Takes note of a write that was made: a watch is about to show it.
    fn wrote(&self, write: &Write, written: &Object);
}

/// Makes one pass. Says what came of it, and what it has left.
pub(crate) async fn run<S, H>(
    host: &H,
    facts: &S,
    memory: &S::LocalState,
) -> (Result<Done, Error>, S::Effects)
where
    S: Reconciler<Hold: Display>,
    H: Host<S>,
{
    let mut known = Context::new(facts, memory, clock());
    loop {
        let mut effects = S::effects(memory);
        let outcome = match S::reconcile(&known, &mut effects) {
            Ok(done) => Ok(done),
            Err(Interrupt::Need(asks)) => match known.unanswered(asks) {
                Ok(asks) => {
                    read(host, &mut known, asks).await;
                    continue;
                }
                Err(error) => Err(error),
            },
            Err(Interrupt::Write(writes)) => {
                host.writing(effects).await;
                write(host, &mut known, writes).await;
                continue;
            }
            Err(Interrupt::Failed(failure)) => Err(Error::Refused(failure)),
            // A pass answers for its own holds: one that arrives here is a bug.
            Err(Interrupt::Held(hold)) => Err(Error::Unfinished(hold.to_string())),
        };
        return (outcome, effects);
    }
}

/// The time after which the next pass is made, if nothing changes.
pub(crate) fn again(done: Done) -> Option<Duration> {
    match done {
        Done::RequeueAfter(time) => Some(time),
        Done::AwaitChange | Done::Forget => None,
    }
}

/// Reads all of `asks`, a few at once; lists of the workload one after the other, because each may take as much memory as all answers may.
async fn read<S: Reconciler>(host: &impl Host<S>, known: &mut Context<'_, S>, asks: HashSet<Read>) {
    let (lists, others): (Vec<Read>, Vec<Read>) = asks.into_iter().partition(Read::is_list);
    for ask in lists {
        let answer = reads::answer(host, &ask).await;
        known.record_answer(ask, answer);
    }
    let read = others
        .into_iter()
        .map(async |ask| (reads::answer(host, &ask).await, ask));
    let mut answers = stream::iter(read).buffer_unordered(AT_ONCE);
    while let Some((answer, ask)) = answers.next().await {
        known.record_answer(ask, answer);
    }
}

/// Makes `writes` in their order, up to the first one that is refused.
async fn write<S: Reconciler, H: Host<S>>(host: &H, known: &mut Context<'_, S>, writes: Vec<Write>) {
    for write in writes {
        // Several packages need the same identity.
        if known.has_outcome(&write) {
            continue;
        }
        let outcome = match host.client(write.key.server) {
            Ok(client) => writes::make(client, H::MANAGER, &write).await,
            Err(unconnected) => Err(unconnected),
        };
        if let Ok(written) = &outcome {
            host.wrote(&write, written);
        }
        let refused = outcome.is_err();
        known.record_outcome(write, outcome);
        if refused {
            return;
        }
    }
}
