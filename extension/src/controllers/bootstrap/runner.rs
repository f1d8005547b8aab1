//! Reads what a pass asks for, makes the writes that it says, and calls it again until it has come to its end.

use std::{collections::HashSet, sync::Arc};

use futures::future::join_all;
use jiff::Timestamp;
use sluice_core::pass::{After, Ask, Clock, Done, Event, Facts, Known, Stop, Write, pass};
use tokio::time::Instant;

use super::{Context, Error, reads, writes};
use crate::remote::Remote;

/// One pass that is under way.
pub(super) struct Runner<'a> {
    pub(super) ctx: &'a Context,
    pub(super) facts: &'a Facts,
    /// The connection to the workload, once the pass has asked for it.
    pub(super) remote: Option<Arc<Remote>>,
}

/// Makes one pass over a Cluster.
pub(super) async fn run(ctx: &Context, facts: &Facts) -> Result<Done, Error> {
    let uid = &facts.owner.uid;
    ctx.set_managed(uid);
    let before = ctx.memory(uid);
    let began = Clock {
        now: Timestamp::now(),
        instant: Instant::now().into_std(),
    };
    let mut known = Known::new(facts, &before, began);
    let mut runner = Runner {
        ctx,
        facts,
        remote: None,
    };
    let (outcome, after) = loop {
        let mut after = After::of(&before);
        let stop = match pass(&known, &mut after) {
            Ok(done) => break (Ok(done), after),
            Err(stop) => stop,
        };
        match stop {
            Stop::Need(asks) => runner.read(&mut known, asks).await?,
            Stop::Write(writes) => {
                // A pass that is cut off may have made them.
                ctx.remember(uid, after.memory);
                runner.write(&mut known, writes).await;
            }
            Stop::Failed(failure) => break (Err(Error::Refused(failure)), after),
            Stop::Held(hold) => break (Err(Error::Unfinished(hold.to_string())), after),
        }
    };
    leave(ctx, facts, after).await;
    outcome
}

impl Runner<'_> {
    /// Reads all of `asks` at once.
    async fn read(&mut self, known: &mut Known<'_>, asks: Vec<Ask>) -> Result<(), Error> {
        let asks: HashSet<Ask> = asks.into_iter().filter(|ask| !known.has(ask)).collect();
        if asks.is_empty() {
            return Err(Error::Unfinished("it asks for what it knows".to_owned()));
        }
        let read = asks.into_iter().map(async |ask| {
            let answer = reads::answer(self, &ask).await;
            (ask, answer)
        });
        let answers = join_all(read).await;
        for (ask, (answer, remote)) in answers {
            self.remote = remote.or(self.remote.take());
            known.learn(ask, answer);
        }
        Ok(())
    }

    /// Makes `writes` in their order, up to the first one that is refused.
    async fn write(&self, known: &mut Known<'_>, writes: Vec<Write>) {
        for write in writes {
            let outcome = writes::make(self.ctx, self.remote.as_deref(), &write).await;
            let refused = outcome.is_err();
            known.wrote(write, outcome);
            if refused {
                return;
            }
        }
    }
}

/// Takes over what a pass has left.
async fn leave(ctx: &Context, facts: &Facts, after: After) {
    let uid = &facts.owner.uid;
    if after.close {
        ctx.remotes.close(uid);
    }
    if let Some(note) = after.note {
        ctx.index.note(uid, note);
    }
    ctx.remember(uid, after.memory);
    for event in after.events {
        match event {
            Event::Held(hold) => ctx.events.held(&facts.cluster, &hold).await,
            Event::Said(reason, note) => ctx.events.told(&facts.cluster, reason, &note).await,
        }
    }
}
