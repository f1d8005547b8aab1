//! How long the Clusters of a round took, in three figures.

use std::fmt;
use std::time::Duration;

/// How many times as long a fault may make the others take. Twice, because Clusters that give trouble may have half of the slots; the
/// rest is for what else the machine does.
const FACTOR: u32 = 3;

/// Insignificant difference on such a machine.
const FLOOR: Duration = Duration::from_secs(2);

/// Absolute limits for unaffected Clusters in a round without a fault: five times the measured values on two busy cores. They detect only
/// slowness of all Clusters.
pub(crate) const UNDISTURBED: Figures = Figures::new(5_500, 7_500, 8_000);

/// The same for the first round, which writes more than values.
pub(crate) const FIRST: Figures = Figures::new(9_000, 15_000, 17_000);

/// The same for unaffected Clusters in a round with a fault: three times the measured values.
pub(crate) const DISTURBED: Figures = Figures::new(12_000, 15_000, 16_000);

/// Median, 90th percentile and maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    median: Duration,
    high: Duration,
    last: Duration,
}

impl Figures {
    /// In milliseconds.
    pub(crate) const fn new(median: u64, high: u64, last: u64) -> Self {
        Self {
            median: Duration::from_millis(median),
            high: Duration::from_millis(high),
            last: Duration::from_millis(last),
        }
    }

    pub(crate) fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |tenths: usize| took.get(took.len() * tenths / 10).copied().unwrap_or_default();
        Self {
            median: at(5),
            high: at(9),
            last: took.last().copied().unwrap_or_default(),
        }
    }

    /// Whether these are at most as long as `without`, plus `longer`.
    pub(crate) fn are_as(&self, without: &Self, longer: Duration) -> bool {
        let as_long = |with: Duration, without: Duration| with <= without * FACTOR + FLOOR + longer;
        as_long(self.median, without.median)
            && as_long(self.high, without.high)
            && as_long(self.last, without.last)
    }

    /// Whether none of these is longer than in `limits`.
    pub(crate) fn are_within(&self, limits: &Self) -> bool {
        self.median <= limits.median && self.high <= limits.high && self.last <= limits.last
    }

    /// How many times as long as `without` these took.
    pub(crate) fn ratio(&self, without: &Self) -> String {
        let ratio = |with: Duration, without: Duration| with.as_secs_f64() / without.as_secs_f64().max(1e-9);
        format!(
            "{:.2}, {:.2}, {:.2}",
            ratio(self.median, without.median),
            ratio(self.high, without.high),
            ratio(self.last, without.last)
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, high, last] = [self.median, self.high, self.last].map(|took| took.as_secs_f64());
        write!(formatter, "{median:.2} s, {high:.2} s, {last:.2} s")
    }
}

#[test]
fn slowness_of_all_clusters_is_detected() {
    let all = |seconds: u64| Figures::of(vec![Duration::from_secs(seconds); 30]);
    assert!(
        all(9).are_as(&all(9), Duration::ZERO),
        "nothing is slow beside the others"
    );
    assert!(!all(9).are_within(&UNDISTURBED));
    assert!(all(2).are_within(&UNDISTURBED));
    let mut one = vec![Duration::from_secs(1); 29];
    one.push(Duration::from_secs(9));
    assert!(!Figures::of(one).are_within(&UNDISTURBED));
}
