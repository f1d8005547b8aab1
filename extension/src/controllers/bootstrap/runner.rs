//! Reads what a pass asks for, makes the writes that it says, and calls it again until it has come to its end.

use std::{collections::HashSet, sync::Arc};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use sluice_core::pass::{After, Answer, Ask, Clock, Done, Event, Facts, Known, Stop, Write, pass};
use tokio::time::Instant;

use super::{Context, Error, reads, writes};
use crate::remote::Remote;

/// So many requests of a pass are under way at once. A workload whose control plane rolls has to serve as many connections.
const AT_ONCE: usize = 4;

/// About how many bytes the answers of a workload may take that one pass knows: as many as a single one may.
const LARGEST_PASS: usize = 32 * 1024 * 1024;

/// One pass that is under way.
pub(super) struct Runner<'a> {
    pub(super) ctx: &'a Context,
    pub(super) facts: &'a Facts,
    /// The connection to the workload, once the pass has asked for it.
    pub(super) remote: Option<Arc<Remote>>,
    /// About how many bytes the answers of the workload take that the pass knows.
    size: usize,
}

/// Makes one pass over a Cluster.
pub(super) async fn run(ctx: &Context, facts: &Facts) -> Result<Done, Error> {
    let uid = &facts.owner.uid;
    let before = ctx.begin(&facts.cluster, uid);
    let began = Clock {
        now: Timestamp::now(),
        instant: Instant::now().into_std(),
    };
    let mut known = Known::new(facts, &before, began);
    let mut runner = Runner {
        ctx,
        facts,
        remote: None,
        size: 0,
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
    /// Reads all of `asks`, a few at once.
    async fn read(&mut self, known: &mut Known<'_>, asks: Vec<Ask>) -> Result<(), Error> {
        let asks: HashSet<Ask> = asks.into_iter().filter(|ask| !known.has(ask)).collect();
        if asks.is_empty() {
            return Err(Error::Unfinished("it asks for what it knows".to_owned()));
        }
        let runner = &*self;
        let read = asks
            .into_iter()
            .map(async |ask| (reads::answer(runner, &ask).await, ask));
        let mut answers = stream::iter(read).buffer_unordered(AT_ONCE);
        let (mut opened, mut size) = (None, runner.size);
        while let Some(((answer, remote), ask)) = answers.next().await {
            opened = remote.or(opened);
            let more = reads::size_on_workload(&ask, &answer);
            size += more;
            let answer = if more > 0 && size > LARGEST_PASS {
                Answer::Failed(reads::too_much())
            } else {
                answer
            };
            known.learn(ask, answer);
        }
        drop(answers);
        self.size = size;
        self.remote = opened.or(self.remote.take());
        Ok(())
    }

    /// Makes `writes` in their order, up to the first one that is refused.
    async fn write(&self, known: &mut Known<'_>, writes: Vec<Write>) {
        for write in writes {
            // Several packages need the same identity.
            if known.has_made(&write) {
                continue;
            }
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
