//! The status service, where it is wanted.

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{listeners::status_at, serving::Serving};
use crate::{
    cli::Args,
    news::News,
    serve::Drained,
    status::{Status, StatusMetrics},
};

/// A status service that is served.
pub(super) struct Showing {
    pub(super) status: Status,
    pub(super) listening: JoinHandle<Option<Drained>>,
}

/// Serves the status service on `runtime` until `drained`, if `--status-addr` is given. It answers UNAVAILABLE until it knows the stores.
///
/// # Errors
/// Its certificate cannot be used.
pub(super) async fn show(
    args: &Args,
    runtime: Option<&Serving>,
    news: &News,
    metrics: StatusMetrics,
    drained: &CancellationToken,
) -> anyhow::Result<Option<Showing>> {
    let (Some(runtime), Some(config)) = (runtime, status_at(args)) else {
        return Ok(None);
    };
    let status = Status::new(metrics);
    let (router, following) = status.serve(news.shown.listen(), drained)?;
    runtime.spawn(following);
    let listening = runtime.run_once_bound(config, router, drained).await;
    let listening = listening.context("serve the status service")?;
    Ok(Some(Showing { status, listening }))
}
