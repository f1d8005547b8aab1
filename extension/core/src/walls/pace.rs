//! How soon the events of a workload cluster lead to one more pass over its Cluster. What changes on the management cluster is not
//! delayed here.

use std::time::{Duration, Instant};

/// The shortest rest between the end of a pass and the next one that only events of the workload cluster ask for.
pub const MIN_REST: Duration = Duration::from_secs(1);

/// The longest one: a package that becomes ready is noticed within three seconds.
pub const MAX_REST: Duration = Duration::from_secs(3);

/// While passes bring nothing new, the rest is this part of the time since one did: what has been waited for for less than 50 s is
/// noticed within a second.
const PART: u32 = 50;

/// How long a pace is remembered whose connection is closed: another one may be opened at once.
const KEPT: Duration = Duration::from_mins(1);

/// The pace of one Cluster.
#[derive(Debug)]
pub struct Pace {
    /// Something happened since the last pass began.
    wanted: bool,
    /// When the pass began that runs.
    passing: Option<Instant>,
    /// The workload cluster asks for no pass before then.
    rests_until: Instant,
    /// When a pass brought something new last.
    news: Instant,
}

impl Pace {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            wanted: false,
            passing: None,
            rests_until: now,
            news: now,
        }
    }

    /// Something happened. Says when [`Self::wakes`] is to be asked for it; none while a pass runs, and where that was said before.
    pub fn want(&mut self) -> Option<Instant> {
        let wanted = std::mem::replace(&mut self.wanted, true);
        self.due().filter(|_| !wanted)
    }

    /// A pass over the Cluster begins.
    pub fn begin(&mut self, now: Instant) {
        (self.wanted, self.passing) = (false, Some(now));
    }

    /// A pass changed what is known of the Cluster.
    pub fn brought_news(&mut self, now: Instant) {
        self.news = now;
    }

    /// The pass has ended. Says when [`Self::wakes`] is to be asked for what happened meanwhile, if something did.
    pub fn end(&mut self, now: Instant) -> Option<Instant> {
        let quiet = now.duration_since(self.news) / PART;
        let took = self.passing.take().map(|began| now.duration_since(began));
        // As long as the pass took, so that short passes that events ask for do not take more than half of a slot.
        let rest = quiet.max(took.unwrap_or_default());
        self.rests_until = now + rest.clamp(MIN_REST, MAX_REST);
        self.due()
    }

    /// When the Cluster is to be woken, if it is. While a pass runs, its end is waited for.
    fn due(&self) -> Option<Instant> {
        (self.wanted && self.passing.is_none()).then_some(self.rests_until)
    }

    /// Whether the Cluster is woken now. That counts as the end of a pass, so that a controller that is late is not sent every event.
    pub fn wakes(&mut self, now: Instant) -> bool {
        let wakes = self.due().is_some_and(|due| due <= now);
        if wakes {
            self.wanted = false;
            self.rests_until = now + MIN_REST;
        }
        wakes
    }

    /// Whether it says nothing any more of a Cluster that has no connection.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.rests_until) >= KEPT
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_event_wakes_at_once_unless_a_pass_runs_or_has_just_ended() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        assert!(!pace.wakes(began), "nothing happened");
        assert_eq!(pace.want(), Some(began));
        assert!(pace.wakes(began));
        assert!(!pace.wakes(began), "once");
        assert_eq!(pace.want(), Some(began + MIN_REST));
        assert_eq!(pace.want(), None, "the second event is no news");
        assert!(!pace.wakes(began), "a controller that is late");
        assert!(pace.wakes(began + MIN_REST));

        pace.want();
        let ends = began + SECOND * 60;
        pace.begin(ends);
        assert_eq!(pace.end(ends), None, "the pass saw it");
        pace.begin(ends);
        assert_eq!(pace.want(), None);
        assert!(!pace.wakes(ends + SECOND * 60), "the pass runs");
        assert_eq!(pace.end(ends), Some(ends + MIN_REST.max(SECOND * 60 / 50)));
    }

    #[rstest]
    #[case::news_and_short(0, 0, MIN_REST)]
    #[case::long_pass(0, 2, SECOND * 2)]
    #[case::very_long_pass(0, 100, MAX_REST)]
    #[case::no_news_for_a_while(100, 0, SECOND * 2)]
    #[case::no_news_for_long(1000, 0, MAX_REST)]
    fn the_rest_is_as_long_as_the_pass_or_a_part_of_the_time_without_news(
        #[case] quiet: u32,
        #[case] took: u32,
        #[case] rest: Duration,
    ) {
        let news = Instant::now();
        let mut pace = Pace::new(news);
        let ended = news + SECOND * (quiet + took);
        pace.begin(news + SECOND * quiet);
        if quiet == 0 {
            pace.brought_news(ended);
        }
        pace.want();
        assert_eq!(pace.end(ended), Some(ended + rest));
        assert!(!pace.is_over(ended + rest));
        assert!(pace.is_over(ended + rest + KEPT));
    }
}
