//! Concurrency limiter for slow or failing Clusters. Their reconciles back off and occupy at most half of the slots (one of one). A
//! reconcile that becomes slow needs such a slot as well, so all other slots become free again within seconds.

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

/// First delay before the retry of a failed reconcile.
pub const MIN_DELAY: Duration = Duration::from_millis(500);

/// Longest delay. A change requeues the Cluster earlier.
pub const MAX_DELAY: Duration = Duration::from_mins(1);

/// Duration from which a reconcile counts as slow: it waits for a server that does not respond.
pub const SLOW: Duration = Duration::from_secs(3);

/// First delay before the retry of a reconcile that ended in a conflict.
const CONFLICT: Duration = Duration::from_millis(50);

/// Number of consecutive conflicts that count as normal. With one more, other clients write as often as Sluice.
pub const CONFLICTS: u32 = 4;

/// Time that a Cluster stays limited after its last slow or failed reconcile. A quick reconcile may skip a server with an open circuit
/// breaker, so this time is longer than the longest delay of the breaker.
const REMEMBERED: Duration = Duration::from_mins(2);

/// Time that the record of a Cluster counts while the Cluster waits for a slot. Proofs of an unresponsive workload cluster count as long.
const UNSEEN: Duration = Duration::from_mins(1);

/// Slow or failing Clusters, by UID, and the free slots for them.
#[derive(Debug)]
pub struct Troubles {
    known: HashMap<String, Trouble>,
    waiting: Queue,
    unfinished: HashMap<String, Unfinished>,
    free: usize,
    looks: Looks,
}

/// Free slots for drift checks of settled Clusters. An unresponsive workload cluster occupies one for seconds, and a network partition
/// may affect thousands of workload clusters.
#[derive(Debug)]
struct Looks {
    /// Free slots, out of half of all slots.
    free: usize,
    /// Free slots for workload clusters that did not respond to the last drift check, out of a quarter of all slots.
    unanswered: usize,
}

#[derive(Debug)]
struct Trouble {
    delays: Backoff,
    /// Time of the last slow or failed reconcile.
    since: Instant,
}

/// Cluster without a complete reconcile since some time.
#[derive(Debug)]
struct Unfinished {
    since: Instant,
    /// Number of reconciles that ended with an error.
    failures: u32,
    /// Start of the first of them.
    failing_since: Option<Instant>,
    /// Hold for the last incomplete reconcile.
    hold: Option<Hold>,
}

/// Admission of a reconcile by the limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The reconcile may start.
    Granted,
    /// The reconcile may start and occupies a slot until it ends; see [`Troubles::release`].
    WithSlot,
    /// Other slow or failing Clusters occupy all slots. The Cluster is requeued after this time.
    Later(Duration),
}

impl Troubles {
    /// Returns a limiter without limited Clusters, for `concurrency` concurrent reconciles.
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

    /// Returns whether a reconcile may start a drift check, and occupies a slot if so; see [`Troubles::look_over`].
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

    /// Releases the slot of a drift check.
    pub fn look_over(&mut self, last: LastDriftCheck) {
        self.looks.free += 1;
        self.looks.unanswered += usize::from(last == LastDriftCheck::Unanswered);
    }

    /// Requests a reconcile for the Cluster with this UID.
    pub fn turn(&mut self, uid: &str, now: Instant) -> Turn {
        if !self.known.contains_key(uid) {
            return Turn::Granted;
        }
        let since = self.waiting.ask(uid, now);
        // Free slots go to the Clusters with the longest wait.
        if self.waiting.fills(self.free, since, now) || !self.take() {
            self.unfinished(uid, now);
            return Turn::Later(backoff().failed(now));
        }
        self.waiting.leave(uid);
        Turn::WithSlot
    }

    /// Occupies a slot for a reconcile of this Cluster that became slow without one.
    ///
    /// # Errors
    /// No slot is free: the executor cancels the reconcile, and the Cluster counts as slow. The error is the delay before its requeue.
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

    /// Releases the slot of a reconcile.
    pub fn release(&mut self) {
        self.free += 1;
    }

    /// Returns the hold of a Cluster that waits for a slot and whose record may be stale: its last reconcile was incomplete, or the wait
    /// takes long.
    #[must_use]
    pub fn hold_while_waiting(&self, uid: &str, now: Instant) -> Option<Hold> {
        let unfinished = self.unfinished.get(uid)?;
        let waits_long = now.duration_since(unfinished.since) >= UNSEEN;
        unfinished.hold.clone().or_else(|| waits_long.then(cut_off))
    }

    fn completed(&mut self, uid: &str, began: Instant, now: Instant) {
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

    /// Records a failure and returns the delay before the requeue.
    pub fn failed(&mut self, uid: &str, now: Instant) -> Duration {
        let trouble = self.trouble(uid, now);
        trouble.since = now;
        trouble.delays.failed(now)
    }

    /// Records the end of a reconcile that started at `began`. Returns the hold that closes the gates of the Cluster after too many
    /// consecutive errors, or if the first of them started some seconds ago.
    pub fn ended(
        &mut self,
        uid: &str,
        outcome: Result<(), &Error>,
        began: Instant,
        now: Instant,
    ) -> Option<Hold> {
        match outcome {
            Ok(()) => {
                self.completed(uid, began, now);
                None
            }
            Err(error) => self.did_not_complete(uid, error, began, now),
        }
    }

    fn did_not_complete(&mut self, uid: &str, error: &Error, began: Instant, now: Instant) -> Option<Hold> {
        // The next reconcile usually completes.
        let tolerated = match error {
            Error::Failed(_) => 0,
            error if error.is_conflict() => CONFLICTS,
            Error::Refused(_) | Error::Unfinished(_) => 1,
        };
        let unfinished = self.unfinished(uid, began);
        unfinished.failures = unfinished.failures.saturating_add(1);
        let since = unfinished.failing_since.get_or_insert(began);
        let again = unfinished.failures > tolerated || now.duration_since(*since) > SLOW;
        // The next reconcile may have to wait for a slot. After a few conflicts it usually completes.
        if again || tolerated < 2 {
            unfinished.hold = Some(ended_early(error));
        }
        again.then(|| ended_early(error))
    }

    /// Returns the delay before the retry of a reconcile that ended with this error.
    pub fn again(&mut self, uid: &str, error: &Error, now: Instant) -> Again {
        let unfinished = self.unfinished.get(uid);
        let failures = unfinished.map_or(0, |unfinished| unfinished.failures);
        if error.is_conflict() && failures <= CONFLICTS {
            Again::Soon(CONFLICT * 2_u32.pow(failures))
        } else {
            Again::Later(self.failed(uid, now))
        }
    }

    /// Drops the state of a Cluster.
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
        "reconcile canceled: limit for slow Clusters reached; it is retried",
    )
}

#[cfg(test)]
mod tests;
