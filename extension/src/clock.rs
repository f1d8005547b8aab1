//! The monotonic clock, which tests can stop.

use std::{future::pending, time::Instant};

use tokio::time::sleep_until;

/// Now, for what `sluice-core` decides by time.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns at this moment; without one, never.
pub(crate) async fn later(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}
