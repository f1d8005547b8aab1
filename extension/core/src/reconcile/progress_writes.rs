//! Interval between writes of progress that changes no hook decision, so that an upgrade costs few writes.

use std::time::Duration;

/// Minimum intervals before the first write of progress of an upgrade, the second, and all others.
const INTERVALS: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(15),
];

/// Returns the time that progress still waits for its write, after `count` writes of progress and this time since the last write; `None` if
/// it may be written now.
pub(crate) fn until_write(count: usize, since_written: Duration) -> Option<Duration> {
    let left = INTERVALS[count.min(INTERVALS.len() - 1)].saturating_sub(since_written);
    (!left.is_zero()).then_some(left)
}
