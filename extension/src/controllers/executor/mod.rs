//! Executor of reconciles: it reads the requested objects, executes the writes, and calls the reconciler until it is done.

mod counted;
mod isolate;
pub(crate) mod reads;
pub(crate) mod writes;

pub(crate) use counted::counted;
pub(crate) use isolate::isolated;

use std::{collections::HashSet, fmt::Display, pin::pin, time::Duration};

use futures::{StreamExt as _, stream};
use kube::Client;
use sluice_core::protocol::{
    Context, Done, Failure, Interrupt, Object, Read, ReadResult, Reconciler, Server, Write,
};
pub use sluice_core::protocol::{Error, ReconcileFailure};

use crate::clock::clock;

/// Concurrent requests of a reconcile to each of its API servers. A workload cluster whose control plane rolls serves as many connections.
const AT_ONCE: usize = 4;

/// Environment of one reconcile of an `S`.
pub(crate) trait Host<S: Reconciler>: Sync {
    /// Field manager of writes.
    const MANAGER: &'static str;

    /// Namespace and name of the reconciled object, for the log.
    fn subject(&self) -> (&str, &str);

    /// Returns the client of a server.
    ///
    /// # Errors
    /// The reconcile has no connection to it.
    fn client(&self, server: Server) -> Result<&Client, Failure>;

    /// Timeout of this read, if shorter than the request timeout.
    fn read_timeout(&self, _ask: &Read) -> Option<Duration> {
        None
    }

    /// Executes reads from the cache, and those specific to this reconciler.
    fn answer(&self, ask: &Read) -> impl Future<Output = Result<ReadResult, Failure>> + Send;

    /// Observes the result of a read.
    fn answered(&self, _ask: &Read, _answer: &ReadResult) {}

    /// Stores the local state for the next reconcile before writes start: a canceled reconcile may have executed them.
    fn writing(&self, effects: S::Effects) -> impl Future<Output = ()> + Send;

    /// Records a successful write, which a watch is about to show.
    fn wrote(&self, write: &Write, written: &Object);
}

/// Runs one reconcile. Returns its outcome and its effects.
pub(crate) async fn run<S, H>(
    host: &H,
    facts: &S,
    local_state: &S::LocalState,
) -> (Result<Done, Error>, S::Effects)
where
    S: Reconciler<Hold: Display>,
    H: Host<S>,
{
    let mut context = Context::new(facts, local_state, clock());
    loop {
        let mut effects = S::effects(local_state);
        let outcome = match S::reconcile(&context, &mut effects) {
            Ok(done) => Ok(done),
            Err(Interrupt::Need(asks)) => match context.unanswered(asks) {
                Ok(asks) => {
                    read(host, &mut context, asks).await;
                    continue;
                }
                Err(error) => Err(error),
            },
            Err(Interrupt::Write(writes)) => {
                host.writing(effects).await;
                write(host, &mut context, writes).await;
                continue;
            }
            Err(Interrupt::Failed(failure)) => Err(Error::Refused(failure)),
            // A reconcile handles its own holds; one that arrives here is a bug.
            Err(Interrupt::Held(hold)) => Err(Error::Unfinished(hold.to_string())),
        };
        return (outcome, effects);
    }
}

/// Returns the delay of the next reconcile without a change.
pub(crate) fn again(done: Done) -> Option<Duration> {
    match done {
        Done::RequeueAfter(time) => Some(time),
        Done::AwaitChange | Done::Forget => None,
    }
}

/// Executes `asks`, a few of each server at once. Lists of the workload run one by one: each may take as much memory as all other responses together.
async fn read<S: Reconciler>(host: &impl Host<S>, context: &mut Context<'_, S>, asks: HashSet<Read>) {
    let (lists, others): (Vec<Read>, Vec<Read>) = asks.into_iter().partition(Read::is_list);
    for ask in lists {
        let answer = reads::answer(host, &ask).await;
        context.record_answer(ask, answer);
    }
    let (management, workload): (Vec<Read>, Vec<Read>) = others
        .into_iter()
        .partition(|ask| ask.server() == Server::Management);
    let [management, workload] = [management, workload].map(|asks| {
        let reads = asks
            .into_iter()
            .map(async |ask| (reads::answer(host, &ask).await, ask));
        stream::iter(reads).buffer_unordered(AT_ONCE)
    });
    let mut answers = pin!(stream::select(management, workload));
    while let Some((answer, ask)) = answers.next().await {
        context.record_answer(ask, answer);
    }
}

/// Executes `writes` in order, up to the first failure.
async fn write<S: Reconciler, H: Host<S>>(host: &H, context: &mut Context<'_, S>, writes: Vec<Write>) {
    for write in writes {
        // Several packages share one identity.
        if context.has_outcome(&write) {
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
        context.record_outcome(write, outcome);
        if refused {
            return;
        }
    }
}
