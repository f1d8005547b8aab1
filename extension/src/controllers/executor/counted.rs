//! Counts reconciles as controller-runtime does, but for timeouts and panics, which `isolated` counts.

use std::time::Duration;

use sluice_core::protocol::Error;

use crate::telemetry::metrics::{ControllerMetrics, ReconcileResult};

/// Runs `reconcile`, which returns the time of its requeue, and counts its duration and its result.
pub(crate) async fn counted(
    metrics: &ControllerMetrics,
    reconcile: impl Future<Output = Result<Option<Duration>, Error>>,
) -> Result<Option<Duration>, Error> {
    let active = metrics.begin();
    let outcome = reconcile.await;
    active.end(match &outcome {
        Ok(None) => ReconcileResult::Success,
        Ok(Some(_)) => ReconcileResult::RequeueAfter,
        Err(error) if error.is_conflict() => ReconcileResult::Requeue,
        Err(_) => ReconcileResult::Error,
    });
    outcome
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt as _;
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use sluice_core::protocol::{Failure, ReconcileFailure, Server};
    use tokio::time::sleep;

    use super::*;
    use crate::telemetry::metrics::Controllers;

    /// The series of controller `cluster` that are not 0, but for buckets.
    fn moved(controllers: &Controllers) -> Vec<String> {
        let (mut text, mut registry) = (String::new(), Registry::default());
        controllers.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let series = text
            .lines()
            .filter(|line| line.contains(r#"{controller="cluster""#) && !line.contains("_bucket"));
        let moved = series.filter(|line| !line.ends_with(" 0") && !line.ends_with(" 0.0"));
        let mut moved: Vec<_> = moved
            .map(|line| line.replace("controller_runtime_", ""))
            .collect();
        moved.sort_unstable();
        moved
    }

    #[tokio::test(start_paused = true)]
    async fn each_result_is_counted_on_its_own() {
        let refused = |code| {
            Error::Refused(Failure {
                code: Some(code),
                ..Failure::other(Server::Management, "refused")
            })
        };
        let outcomes = [
            Ok(None),
            Ok(Some(Duration::from_mins(10))),
            Ok(Some(Duration::from_mins(10))),
            Err(refused(409)),
            Err(refused(500)),
            Err(ReconcileFailure::TimedOut.into()),
            Err(ReconcileFailure::Panicked.into()),
        ];
        let controllers = Controllers::default();
        for outcome in outcomes {
            let slow = async {
                sleep(Duration::from_secs(1)).await;
                outcome
            };
            let _counted_only = counted(&controllers.cluster, slow).await;
        }
        assert_eq!(
            moved(&controllers),
            [
                r#"reconcile_errors_total{controller="cluster"} 3"#,
                r#"reconcile_time_seconds_count{controller="cluster"} 7"#,
                r#"reconcile_time_seconds_sum{controller="cluster"} 7.0"#,
                r#"reconcile_total{controller="cluster",result="error"} 3"#,
                r#"reconcile_total{controller="cluster",result="requeue"} 1"#,
                r#"reconcile_total{controller="cluster",result="requeue_after"} 2"#,
                r#"reconcile_total{controller="cluster",result="success"} 1"#,
            ]
        );
    }

    #[test]
    fn a_reconcile_is_active_until_it_ends_or_is_dropped() {
        let controllers = Controllers::default();
        controllers.cluster.started(3);
        let mut running = Box::pin(counted(&controllers.cluster, pending()));
        assert!(running.as_mut().now_or_never().is_none());
        let limit = r#"max_concurrent_reconciles{controller="cluster"} 3"#;
        let active = r#"active_workers{controller="cluster"} 1"#;
        assert_eq!(moved(&controllers), [active, limit]);
        drop(running);
        assert_eq!(moved(&controllers), [limit]);
    }
}
