//! A pass that neither ends the process nor keeps its slot for ever.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use tokio::time::timeout;

/// How long a pass may take. Each of its requests has a deadline of its own; the next pass goes on with what is cut off.
const PASS_TIMEOUT: Duration = Duration::from_mins(2);

/// Why a pass did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// It took too long and was cut off.
    #[error("the pass did not come to its end within {} s", PASS_TIMEOUT.as_secs())]
    TimedOut,
    /// It panicked.
    #[error("the pass panicked")]
    Panicked,
}

/// Runs `pass` to its end, or to the limit of its time, or to its panic.
///
/// What a pass shares with others is behind locks whose poison is ignored, and each change of it is complete at once.
pub(super) async fn isolated<T>(pass: impl Future<Output = T>) -> Result<T, PassError> {
    match AssertUnwindSafe(timeout(PASS_TIMEOUT, pass)).catch_unwind().await {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(_elapsed)) => Err(PassError::TimedOut),
        Err(_panic) => Err(PassError::Panicked),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pass_ends() {
        assert_eq!(isolated(async { 7 }).await, Ok(7));
        assert_eq!(isolated(pending::<u8>()).await, Err(PassError::TimedOut));
        let empty: Vec<u8> = Vec::new();
        let panics = async move {
            tokio::task::yield_now().await;
            empty.iter().copied().max().expect("an element")
        };
        assert_eq!(isolated(panics).await, Err(PassError::Panicked));
    }
}
