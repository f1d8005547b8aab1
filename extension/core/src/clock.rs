//! Current time as an argument of decisions; the caller reads the clocks.

use std::time::Instant;

use jiff::Timestamp;

/// Wall-clock and monotonic time of one decision.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Wall-clock time, for output and for timestamps of other machines.
    pub now: Timestamp,
    /// Monotonic time, for the local state of this process.
    pub instant: Instant,
}
