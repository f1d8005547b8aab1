//! How soon the events of a workload cluster lead to one more pass over its Cluster. What changes on the management cluster is not
//! delayed here.
//!
//! A pass that such an event asks for owes a rest, and rests may be owed: many passes may follow each other at once, as in an upgrade, and
//! a server that never stops to send events gets no more of them in the long run than if each had rested.

use std::time::{Duration, Instant};

use crate::proof::Summary;

/// Between the end of a pass and the next one at least. Events that come together lead to one pass.
pub const GAP: Duration = Duration::from_millis(50);

/// The shortest rest that a pass owes.
pub const MIN_REST: Duration = Duration::from_secs(1);

/// The longest one.
pub const MAX_REST: Duration = Duration::from_secs(3);

/// So much rest may be owed before an event that may complete a proof waits.
pub const OWED: Duration = Duration::from_secs(40);

/// The same for any other event: packages that report their progress leave something for the moment in which they are ready.
pub const OWED_BY_OTHERS: Duration = Duration::from_secs(20);

/// While passes bring nothing new, the rest is this part of the time since one did: after 50 s without news it grows.
const PART: u32 = 50;

/// How long a pace is remembered whose connection is closed: another one may be opened at once.
const KEPT: Duration = Duration::from_mins(1);

/// What an event of a workload cluster may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// What is known of how far something is.
    Progress,
    /// Whether something is proven, or whether the server answers.
    Proof,
}

impl Weight {
    /// The weight of an event of a PackageInstall or an App whose conditions come to this.
    #[must_use]
    pub fn of(summary: Option<Summary>) -> Self {
        match summary {
            None | Some(Summary::Reconciling) => Self::Progress,
            Some(_) => Self::Proof,
        }
    }
}

/// The pace of one Cluster.
#[derive(Debug)]
pub struct Pace {
    /// Something happened since the last pass began: the weightiest of it.
    wanted: Option<Weight>,
    /// When the pass began that runs.
    passing: Option<Instant>,
    /// When a pass ended last.
    ended: Instant,
    /// When all rest is made up for that is owed.
    owes_until: Instant,
    /// Whether an event has asked for the next pass, or for the one that runs. It owes a rest already.
    woken: bool,
    /// When a pass brought something new last.
    news: Instant,
}

impl Pace {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            wanted: None,
            passing: None,
            ended: now.checked_sub(GAP).unwrap_or(now),
            owes_until: now,
            woken: false,
            news: now,
        }
    }

    /// Something happened. Says when [`Self::wakes`] is to be asked for it; none while a pass runs, and where that was said before.
    pub fn want(&mut self, weight: Weight) -> Option<Instant> {
        let before = self.due();
        self.wanted = self.wanted.max(Some(weight));
        self.due().filter(|due| before.is_none_or(|before| *due < before))
    }

    /// A pass over the Cluster begins.
    pub fn begin(&mut self, now: Instant) {
        (self.wanted, self.passing) = (None, Some(now));
    }

    /// A pass changed what is known of the Cluster.
    pub fn brought_changes(&mut self, now: Instant) {
        self.news = now;
    }

    /// The pass has ended. Says when [`Self::wakes`] is to be asked for what happened meanwhile, if something did.
    pub fn end(&mut self, now: Instant) -> Option<Instant> {
        let quiet = now.duration_since(self.news) / PART;
        let began = self.passing.take().unwrap_or(now);
        let took = now.duration_since(began);
        if std::mem::take(&mut self.woken) {
            // As long as the pass took, after it, so that passes that events ask for do not take more than half of a slot for long.
            let rest = quiet.max(took).clamp(MIN_REST, MAX_REST);
            self.owes_until += took + rest.saturating_sub(MIN_REST);
        }
        self.ended = now;
        self.due()
    }

    /// When the Cluster is to be woken, if it is. While a pass runs, its end is waited for.
    fn due(&self) -> Option<Instant> {
        let owed = match self.wanted? {
            Weight::Progress => OWED_BY_OTHERS,
            Weight::Proof => OWED,
        };
        let rested = self.owes_until.checked_sub(owed).unwrap_or(self.ended);
        // One that was asked for and has not begun is not asked for at each event.
        let gap = if self.woken { MIN_REST } else { GAP };
        self.passing.is_none().then(|| rested.max(self.ended + gap))
    }

    /// Whether the Cluster is woken now. That counts as the end of a pass, so that a controller that is late is not sent every event.
    pub fn wakes(&mut self, now: Instant) -> bool {
        let wakes = self.due().is_some_and(|due| due <= now);
        if wakes {
            self.wanted = None;
            self.ended = now;
            // Once for each pass: it may wait for its slot, and what wakes it again meanwhile asks for no other one.
            if !std::mem::replace(&mut self.woken, true) {
                self.owes_until = self.owes_until.max(now) + MIN_REST;
            }
        }
        wakes
    }

    /// Whether it says nothing any more of a Cluster that has no connection.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ended.max(self.owes_until)) >= KEPT
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A pass that an event of this weight asks for, as soon as it may, and that ends when it begins. Says when.
    fn woken_pass(pace: &mut Pace, now: Instant, weight: Weight) -> Instant {
        let due = pace.want(weight).map_or(now, |due| due.max(now));
        assert!(pace.wakes(due), "it is due");
        pace.begin(due);
        assert_eq!(pace.end(due), None, "nothing happened meanwhile");
        due
    }

    #[test]
    fn an_event_wakes_at_once_unless_a_pass_runs_or_has_just_ended() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        assert!(!pace.wakes(began), "nothing happened");
        assert_eq!(pace.want(Weight::Progress), Some(began));
        assert_eq!(pace.want(Weight::Progress), None, "the second event is no news");
        assert!(pace.wakes(began));
        assert!(!pace.wakes(began), "once");
        assert_eq!(
            pace.want(Weight::Proof),
            Some(began + MIN_REST),
            "a controller that is late"
        );
        assert!(!pace.wakes(began));

        let begins = began + SECOND;
        pace.begin(begins);
        assert_eq!(pace.end(begins), None, "the pass saw it");
        pace.begin(begins);
        assert_eq!(pace.want(Weight::Proof), None);
        assert!(!pace.wakes(begins + SECOND * 60), "the pass runs");
        assert_eq!(pace.end(begins + SECOND), Some(begins + SECOND + GAP));
    }

    #[test]
    fn the_last_proof_waits_for_no_rest() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        // Progress is reported without end.
        for _ in 0..100 {
            now = woken_pass(&mut pace, now, Weight::Progress);
            pace.brought_changes(now);
        }
        let progress = pace.want(Weight::Progress);
        assert_eq!(progress, Some(now + MIN_REST), "it has used up what it may owe");
        let proof = pace.want(Weight::Proof);
        assert_eq!(proof, Some(now + GAP), "it is not kept waiting by the others");
        assert_eq!(pace.want(Weight::Progress), None);
        assert!(pace.wakes(now + GAP));
    }

    /// One that waits for its slot has had no pass.
    #[test]
    fn events_while_a_pass_is_waited_for_owe_nothing() {
        let began = Instant::now();
        let (mut pace, mut now) = (Pace::new(began), began);
        for _ in 0..100 {
            now = pace.want(Weight::Proof).map_or(now, |due| due.max(now));
            assert!(pace.wakes(now));
        }
        assert!(pace.owes_until <= began + MIN_REST, "one pass");
        pace.begin(now);
        assert_eq!(pace.want(Weight::Proof), None);
        assert_eq!(pace.end(now), Some(now + GAP));
    }

    /// Whatever its events say, a server has no more passes in the long run than if each had rested.
    #[rstest]
    fn events_without_end_rest_in_the_long_run(#[values(Weight::Progress, Weight::Proof)] weight: Weight) {
        let began = Instant::now();
        let (mut pace, mut now, mut passes) = (Pace::new(began), began, 0_u32);
        while now < began + SECOND * 600 {
            now = woken_pass(&mut pace, now, weight);
            pace.brought_changes(now);
            passes += 1;
        }
        let most = 600 + u32::try_from(OWED.as_secs()).unwrap() + 1;
        assert!(passes <= most, "{passes}");
        assert_eq!(pace.want(weight), Some(now + MIN_REST), "at last each rests");
        // After some time without events it may burst again.
        let later = now + OWED + SECOND;
        assert_eq!(woken_pass(&mut pace, later, weight), later);
        assert_eq!(pace.want(weight), Some(later + GAP));
    }

    #[rstest]
    #[case::news_and_short(0, 0, MIN_REST)]
    #[case::long_pass(0, 2, SECOND * 2)]
    #[case::very_long_pass(0, 100, MAX_REST)]
    #[case::no_news_for_a_while(100, 0, SECOND * 2)]
    #[case::no_news_for_long(1000, 0, MAX_REST)]
    fn a_pass_owes_a_rest_as_long_as_itself_or_a_part_of_the_time_without_news(
        #[case] quiet: u32,
        #[case] took: u32,
        #[case] rest: Duration,
    ) {
        let news = Instant::now();
        let mut pace = Pace::new(news);
        let (begins, ends) = (news + SECOND * quiet, news + SECOND * (quiet + took));
        pace.want(Weight::Proof);
        assert!(pace.wakes(begins));
        pace.begin(begins);
        if quiet == 0 {
            pace.brought_changes(ends);
        }
        pace.end(ends);
        assert_eq!(pace.owes_until, ends + rest);
        // A pass that something else asked for owes nothing.
        pace.begin(ends);
        pace.end(ends + SECOND * 100);
        assert_eq!(pace.owes_until, ends + rest);
        let over = ends + SECOND * 100;
        assert!(!pace.is_over(over));
        assert!(pace.is_over(over + KEPT));
    }
}
