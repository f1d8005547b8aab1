//! Monotonic clock, which tests can stop.

use std::{future::pending, time::Instant};

use jiff::Timestamp;
use sluice_core::clock::Clock;
use tokio::time::sleep_until;

/// Returns the current instant. The clock runs while the process is stopped, and stands still while the machine is suspended.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the current time of this clock and of the system clock.
pub(crate) fn clock() -> Clock {
    Clock {
        now: Timestamp::now(),
        instant: now(),
    }
}

/// Waits until `at`; without a value, forever.
pub(crate) async fn later(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}
