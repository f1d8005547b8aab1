//! Rate limit of requeues after events of a workload cluster. Events of the management cluster are not delayed here.
//!
//! Each event-driven reconcile takes its rest from a token bucket. So a burst of reconciles, as during an upgrade, is not delayed. A server
//! with an endless stream of events gets no more reconciles in the long run than one rest per reconcile allows.

use std::time::{Duration, Instant};

use crate::{limits::TokenBucket, proof::Summary};

/// Shortest time between two reconciles. It merges simultaneous events into one reconcile.
pub const GAP: Duration = Duration::from_millis(50);

/// Shortest rest that a reconcile adds.
pub const MIN_REST: Duration = Duration::from_secs(1);

/// Longest rest that a reconcile adds.
pub const MAX_REST: Duration = Duration::from_secs(3);

/// Owed rest beyond which an event that may complete a proof waits.
pub const OWED: Duration = Duration::from_secs(40);

/// Owed rest beyond which any other event waits. Lower than [`OWED`], so that progress reports leave a reserve for the final proof.
pub const OWED_BY_OTHERS: Duration = Duration::from_secs(20);

/// Divisor of the time since the last change that a reconcile found. The quotient is the rest, so the rest grows after 50 s without a
/// change.
const PART: u32 = 50;

/// Time that a pace outlives its connection, because the next connection may open immediately.
const KEPT: Duration = Duration::from_mins(1);

/// Weight of an event of a workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The event may change the reported progress.
    Progress,
    /// The event may change a proof, or whether the server responds.
    Proof,
}

impl Weight {
    /// Returns the weight of an event of a PackageInstall or App with this summary of its conditions.
    #[must_use]
    pub fn of(summary: Option<Summary>) -> Self {
        match summary {
            None | Some(Summary::Reconciling) => Self::Progress,
            Some(_) => Self::Proof,
        }
    }
}

/// Rate limit of one Cluster.
#[derive(Debug)]
pub struct Pace {
    /// Highest weight of the events since the start of the last reconcile.
    wanted: Option<Weight>,
    /// Start of the running reconcile.
    running: Option<Instant>,
    /// End of the last reconcile.
    ended: Instant,
    /// Rests that may be owed.
    rests: TokenBucket,
    /// Whether an event requested the next or running reconcile. The bucket already lacks its shortest rest.
    woken: bool,
    /// Time of the last change that a reconcile found.
    last_change: Instant,
}

impl Pace {
    /// Returns the state before the first event.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            wanted: None,
            running: None,
            ended: now.checked_sub(GAP).unwrap_or(now),
            rests: TokenBucket::full(OWED.saturating_add(MIN_REST), now),
            woken: false,
            last_change: now,
        }
    }

    /// Records an event. Returns the time of the next call of [`Self::wakes`]; `None` during a reconcile, or if an earlier call is due.
    pub fn want(&mut self, weight: Weight) -> Option<Instant> {
        let before = self.due();
        self.wanted = self.wanted.max(Some(weight));
        self.due().filter(|due| before.is_none_or(|before| *due < before))
    }

    /// Records the start of a reconcile.
    pub fn begin(&mut self, now: Instant) {
        (self.wanted, self.running) = (None, Some(now));
    }

    /// Records that a reconcile found a change.
    pub fn brought_changes(&mut self, now: Instant) {
        self.last_change = now;
    }

    /// Records the end of a reconcile. Returns the time of the next call of [`Self::wakes`], if events arrived during the reconcile.
    pub fn end(&mut self, now: Instant) -> Option<Instant> {
        let quiet = now.duration_since(self.last_change) / PART;
        let began = self.running.take().unwrap_or(now);
        let took = now.duration_since(began);
        if std::mem::take(&mut self.woken) {
            // A rest as long as the reconcile keeps event-driven reconciles below half of a slot.
            let rest = quiet.max(took).clamp(MIN_REST, MAX_REST);
            // Taken as of the start: a reconcile pays nothing back.
            self.rests.take(took + rest.saturating_sub(MIN_REST), began);
        }
        self.ended = now;
        self.due()
    }

    /// Returns the time of the pending requeue, if there is one. None is due during a reconcile.
    fn due(&self) -> Option<Instant> {
        let reserve = match self.wanted? {
            Weight::Progress => OWED.saturating_sub(OWED_BY_OTHERS),
            Weight::Proof => Duration::ZERO,
        };
        let rested = self.rests.available_at(MIN_REST + reserve);
        // A requested reconcile that has not started is not requested for each event.
        let gap = if self.woken { MIN_REST } else { GAP };
        self.running.is_none().then(|| rested.max(self.ended + gap))
    }

    /// Returns whether to requeue the Cluster now. A requeue counts as the end of a reconcile, so that a slow controller does not get every
    /// event.
    pub fn wakes(&mut self, now: Instant) -> bool {
        let wakes = self.due().is_some_and(|due| due <= now);
        if wakes {
            self.wanted = None;
            self.ended = now;
            // Once per reconcile: it may wait in the queue, and further requeues until then do not add another reconcile.
            if !std::mem::replace(&mut self.woken, true) {
                self.rests.take(MIN_REST, now);
            }
        }
        wakes
    }

    /// Returns whether the state of a Cluster without a connection has expired.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ended.max(self.rests.full_at())) >= KEPT
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Runs an instantaneous reconcile for an event of this weight at the earliest time, and returns that time.
    fn reconcile_after_event(pace: &mut Pace, now: Instant, weight: Weight) -> Instant {
        let due = pace.want(weight).map_or(now, |due| due.max(now));
        assert!(pace.wakes(due), "it is due");
        pace.begin(due);
        assert_eq!(pace.end(due), None, "nothing happened meanwhile");
        due
    }

    #[test]
    fn an_event_requeues_immediately_except_during_or_right_after_a_reconcile() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        assert!(!pace.wakes(began), "nothing happened");
        assert_eq!(pace.want(Weight::Progress), Some(began));
        assert_eq!(pace.want(Weight::Progress), None, "the first event is due");
        assert!(pace.wakes(began));
        assert!(!pace.wakes(began), "once");
        assert_eq!(
            pace.want(Weight::Proof),
            Some(began + MIN_REST),
            "a slow controller"
        );
        assert!(!pace.wakes(began));

        let begins = began + SECOND;
        pace.begin(begins);
        assert_eq!(pace.end(begins), None, "the reconcile observed it");
        pace.begin(begins);
        assert_eq!(pace.want(Weight::Proof), None);
        assert!(!pace.wakes(begins + SECOND * 60), "the reconcile is running");
        assert_eq!(pace.end(begins + SECOND), Some(begins + SECOND + GAP));
    }

    #[test]
    fn the_last_proof_is_not_delayed() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        // An endless stream of progress reports.
        for _ in 0..100 {
            now = reconcile_after_event(&mut pace, now, Weight::Progress);
            pace.brought_changes(now);
        }
        let progress = pace.want(Weight::Progress);
        assert_eq!(progress, Some(now + MIN_REST), "its share is used up");
        let proof = pace.want(Weight::Proof);
        assert_eq!(proof, Some(now + GAP), "progress does not delay it");
        assert_eq!(pace.want(Weight::Progress), None);
        assert!(pace.wakes(now + GAP));
    }

    /// A reconcile that waits in the queue has not run.
    #[test]
    fn events_before_a_pending_reconcile_add_no_debt() {
        let began = Instant::now();
        let (mut pace, mut now) = (Pace::new(began), began);
        for _ in 0..100 {
            now = pace.want(Weight::Proof).map_or(now, |due| due.max(now));
            assert!(pace.wakes(now));
        }
        assert!(pace.rests.full_at() <= began + MIN_REST, "one reconcile");
        pace.begin(now);
        assert_eq!(pace.want(Weight::Proof), None);
        assert_eq!(pace.end(now), Some(now + GAP));
    }

    /// Independent of its events, a server gets at most one reconcile per rest in the long run.
    #[rstest]
    fn endless_events_are_limited_in_the_long_run(#[values(Weight::Progress, Weight::Proof)] weight: Weight) {
        let began = Instant::now();
        let (mut pace, mut now, mut reconciles) = (Pace::new(began), began, 0_u32);
        while now < began + SECOND * 600 {
            now = reconcile_after_event(&mut pace, now, weight);
            pace.brought_changes(now);
            reconciles += 1;
        }
        let most = 600 + u32::try_from(OWED.as_secs()).unwrap() + 1;
        assert!(reconciles <= most, "{reconciles}");
        assert_eq!(pace.want(weight), Some(now + MIN_REST), "each reconcile rests");
        // Time without events allows the next burst.
        let later = now + OWED + SECOND;
        assert_eq!(reconcile_after_event(&mut pace, later, weight), later);
        assert_eq!(pace.want(weight), Some(later + GAP));
    }

    #[rstest]
    #[case::short_with_change(0, 0, MIN_REST)]
    #[case::long(0, 2, SECOND * 2)]
    #[case::very_long(0, 100, MAX_REST)]
    #[case::no_change_for_a_while(100, 0, SECOND * 2)]
    #[case::no_change_for_long(1000, 0, MAX_REST)]
    fn the_rest_grows_with_the_reconcile_and_the_time_without_change(
        #[case] quiet: u32,
        #[case] took: u32,
        #[case] rest: Duration,
    ) {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        let (begins, ends) = (began + SECOND * quiet, began + SECOND * (quiet + took));
        pace.want(Weight::Proof);
        assert!(pace.wakes(begins));
        pace.begin(begins);
        if quiet == 0 {
            pace.brought_changes(ends);
        }
        pace.end(ends);
        assert_eq!(pace.rests.full_at(), ends + rest);
        // A reconcile without a workload event adds no debt.
        pace.begin(ends);
        pace.end(ends + SECOND * 100);
        assert_eq!(pace.rests.full_at(), ends + rest);
        let over = ends + SECOND * 100;
        assert!(!pace.is_over(over));
        assert!(pace.is_over(over + KEPT));
    }
}
