//! How long the Clusters of a round took, in three figures.

use std::fmt;
use std::time::Duration;

/// How many times as long a fault may make the others take. Twice, because Clusters that give trouble may have half of the slots; the
/// rest is for what else the machine does.
const FACTOR: u32 = 3;

/// What is no difference on such a machine.
const FLOOR: Duration = Duration::from_secs(2);

/// The middle one, the one that nine of ten do not exceed, and the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    median: Duration,
    high: Duration,
    last: Duration,
}

impl Figures {
    pub(crate) fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |tenths: usize| took.get(took.len() * tenths / 10).copied().unwrap_or_default();
        Self {
            median: at(5),
            high: at(9),
            last: took.last().copied().unwrap_or_default(),
        }
    }

    /// Whether these are as good as `without`, but for `longer`.
    pub(crate) fn are_as(&self, without: &Self, longer: Duration) -> bool {
        let as_long = |with: Duration, without: Duration| with <= without * FACTOR + FLOOR + longer;
        as_long(self.median, without.median)
            && as_long(self.high, without.high)
            && as_long(self.last, without.last)
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
