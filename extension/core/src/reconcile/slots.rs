//! Clusters that give trouble: their passes have growing delays, and take half of the slots at most (one of one). A pass that turns
//! out to be slow needs one of those too, so all other slots are free again after seconds, whatever happens.

mod queue;

use crate::protocol::LastDriftCheck;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use self::queue::Queue;
use crate::{
    limits::{Again, Backoff},
    protocol::Error,
    reasons::{GateReason, Hold},
    reconcile::cluster::ended_early,
};

/// The first delay before a pass that failed is repeated.
pub const MIN_DELAY: Duration = Duration::from_millis(500);

/// The longest one. What changes meanwhile wakes the Cluster.
pub const MAX_DELAY: Duration = Duration::from_mins(1);

/// A pass that takes longer waits for something that does not answer.
pub const SLOW: Duration = Duration::from_secs(3);

/// How soon a pass is repeated that ended in a conflict, at first.
const CONFLICT: Duration = Duration::from_millis(50);

/// So many passes in a row may end in a conflict; with one more, others write as often as Sluice does.
pub const CONFLICTS: u32 = 4;

/// A quick pass may be one that did not even ask a server which does not answer, so trouble is remembered for so long. Longer than
/// such a server is left alone.
const REMEMBERED: Duration = Duration::from_mins(2);

/// A Cluster that waits for a slot for so long says nothing any more. A silent workload's proofs are believed for as long.
const UNSEEN: Duration = Duration::from_mins(1);

/// The troubled Clusters, by UID, and the slots that are left for them.
#[derive(Debug)]
pub struct Troubles {
    known: HashMap<String, Trouble>,
    waiting: Queue,
    unfinished: HashMap<String, Unfinished>,
    free: usize,
    looks: Looks,
}

/// The slots that are left for looks at settled Clusters. A workload that does not answer keeps one for seconds, and a partition may
/// silence thousands.
#[derive(Debug)]
struct Looks {
    /// Of half of all slots.
    free: usize,
    /// Of these, for workloads that did not answer the last look: of a quarter of all.
    unanswered: usize,
}

#[derive(Debug)]
struct Trouble {
    delays: Backoff,
    /// When a pass failed or was slow last.
    since: Instant,
}

/// A Cluster of which no pass has come to its end for a while.
#[derive(Debug)]
struct Unfinished {
    since: Instant,
    /// Passes that ended with an error, and when the first of them began.
    failures: u32,
    failing_since: Option<Instant>,
    /// Why the last one came to no end.
    hold: Option<Hold>,
}

/// Whether a pass may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It may.
    Granted,
    /// It may, and has a slot until it is over; see [`Troubles::release`].
    WithSlot,
    /// Other troubled Clusters have all the slots that they may have. The Cluster is looked at again after this.
    Later(Duration),
}

impl Troubles {
    /// No Cluster is known to give trouble. `concurrency` passes run at once.
    #[must_use]
    pub fn new(concurrency: u16) -> Self {
        Self {
            known: HashMap::new(),
            waiting: Queue::default(),
            unfinished: HashMap::new(),
            free: usize::from(concurrency / 2).max(1),
            looks: Looks {
                free: usize::from(concurrency / 2).max(1),
                unanswered: usize::from(concurrency / 4).max(1),
            },
        }
    }

    /// A pass asks whether it may look at a workload; see [`Troubles::look_over`].
    pub fn look(&mut self, last: LastDriftCheck) -> bool {
        let looks = &mut self.looks;
        let unanswered = usize::from(last == LastDriftCheck::Unanswered);
        let may = looks.free > 0 && looks.unanswered >= unanswered;
        if may {
            looks.free -= 1;
            looks.unanswered -= unanswered;
        }
        may
    }

    /// A pass that might look at a workload is over.
    pub fn look_over(&mut self, last: LastDriftCheck) {
        self.looks.free += 1;
        self.looks.unanswered += usize::from(last == LastDriftCheck::Unanswered);
    }

    /// The Cluster with this UID asks for a pass.
    pub fn turn(&mut self, uid: &str, now: Instant) -> Turn {
        if !self.known.contains_key(uid) {
            return Turn::Granted;
        }
        let since = self.waiting.ask(uid, now);
        // Free slots belong to those who have waited longest.
        if self.waiting.fills(self.free, since, now) || !self.take() {
            self.unfinished(uid, now);
            return Turn::Later(backoff().failed(now));
        }
        self.waiting.leave(uid);
        Turn::WithSlot
    }

    /// The pass over this Cluster, which has no slot, is slow. It has one from now on.
    ///
    /// # Errors
    /// There is none, so it is cut off, and the next one is a troubled Cluster's. This says when to look again.
    pub fn slow(&mut self, uid: &str, now: Instant) -> Result<(), Duration> {
        if self.take() {
            return Ok(());
        }
        self.unfinished(uid, now).hold = Some(cut_off());
        Err(self.failed(uid, now))
    }

    fn take(&mut self) -> bool {
        let left = self.free.checked_sub(1);
        self.free = left.unwrap_or_default();
        left.is_some()
    }

    /// A pass that had a slot is over.
    pub fn release(&mut self) {
        self.free += 1;
    }

    /// Why a Cluster that waits for a slot may not be as its record says: its last pass came to no end, or it waits for long.
    #[must_use]
    pub fn hold_while_waiting(&self, uid: &str, now: Instant) -> Option<Hold> {
        let unfinished = self.unfinished.get(uid)?;
        let waits_long = now.duration_since(unfinished.since) >= UNSEEN;
        unfinished.hold.clone().or_else(|| waits_long.then(cut_off))
    }

    fn passed(&mut self, uid: &str, began: Instant, now: Instant) {
        self.unfinished.remove(uid);
        if now.duration_since(began) >= SLOW {
            let trouble = self.trouble(uid, now);
            trouble.delays.reset();
            trouble.since = now;
        } else if let Some(trouble) = self.known.get_mut(uid) {
            trouble.delays.reset();
            if now.duration_since(trouble.since) >= REMEMBERED {
                self.known.remove(uid);
            }
        }
    }

    /// Something failed. Says when to look again.
    pub fn failed(&mut self, uid: &str, now: Instant) -> Duration {
        let trouble = self.trouble(uid, now);
        trouble.since = now;
        trouble.delays.failed(now)
    }

    /// A pass that `began` then has ended. Says why the gates of the Cluster are to be closed, if so: more passes than may end with an
    /// error did, or the first of them began some seconds ago.
    pub fn ended(
        &mut self,
        uid: &str,
        outcome: Result<(), &Error>,
        began: Instant,
        now: Instant,
    ) -> Option<Hold> {
        match outcome {
            Ok(()) => {
                self.passed(uid, began, now);
                None
            }
            Err(error) => self.did_not_pass(uid, error, began, now),
        }
    }

    fn did_not_pass(&mut self, uid: &str, error: &Error, began: Instant, now: Instant) -> Option<Hold> {
        // The next pass mostly comes to its end.
        let patience = match error {
            Error::Pass(_) => 0,
            error if error.is_conflict() => CONFLICTS,
            Error::Refused(_) | Error::Unfinished(_) => 1,
        };
        let unfinished = self.unfinished(uid, began);
        unfinished.failures = unfinished.failures.saturating_add(1);
        let since = unfinished.failing_since.get_or_insert(began);
        let again = unfinished.failures > patience || now.duration_since(*since) > SLOW;
        // The next pass may have to wait for its slot; one after a few conflicts mostly comes to its end.
        if again || patience < 2 {
            unfinished.hold = Some(ended_early(error));
        }
        again.then(|| ended_early(error))
    }

    /// When the pass is made again that ended with this error.
    pub fn again(&mut self, uid: &str, error: &Error, now: Instant) -> Again {
        let unfinished = self.unfinished.get(uid);
        let failures = unfinished.map_or(0, |unfinished| unfinished.failures);
        if error.is_conflict() && failures <= CONFLICTS {
            Again::Soon(CONFLICT * 2_u32.pow(failures))
        } else {
            Again::Later(self.failed(uid, now))
        }
    }

    /// Forgets a Cluster.
    pub fn forget(&mut self, uid: &str) {
        self.unfinished.remove(uid);
        self.known.remove(uid);
        self.waiting.leave(uid);
    }

    fn trouble(&mut self, uid: &str, now: Instant) -> &mut Trouble {
        self.known.entry(uid.to_owned()).or_insert_with(|| Trouble {
            delays: backoff(),
            since: now,
        })
    }

    fn unfinished(&mut self, uid: &str, since: Instant) -> &mut Unfinished {
        self.unfinished.entry(uid.to_owned()).or_insert(Unfinished {
            since,
            failures: 0,
            failing_since: None,
            hold: None,
        })
    }
}

fn backoff() -> Backoff {
    Backoff::new(MIN_DELAY, MAX_DELAY)
}

fn cut_off() -> Hold {
    Hold::new(
        GateReason::ReconcileTimedOut,
        "a pass over the Cluster took long while others did; it is made again when one of those is over",
    )
}

#[cfg(test)]
mod tests;
