//! Passes that did not come to their end.

use std::time::Duration;

use super::Failure;

/// How long a pass may take. Each of its requests has a deadline of its own; the next pass goes on with what is cut off.
pub const RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// Why a pass was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileFailure {
    /// It took too long and was cut off.
    #[error("the pass did not come to its end within {} s", RECONCILE_TIMEOUT.as_secs())]
    TimedOut,
    /// It panicked.
    #[error("the pass panicked")]
    Panicked,
}

/// Why a pass did not come to its end. It is made again by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An API server refused a request or did not answer.
    #[error("talk to the {} API server", .0.server)]
    Refused(#[source] Failure),
    /// The pass was cut off or panicked.
    #[error(transparent)]
    Pass(#[from] ReconcileFailure),
    /// The pass does not know how to go on, which is a bug.
    #[error("a pass does not go on: {0}")]
    Unfinished(String),
}

impl Error {
    /// Whether another one has written first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(failure) if failure.is_conflict())
    }
}
