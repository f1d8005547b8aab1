//! Failed reconciles.

use std::time::Duration;

use super::Failure;

/// Timeout of a reconcile. Each request has its own timeout; the next reconcile continues after a canceled one.
pub const RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// Cause for which the executor ended a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileFailure {
    /// The reconcile exceeded [`RECONCILE_TIMEOUT`].
    #[error("reconcile did not complete within {} s", RECONCILE_TIMEOUT.as_secs())]
    TimedOut,
    /// The reconcile panicked.
    #[error("reconcile panicked")]
    Panicked,
}

/// Error of a reconcile. The executor retries it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a request or did not respond.
    #[error("request to the {} API server failed", .0.server)]
    Refused(#[source] Failure),
    /// The reconcile timed out or panicked.
    #[error(transparent)]
    Failed(#[from] ReconcileFailure),
    /// The reconcile makes no progress, which is a bug.
    #[error("reconcile makes no progress: {0}")]
    Unfinished(String),
}

impl Error {
    /// Returns whether another client wrote the object first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(failure) if failure.is_conflict())
    }
}
