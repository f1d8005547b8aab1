//! The status service, where it is wanted.

use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{listeners::status_at, serving::Serving};
use crate::{
    cache::event_handlers::EventHandlers,
    flags::Args,
    server::health::Health,
    status::{Life, Status, StatusMetrics},
};

/// A status service that is served.
pub(super) struct Showing {
    pub(super) status: Status,
    /// Until it has ended, and its connections have.
    pub(super) listening: JoinHandle<()>,
}

/// When the status service is taken for stuck. It beats every five seconds, and after every 64 Clusters that it looks at.
const SILENT: Duration = Duration::from_mins(1);

/// When a service that is shown begins to go, and when it goes.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    /// The process is asked to stop.
    pub(super) stop: &'a CancellationToken,
    /// Listeners close.
    pub(super) drained: &'a CancellationToken,
}

/// Serves the status service on `runtime` until listeners close, if `--status-addr` is given. It answers UNAVAILABLE until it knows the
/// stores. Where it ends unasked, or gets stuck, `/livez` fails.
///
/// # Errors
/// Its certificate cannot be used.
pub(super) async fn show(
    args: &Args,
    runtime: Option<&Serving>,
    news: &EventHandlers,
    metrics: StatusMetrics,
    health: &Health,
    ends: Ends<'_>,
) -> anyhow::Result<Option<Showing>> {
    let (Some(runtime), Some(config)) = (runtime, status_at(args)) else {
        return Ok(None);
    };
    let status = Status::new(metrics);
    let Ends { stop, drained } = ends;
    let life = Life {
        leaves: stop.clone(),
        ends: drained.clone(),
        heart: health.heartbeat("status", SILENT),
    };
    let (router, following) = status.serve(news.shown.listen(), life)?;
    let listening = runtime.run_once_bound(config, router, drained).await;
    let listening = listening.context("serve the status service")?;
    let drained = drained.clone();
    let listening = runtime.spawn(async move {
        // Whichever ends takes the other one's heart with it.
        let ended = tokio::select! {
            ended = listening => ended.map(drop),
            () = following => Ok(()),
        };
        if !drained.is_cancelled() {
            let panic = ended.is_err();
            error!(
                panic,
                "The status service has ended unasked, and the process is no more alive for its probe"
            );
        }
    });
    Ok(Some(Showing { status, listening }))
}
