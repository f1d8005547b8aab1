//! Listener of the optional status service.

use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{listeners::status_config, serving::Serving};
use crate::{
    cache::event_handlers::EventHandlers,
    flags::Args,
    server::health::Health,
    status::{Lifecycle, Status, StatusMetrics},
};

/// Running status service.
pub(super) struct RunningStatusService {
    pub(super) status: Status,
    /// Task that ends with the service and its connections.
    pub(super) listening: JoinHandle<()>,
}

/// Time without a heartbeat after which the status service counts as stuck. It beats every five seconds and after every 64 Clusters.
const SILENT: Duration = Duration::from_mins(1);

/// Shutdown signals of the status service.
#[derive(Clone, Copy)]
pub(super) struct ShutdownSignals<'a> {
    /// Canceled when the process is asked to stop.
    pub(super) stop: &'a CancellationToken,
    /// Canceled when listeners close.
    pub(super) drained: &'a CancellationToken,
}

/// Serves the status service on `runtime` until listeners close, if `--status-addr` is set. It responds UNAVAILABLE until the stores are
/// attached. `/livez` fails when the service exits unexpectedly or is stuck.
///
/// # Errors
/// The certificate is unusable.
pub(super) async fn show(
    args: &Args,
    runtime: Option<&Serving>,
    event_handlers: &EventHandlers,
    metrics: StatusMetrics,
    health: &Health,
    ends: ShutdownSignals<'_>,
) -> anyhow::Result<Option<RunningStatusService>> {
    let (Some(runtime), Some(config)) = (runtime, status_config(args)) else {
        return Ok(None);
    };
    let status = Status::new(metrics);
    let ShutdownSignals { stop, drained } = ends;
    let life = Lifecycle {
        leaves: stop.clone(),
        ends: drained.clone(),
        heart: health.heartbeat("status", SILENT),
    };
    let (router, following) = status.router_and_follower(event_handlers.shown.listen(), life)?;
    let listening = runtime.run_once_bound(config, router, drained).await;
    let listening = listening.context("serve the status service")?;
    let drained = drained.clone();
    let listening = runtime.spawn(async move {
        // When one of them ends, the heartbeat stops with it.
        let ended = tokio::select! {
            ended = listening => ended.map(drop),
            () = following => Ok(()),
        };
        if !drained.is_cancelled() {
            let panic = ended.is_err();
            error!(
                panic,
                "Status service exited unexpectedly; failing the liveness probe"
            );
        }
    });
    Ok(Some(RunningStatusService { status, listening }))
}
