//! The time that decisions are made at; the caller reads the clocks.

use std::time::Instant;

use jiff::Timestamp;

/// What time it is.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// For people, and for what other machines have written.
    pub now: Timestamp,
    /// For what this process remembers.
    pub instant: Instant,
}
