//! Outcomes of the last reconciles of each Cluster: which Clusters are slow or failing, when they are retried, and which hold closes the
//! gates of a Cluster without a complete reconcile. The concurrency limiter gives permits to slow and failing Clusters.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

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

/// Number of consecutive conflicts that count as normal. With one more, other clients write as often as Sluice.
pub const CONFLICTS: u32 = 4;

/// Delays before the retry of a reconcile that ended in a conflict. There are as many as normal conflicts.
const CONFLICT_DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(100))
    .with_factor(2.0)
    .with_max_times(CONFLICTS as usize);

/// Time for which a Cluster counts as slow after its last slow or failed reconcile. A quick reconcile may skip a server with an open circuit
/// breaker, so this time is longer than the longest delay of the breaker.
const REMEMBERED: Duration = Duration::from_mins(2);

/// Time for which the record of a Cluster counts while the Cluster waits for a permit. Proofs of an unresponsive workload cluster count as
/// long.
pub const UNSEEN: Duration = Duration::from_mins(1);

/// Outcomes of reconciles by UID of the Cluster.
#[derive(Debug, Default)]
pub struct Outcomes {
    slow: HashMap<String, Slow>,
    unfinished: HashMap<String, Unfinished>,
}

/// Cluster with a slow or failed reconcile.
#[derive(Debug)]
struct Slow {
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
    /// Start of the first of them, or its end if it was a conflict.
    failing_since: Option<Instant>,
    /// Hold for the last incomplete reconcile.
    hold: Option<Hold>,
    /// Delays after conflicts.
    conflicts: ExponentialBackoff,
}

impl Outcomes {
    /// Returns whether a reconcile of the Cluster with this UID needs a permit, because a recent one was slow or failed.
    #[must_use]
    pub fn needs_permit(&self, uid: &str) -> bool {
        self.slow.contains_key(uid)
    }

    /// Records that the Cluster waits for a permit. Returns the hold that closes its gates if the record may be stale, because the last
    /// reconcile was incomplete or the wait takes long. Without a hold, returns the time until the wait takes long.
    ///
    /// # Errors
    /// The hold.
    pub fn waits(&mut self, uid: &str, now: Instant) -> Result<Duration, Hold> {
        let unfinished = self.unfinished(uid, now);
        if let Some(hold) = &unfinished.hold {
            return Err(hold.clone());
        }
        let left = UNSEEN.saturating_sub(now.duration_since(unfinished.since));
        if left.is_zero() {
            return Err(canceled());
        }
        Ok(left)
    }

    /// Records the cancellation of a reconcile that became slow and got no permit.
    pub fn canceled(&mut self, uid: &str, now: Instant) {
        self.unfinished(uid, now).hold = Some(canceled());
        self.slow(uid, now).since = now;
    }

    fn completed(&mut self, uid: &str, began: Instant, now: Instant) {
        self.unfinished.remove(uid);
        if now.duration_since(began) >= SLOW {
            let slow = self.slow(uid, now);
            slow.delays.reset();
            slow.since = now;
        } else if let Some(slow) = self.slow.get_mut(uid) {
            slow.delays.reset();
            if now.duration_since(slow.since) >= REMEMBERED {
                self.slow.remove(uid);
            }
        }
    }

    /// Records a failure and returns the delay before the requeue.
    pub fn failed(&mut self, uid: &str, now: Instant) -> Duration {
        let slow = self.slow(uid, now);
        slow.since = now;
        slow.delays.failed(now)
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
        // A conflict is found at the end of a reconcile, however long that takes on a busy machine. One alone says nothing about other clients.
        let first = if error.is_conflict() { now } else { began };
        let since = unfinished.failing_since.get_or_insert(first);
        let again = unfinished.failures > tolerated || now.duration_since(*since) > SLOW;
        // The next reconcile may have to wait for a permit. After a few conflicts it usually completes.
        if again || tolerated < 2 {
            unfinished.hold = Some(ended_early(error));
        }
        again.then(|| ended_early(error))
    }

    /// Returns the delay before the retry of a reconcile that ended with this error.
    pub fn again(&mut self, uid: &str, error: &Error, now: Instant) -> Again {
        let conflicts = self
            .unfinished
            .get_mut(uid)
            .filter(|_| error.is_conflict())
            .map(|unfinished| &mut unfinished.conflicts);
        match conflicts.and_then(Iterator::next) {
            Some(soon) => Again::Soon(soon),
            None => Again::Later(self.failed(uid, now)),
        }
    }

    /// Drops the state of a Cluster.
    pub fn forget(&mut self, uid: &str) {
        self.unfinished.remove(uid);
        self.slow.remove(uid);
    }

    fn slow(&mut self, uid: &str, now: Instant) -> &mut Slow {
        self.slow.entry(uid.to_owned()).or_insert_with(|| Slow {
            delays: Backoff::new(MIN_DELAY, MAX_DELAY),
            since: now,
        })
    }

    fn unfinished(&mut self, uid: &str, since: Instant) -> &mut Unfinished {
        self.unfinished
            .entry(uid.to_owned())
            .or_insert_with(|| Unfinished {
                since,
                failures: 0,
                failing_since: None,
                hold: None,
                conflicts: CONFLICT_DELAYS.build(),
            })
    }
}

fn canceled() -> Hold {
    Hold::new(
        GateReason::ReconcileTimedOut,
        "reconcile canceled: limit for slow Clusters reached; it is retried",
    )
}

#[cfg(test)]
mod tests;
