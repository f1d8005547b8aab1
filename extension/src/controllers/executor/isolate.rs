//! Isolation of a reconcile from the process: panics and hangs.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use sluice_core::protocol::{RECONCILE_TIMEOUT, ReconcileFailure};
use tokio::time::timeout;

use crate::telemetry::metrics::ControllerMetrics;

/// Runs a reconcile until it ends, times out or panics. Counts timeouts and panics here, because a caller may be canceled before it sees
/// the outcome.
///
/// State that reconciles share is behind locks that ignore poisoning, and each change of it is atomic.
pub(crate) async fn isolated<T, E>(
    metrics: &ControllerMetrics,
    reconcile: impl Future<Output = Result<T, E>>,
) -> Result<T, E>
where
    E: From<ReconcileFailure>,
{
    let timed = async {
        let elapsed = |_| {
            metrics.timed_out();
            E::from(ReconcileFailure::TimedOut)
        };
        timeout(RECONCILE_TIMEOUT, reconcile)
            .await
            .map_err(elapsed)
            .flatten()
    };
    let panicked = |_| {
        metrics.panicked();
        E::from(ReconcileFailure::Panicked)
    };
    AssertUnwindSafe(timed)
        .catch_unwind()
        .await
        .map_err(panicked)
        .flatten()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;
    use crate::telemetry::metrics::Controllers;

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_ends() {
        type Outcome = Result<u8, ReconcileFailure>;
        let controllers = Controllers::default();
        let metrics = &controllers.cluster;
        assert_eq!(isolated(metrics, async { Outcome::Ok(7) }).await, Ok(7));
        assert_eq!(
            isolated(metrics, pending::<Outcome>()).await,
            Err(ReconcileFailure::TimedOut)
        );
        let empty: Vec<u8> = Vec::new();
        let panics = async move {
            tokio::task::yield_now().await;
            Outcome::Ok(empty.iter().copied().max().expect("an element"))
        };
        assert_eq!(isolated(metrics, panics).await, Err(ReconcileFailure::Panicked));

        let (mut text, mut registry) = (String::new(), Registry::default());
        controllers.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        for counter in ["timeouts", "panics"] {
            let line = format!("controller_runtime_reconcile_{counter}_total{{controller=\"cluster\"}} 1\n");
            assert!(text.contains(&line), "no {line} in {text}");
        }
    }
}
