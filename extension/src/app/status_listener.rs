//! The optional status service: its listener, and the caches that it answers from.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
};
use futures::{FutureExt as _, channel::mpsc::UnboundedReceiver, future::BoxFuture};
use sluice_core::cluster::ClusterRef;
use sluice_hooks::Peer;
use sluice_status::{
    Caches, Changed, ClusterView, Connection, Lifecycle, Status, StatusMetrics, Unread, view,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::serving::Serving;
use crate::{
    cache::{event_handlers::EventHandlers, stores::Stores},
    kube_client::{
        bounded::{Bounds, REQUEST, bounded},
        last_response::LastResponse,
        middleware::Transport,
    },
    server::{
        health::Health,
        serve::{self, Leaving, read_within},
    },
    telemetry::metrics::watch_panicked,
};

/// Running status service.
pub(super) struct RunningStatusService {
    pub(super) status: Status,
    /// Task that ends with the service and its connections.
    pub(super) listening: JoinHandle<()>,
}

/// Time without a heartbeat after which the status service counts as stuck. It beats every five seconds and after every 64 Clusters.
const SILENT: Duration = Duration::from_mins(1);

/// Limits of a review. The service has a shorter timeout.
const REVIEW: Bounds = Bounds {
    answer: 1024 * 1024,
    ..REQUEST
};

/// Shutdown signals of the status service.
#[derive(Clone, Copy)]
pub(super) struct ShutdownSignals<'a> {
    /// Canceled when the process is asked to stop.
    pub(super) stop: &'a CancellationToken,
    /// Canceled when listeners close.
    pub(super) drained: &'a CancellationToken,
}

/// Serves the status service of `config` on `runtime` until listeners close; both are absent without `--status-addr`. It responds
/// UNAVAILABLE until the stores are attached. `/livez` fails when the service exits unexpectedly or is stuck.
///
/// # Errors
/// The certificate is unusable.
pub(super) async fn show(
    config: Option<serve::Config>,
    runtime: Option<&Serving>,
    event_handlers: &EventHandlers,
    metrics: StatusMetrics,
    health: &Health,
    ends: ShutdownSignals<'_>,
) -> anyhow::Result<Option<RunningStatusService>> {
    let (Some(config), Some(runtime)) = (config, runtime) else {
        return Ok(None);
    };
    let status = Status::new(metrics);
    let ShutdownSignals { stop, drained } = ends;
    let heart = health.heartbeat("status", SILENT);
    let life = Lifecycle {
        leaves: stop.clone(),
        ends: drained.clone(),
        beat: Arc::new(move || heart.beat()),
        panicked: watch_panicked,
    };
    let (router, following) = routes(&status, event_handlers.shown.listen(), life)?;
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

/// Returns the routes of the service for a listener, and the future that keeps its snapshots up to date.
pub(super) fn routes(
    status: &Status,
    changes: UnboundedReceiver<Changed>,
    life: Lifecycle,
) -> anyhow::Result<(Router, impl Future<Output = ()> + Send + use<>)> {
    let described = status.router_and_follower(changes, life);
    let (router, following) = described.context("describe the status service")?;
    Ok((router.layer(from_fn(with_connection)), following))
}

/// Tells the service about the connection of a request, and limits the time for which a response waits to be read.
async fn with_connection(mut request: Request, next: Next) -> Response {
    let extensions = request.extensions_mut();
    let connection = Connection {
        peer: extensions.get::<Peer>().cloned().unwrap_or_default().address(),
        leaving: extensions.get::<Leaving>().cloned().unwrap_or_default().0,
    };
    extensions.insert(connection);
    let mut answer = next.run(request).await;
    match answer.extensions_mut().remove::<Unread>() {
        Some(unread) => read_within(answer, Unread::WITHIN, unread).await,
        None => answer,
    }
}

/// Caches of this replica.
struct ReplicaCaches {
    stores: Stores,
    last_response: LastResponse,
}

impl Caches for ReplicaCaches {
    fn filled(&self) -> BoxFuture<'_, ()> {
        self.stores.filled_for_managed().boxed()
    }

    fn clusters(&self) -> Vec<ClusterRef> {
        self.stores.clusters.all_names()
    }

    fn view(&self, cluster: &ClusterRef) -> Option<ClusterView> {
        view(&self.stores, cluster)
    }

    fn silent_for(&self) -> Duration {
        self.last_response.silent_for()
    }
}

/// Attaches the stores to the service, and the `client` of its reviews, which has no other user.
pub(super) fn attach(
    status: &Status,
    stores: Stores,
    client: impl Into<Transport>,
    last_response: LastResponse,
) {
    let caches = ReplicaCaches {
        stores,
        last_response,
    };
    status.set_caches(caches, bounded(client, REVIEW).into_client());
}
