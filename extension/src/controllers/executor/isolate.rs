//! Isolation of a reconcile from the process: panics and hangs.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use sluice_core::protocol::{RECONCILE_TIMEOUT, ReconcileFailure};
use tokio::time::timeout;

/// Runs a reconcile until it ends, times out or panics.
///
/// State that reconciles share is behind locks that ignore poisoning, and each change of it is atomic.
pub(crate) async fn isolated<T, E>(reconcile: impl Future<Output = Result<T, E>>) -> Result<T, E>
where
    E: From<ReconcileFailure>,
{
    let timed = async {
        let elapsed = |_| E::from(ReconcileFailure::TimedOut);
        timeout(RECONCILE_TIMEOUT, reconcile)
            .await
            .map_err(elapsed)
            .flatten()
    };
    let panicked = |_| E::from(ReconcileFailure::Panicked);
    AssertUnwindSafe(timed)
        .catch_unwind()
        .await
        .map_err(panicked)
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_ends() {
        type Outcome = Result<u8, ReconcileFailure>;
        assert_eq!(isolated(async { Outcome::Ok(7) }).await, Ok(7));
        assert_eq!(
            isolated(pending::<Outcome>()).await,
            Err(ReconcileFailure::TimedOut)
        );
        let empty: Vec<u8> = Vec::new();
        let panics = async move {
            tokio::task::yield_now().await;
            Outcome::Ok(empty.iter().copied().max().expect("an element"))
        };
        assert_eq!(isolated(panics).await, Err(ReconcileFailure::Panicked));
    }
}
