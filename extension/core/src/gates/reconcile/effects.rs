//! Results of a complete or interrupted reconcile, and the local state that a process keeps between reconciles. A process that starts
//! without it never opens a gate early; it only takes longer.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::{
    clock::Clock,
    events::Event,
    limits::TokenBucket,
    protocol::Key,
    reasons::{CheckReason, Hold},
    reconcile::cluster::CachedControlPlane,
    schedule::SyncPeriod,
};

/// Time after which a cache that reads contradict has lost an event: a silent watch ends earlier.
const LOST: Duration = Duration::from_mins(2);

/// Interval between two reads of one object, at least, but for early ones.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which one more early read is allowed. Polls at [`READ_INTERVAL`] use up none.
const EARLY_READ: Duration = Duration::from_secs(3);

/// Early reads of one object in a row. A rollout ends with several events, and the last of them is the proof.
const EARLY_READS: u32 = 4;

/// Time that progress has to last before it is written. A changed message of a hook makes Cluster API reconcile the Cluster, which delays
/// its next call by a second. States in between last for less.
const SETTLED: Duration = Duration::from_secs(2);

/// Counter update of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateCount {
    /// Release lag: time from the start of the reconcile that observed the last proof until the control plane reached its version.
    Released(Duration),
    /// A version that Cluster API wrote and that an Audit gate would have held, with the reason of its first unproven check.
    AuditWouldHold(String),
    /// A check whose expression begins to fail, or to cost too much, with its reason.
    ExpressionError(CheckReason),
}

/// Results of a reconcile.
#[derive(Debug, Clone, Default)]
pub struct GateEffects {
    /// Local state to keep for the next reconcile.
    pub local: GateLocalState,
    /// Events of the Cluster to publish.
    pub events: Vec<Event>,
    /// Counter updates.
    pub counts: Vec<GateCount>,
    /// Names of the UpgradeGates whose status may have changed, because the ClusterUpgrade was written.
    pub status: Vec<String>,
    /// Objects of the workload cluster to watch until the next reconcile. A change of one of them requeues the Cluster.
    pub watched: Vec<Key>,
    /// Whether only the next drift check reads again, because no upgrade is in progress.
    pub at_rest: bool,
    /// Object that the API server returned at an earlier resourceVersion than the cache had.
    pub rolled_back: Option<String>,
    /// Difference between a read and the cache that has lasted for so long that its event is lost.
    pub outdated: Option<String>,
}

impl GateEffects {
    /// Returns the results of a reconcile without any action.
    #[must_use]
    pub fn of(local: &GateLocalState) -> Self {
        Self {
            local: local.clone(),
            ..Self::default()
        }
    }
}

/// Last reads of the objects of a Cluster.
#[derive(Debug, Clone)]
struct LastReads {
    /// Their inputs.
    inputs: String,
    at: Instant,
    /// Rate limit of early reads.
    early: TokenBucket,
}

/// Local state of one Cluster.
#[derive(Debug, Clone, Default)]
pub struct GateLocalState {
    /// Time of the last status write.
    pub written: Option<Instant>,
    /// Time of the first reconcile with an upgrade in progress.
    hot_since: Option<Instant>,
    /// Number of writes of progress at the hop.
    pub(super) progress_writes: usize,
    /// Time since which there is progress that is not written.
    unwritten_since: Option<Instant>,
    /// Control plane whose cached state a read has confirmed last.
    pub(super) confirmed: Option<CachedControlPlane>,
    /// Time of the next drift check of the settled Cluster, once known.
    drift_check_at: Option<Instant>,
    /// Last reads of objects.
    reads: Option<LastReads>,
    /// Objects to watch, as the last reconcile determined them that read objects.
    pub(super) watched: Vec<Key>,
    /// Whether the workload API server has answered all reads of a judgement of this process.
    reached: bool,
    /// Start of the first judgement since then in which a read of the workload API server failed.
    silent_since: Option<Timestamp>,
    /// Time since which reads fail.
    failing_since: Option<Instant>,
    /// Time since which reads of the Cluster and its control plane differ from the cache.
    outdated_since: Option<Instant>,
    /// Version that checks are proven for, and start of the reconcile that observed the last proof.
    pub(super) proven: Option<(String, Instant)>,
}

impl GateLocalState {
    /// Returns the time until objects may be read again for the same `inputs`; `None` if they may be read now.
    pub(super) fn until_read(&self, inputs: &str, now: Instant) -> Option<Duration> {
        let last = self.reads.as_ref().filter(|last| last.inputs == inputs)?;
        let next = last.early.available_at(EARLY_READ).min(last.at + READ_INTERVAL);
        Some(next.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Returns the time without a change of the status during an upgrade, as far as this process has observed it.
    pub(super) fn unchanged(&mut self, now: Instant) -> Duration {
        let since = *self.hot_since.get_or_insert(now);
        let since = self.written.map_or(since, |written| written.max(since));
        now.saturating_duration_since(since)
    }

    /// Returns the time until progress, which this reconcile observes, may be written.
    pub(super) fn until_settled(&mut self, now: Instant) -> Duration {
        let since = *self.unwritten_since.get_or_insert(now);
        SETTLED.saturating_sub(now.saturating_duration_since(since))
    }

    /// Notes a status without unwritten progress.
    pub(super) fn nothing_unwritten(&mut self) {
        self.unwritten_since = None;
    }

    /// Notes that objects were read for these inputs.
    pub(super) fn has_read(&mut self, inputs: String, now: Instant) {
        let last = self.reads.as_ref();
        let mut early = last.map_or_else(
            || TokenBucket::full(EARLY_READ * EARLY_READS, now),
            |last| last.early,
        );
        if last.is_some_and(|last| now < last.at + READ_INTERVAL) {
            early.take(EARLY_READ, now);
        }
        self.reads = Some(LastReads {
            inputs,
            at: now,
            early,
        });
    }

    /// Returns the time until the drift check of the settled Cluster with this UID, which runs once in each `period`; `None` once it is
    /// due. The time follows from the UID, which spreads the drift checks of all Clusters over the period.
    pub(super) fn until_drift_check(
        &mut self,
        uid: &str,
        period: SyncPeriod,
        now: Instant,
    ) -> Option<Duration> {
        let at = *self
            .drift_check_at
            .get_or_insert_with(|| now + period.until_resync(uid, now));
        let left = at.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Schedules the next drift check `next` after `now`.
    pub(super) fn drift_check_made(&mut self, next: Duration, now: Instant) {
        self.drift_check_at = Some(now + next);
    }

    /// Notes that the workload API server has answered all reads of a judgement.
    pub(super) fn heard(&mut self) {
        (self.reached, self.silent_since) = (true, None);
    }

    /// Notes that a read of the workload API server failed. `before` is the state before this reconcile: a silence lasts until all reads of
    /// a judgement are answered, and some may be answered meanwhile. Returns its start, if the server has responded to this process before.
    pub(super) fn unheard(&mut self, before: &Self, clock: Clock) -> Option<Timestamp> {
        let began = before.silent_since.unwrap_or(clock.now);
        let since = *self.silent_since.get_or_insert(began);
        self.reached.then_some(since)
    }

    /// Notes whether reads fail. Returns the time since which they do.
    pub(super) fn failing(&mut self, fails: bool, now: Instant) -> Option<Duration> {
        if !fails {
            self.failing_since = None;
            return None;
        }
        let since = *self.failing_since.get_or_insert(now);
        Some(now.saturating_duration_since(since))
    }

    /// Notes whether reads differ from the cache. Returns the difference once it has lasted for so long that its event is lost.
    pub(super) fn outdated_for_long(&mut self, outdated: Option<&Hold>, now: Instant) -> Option<String> {
        let Some(hold) = outdated else {
            self.outdated_since = None;
            return None;
        };
        let since = *self.outdated_since.get_or_insert(now);
        (now.saturating_duration_since(since) >= LOST).then(|| hold.message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_use_up_no_early_reads() {
        let began = Instant::now();
        let mut local = GateLocalState::default();
        let mut is_read = |millis| {
            let now = began + Duration::from_millis(millis);
            let is_due = local.until_read("", now).is_none();
            if is_due {
                local.has_read(String::new(), now);
            }
            is_due
        };
        for millis in [0, 100, 200, 300, 400] {
            assert!(is_read(millis), "the first reads, after {millis} ms");
        }
        assert!(!is_read(500), "all early reads are used up");
        for millis in [1400, 2400, 3400, 4400, 5400, 6400] {
            assert!(is_read(millis), "a poll after {millis} ms");
        }
        assert!(
            is_read(6500) && is_read(6600),
            "two early reads after six seconds"
        );
        assert!(!is_read(6700));
    }
}
