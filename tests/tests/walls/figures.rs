//! How long the Clusters of a round took, in two figures.

use std::fmt;
use std::time::Duration;

/// How many times as long a fault may make the others take. Twice, because Clusters that give trouble may have half of the slots; the
/// rest is for what else the machine does.
const FACTOR: u32 = 3;

/// What is no difference on such a machine.
const FLOOR: Duration = Duration::from_secs(2);

/// The middle one, and the one that nine of ten do not exceed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    median: Duration,
    high: Duration,
}

impl Figures {
    pub(crate) fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |tenths: usize| took.get(took.len() * tenths / 10).copied().unwrap_or_default();
        Self {
            median: at(5),
            high: at(9),
        }
    }

    /// Whether these are as good as `without`.
    pub(crate) fn are_as(&self, without: &Self) -> bool {
        let as_long = |with: Duration, without: Duration| with <= without * FACTOR + FLOOR;
        as_long(self.median, without.median) && as_long(self.high, without.high)
    }

    /// How many times as long as `without` these took.
    pub(crate) fn ratio(&self, without: &Self) -> String {
        let ratio = |with: Duration, without: Duration| with.as_secs_f64() / without.as_secs_f64().max(1e-9);
        format!(
            "{:.2}, {:.2}",
            ratio(self.median, without.median),
            ratio(self.high, without.high)
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, high) = (self.median.as_secs_f64(), self.high.as_secs_f64());
        write!(formatter, "{median:.2} s, {high:.2} s")
    }
}
