//! The monotonic clock, which tests can stop.

use std::{future::pending, time::Instant};

use jiff::Timestamp;
use sluice_core::clock::Clock;
use tokio::time::sleep_until;

/// Now, for what `sluice-core` decides by time. The clock goes on while the process is stopped, and stands still while the whole machine
/// is suspended.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Now, by this clock and by that of the machine.
pub(crate) fn clock() -> Clock {
    Clock {
        now: Timestamp::now(),
        instant: now(),
    }
}

/// Returns at this moment; without one, never.
pub(crate) async fn later(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}
