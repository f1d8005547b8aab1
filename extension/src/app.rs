//! Start and shutdown of the process: listeners first, then stores, leader election and controllers.

mod leading;
mod listeners;
mod metrics;
mod serving;
mod status_listener;

use crate::kube_client::bounded::REQUEST;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use futures::future::OptionFuture;
use kube::Config;
use prometheus_client::registry::Registry;
use sluice_core::{installation::retrigger::Handlers, releases::ManagementClusters};
use sluice_status::Status;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{
    leading::{Management, lead, settings},
    listeners::{Addresses, admission_config, hooks, plain, status_config},
    metrics::Metrics,
    serving::Serving,
    status_listener::{RunningStatusService, ShutdownSignals, attach, show},
};
use crate::{
    admission::{Admission, Caches, Checks, Rights},
    cache::{
        control_plane::ControlPlanes, event_handlers::EventHandlers, stores::Stores,
        values_watch::ValuesWatches,
    },
    controllers::{providers, registration::RegistrationMetrics, releases},
    flags::Args,
    hooks::{Index, confirmer::Confirmer},
    kube_client::{
        bounded::{bounded, paced},
        fence::Fence,
        kubeconfig,
        last_response::LastResponse,
        metrics::RestClientMetrics,
        middleware::Transport,
        pool,
    },
    leader::{leadership::Leadership, metrics::LeaderMetrics},
    server::{
        health::{self, Health},
        serve,
    },
    telemetry::{log::Log, metrics::ReconcileMetrics},
};

/// Time between failing readiness and refusing connections. Endpoints stop routing new callers to this replica meanwhile.
const ENDPOINT_PROPAGATION: Duration = Duration::from_secs(5);

/// Time for which an idle connection for confirmations of releases is kept. A hold reads nothing, and a new connection takes a part of the
/// time of a confirmation. An API server ends a connection that was idle for 90 s.
const CONFIRM_IDLE: Duration = Duration::from_mins(1);

/// Idle connections to the management API server that the pool keeps, without those of watches.
const IDLE: usize = 8;

/// Read timeout of connections to the management API server.
const SILENCE: Duration = Duration::from_secs(75);

/// Time that a listening replica may spend on its first lists before it reports ready without them.
const STARTING: Duration = Duration::from_secs(5);

/// Heartbeat interval of the runtime of the controllers.
const BEAT: Duration = Duration::from_secs(5);

/// Time without a heartbeat after which that runtime counts as stuck.
const SILENT_RUNTIME: Duration = Duration::from_secs(30);

/// Runs the extension until a signal or a failure.
///
/// # Errors
/// The cause that keeps the process from serving: one line that names the file, address or object.
pub fn main(args: Args, log: &Log) -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let (serving, admitting) = (Serving::start()?, Serving::of_admission()?);
    let showing = args.status_addr.map(|_| Serving::of_status()).transpose()?;
    let outcome = runtime.block_on(run(args, log, &serving, &admitting, showing.as_ref()));
    serving.end();
    admitting.end();
    if let Some(showing) = showing {
        showing.end();
    }
    outcome
}

async fn run(
    args: Args,
    log: &Log,
    serving: &Serving,
    admitting: &Serving,
    showing: Option<&Serving>,
) -> anyhow::Result<()> {
    info!(?args, version = env!("CARGO_PKG_VERSION"), "Starting");
    let addresses = Addresses::of(&args);
    let stop = CancellationToken::new();
    let event_handlers = event_handlers(&args);
    let index = Index::new(
        args.system_namespace.clone(),
        args.cluster_delete_timeout,
        event_handlers.uncounted.clone(),
    );
    if !args.hold_unresolved {
        index.release_unresolved();
    }
    let health = Health::default();
    let mut registry = Registry::default();
    let metrics = Metrics::registered(log, &index, &event_handlers.rollbacks, &mut registry);

    // Bound first, because discovery needs only this listener: Cluster API gives up after a minute without it.
    let hooks = hooks(&args.webhook, addresses.hooks, serving, &health, metrics.server).await?;
    let (synced, listening) = (index.clone(), Instant::now());
    health.check("index", move || {
        // A Cluster API that starts now exits without an endpoint to discover. Hook calls are held until the index is filled.
        if synced.was_filled() || listening.elapsed() >= STARTING {
            Ok(())
        } else {
            Err("not synced".to_owned())
        }
    });
    let _heart = beat(&health);
    let admission = Admission::new(
        args.system_namespace.clone(),
        Checks::of(&args.admission),
        metrics.admission,
    );
    let drained = CancellationToken::new();
    let ends = ShutdownSignals {
        stop: &stop,
        drained: &drained,
    };
    let status = status_config(&args, addresses.status);
    let shown = show(status, showing, &event_handlers, metrics.status, &health, ends).await?;
    let (status, shown) = shown
        .map(|RunningStatusService { status, listening }| (status, listening))
        .unzip();
    let probes_at = serving
        .bind(plain(addresses.probes), serve::Metrics::default())
        .await?;
    let router = sluice_hooks::router(index.clone(), metrics.hooks);
    let hooks = serving.run(hooks, router, &drained);
    let webhooks = admission.router(args.packages, args.gates);
    let reviews = admitting
        .run_once_bound(admission_config(&args, addresses.admission), webhooks, &drained)
        .await?;
    let probes = health::router(health.clone(), Arc::new(registry));
    let probes = serving.run(probes_at, probes, &drained);

    let terminating = health.readiness("running");
    terminating.ready();
    let signals = tokio::spawn(until_signal(stop.clone()));
    let parts = Parts {
        index,
        admission,
        configurations: metrics.configurations,
        reconciles: metrics.reconciles,
        releases: metrics.releases,
        registration: metrics.registration,
        leader: metrics.leader,
        rest_client: metrics.rest_client,
        health: health.clone(),
        event_handlers,
        status,
    };
    let outcome = Box::pin(control(&args, parts, &stop)).await;

    terminating.not_ready("terminating");
    if outcome.is_ok() && !signals.is_finished() {
        stop.cancelled().await;
    }
    if outcome.is_ok() {
        tokio::time::sleep(ENDPOINT_PROPAGATION).await;
    }
    drained.cancel();
    let _drained = tokio::join!(hooks, reviews, probes, OptionFuture::from(shown));
    outcome
}

fn event_handlers(args: &Args) -> EventHandlers {
    let handlers = Handlers::of(args.extension_configs.iter().map(String::as_str));
    EventHandlers {
        without_packages: !args.packages,
        with_upgrade_gates: args.gates,
        values_watches: ValuesWatches::of(&args.secret_namespaces),
        management: Arc::new(Mutex::new(ManagementClusters::of(&args.system_namespace))),
        system_namespace: args.system_namespace.clone(),
        ..EventHandlers::of(handlers)
    }
}

/// Sends heartbeats of the calling runtime until the returned guard is dropped.
fn beat(health: &Health) -> AbortOnDrop {
    let heart = health.heartbeat("runtime", SILENT_RUNTIME);
    AbortOnDrop(tokio::spawn(heart.keep(BEAT)))
}

/// State that the servers of hooks, reviews, probes and metrics share with the controllers.
struct Parts {
    index: Index,
    admission: Admission,
    configurations: providers::Configurations,
    reconciles: ReconcileMetrics,
    releases: releases::ReleaseMetrics,
    registration: RegistrationMetrics,
    leader: LeaderMetrics,
    rest_client: RestClientMetrics,
    health: Health,
    event_handlers: EventHandlers,
    /// `None` without `--status-addr`.
    status: Option<Status>,
}

/// Runs stores, leader election and controllers until `stop`.
async fn control(args: &Args, parts: Parts, stop: &CancellationToken) -> anyhow::Result<()> {
    let Parts {
        index,
        event_handlers,
        ..
    } = &parts;
    let fence = if args.leader.leader_elect {
        Fence::closed()
    } else {
        Fence::open()
    };
    let leadership = Leadership::new(args.leader.leader_elect_lease_duration);
    if args.leader.leader_elect {
        index.require_leader(leadership.clone());
    }
    let connect_for = |time| transport(args, &parts.rest_client, time);
    let connect = || connect_for(pool::IDLE);
    // The innermost layer sees every answer.
    let last_response = LastResponse::default();
    let unbounded = last_response.noting(index.server_clock().noting(connect().await?));
    let unbounded = paced(unbounded);
    let client = fence.guard(bounded(unbounded.clone(), REQUEST)).into_client();
    // Lists of stores may take longer than a request and have their own timeout.
    let unbounded = unbounded.into_client();
    // Confirmations of releases, webhooks, the status service and kinds that tenants name use separate connections. Their load then delays
    // neither a lease renewal nor a reconcile.
    let (of_reviews, of_kinds) = (connect().await?, bounded(connect().await?, REQUEST).into_client());
    let rollbacks = event_handlers.rollbacks.clone();
    index.confirm_by(
        Confirmer::new(connect_for(CONFIRM_IDLE).await?),
        rollbacks.clone(),
    );
    let of_status = OptionFuture::from(parts.status.as_ref().map(|_| connect()));
    let of_status = of_status.await.transpose()?;
    let (stores, following) = Stores::open(&unbounded, &args.system_namespace, event_handlers);
    let mut following = AbortOnDrop(tokio::spawn(following));
    let mut answering = AbortOnDrop(tokio::spawn({
        let (index, stores) = (index.clone(), stores.clone());
        async move { index.follow(stores).await }
    }));
    // Reviews and reconciles share one cache of control planes. Sluice watches a kind from the first Cluster that references it.
    let control_planes = Arc::new(ControlPlanes::new(
        of_kinds,
        event_handlers.triggers.clone(),
        args.control_plane_groups.clone(),
        rollbacks.clone(),
    ));
    if args.gates {
        // Every replica answers reviews, also before its caches are filled.
        parts.admission.set_rights(Rights::new(of_reviews.clone()));
    }
    let _admitting = args.packages.then(|| {
        let (admission, stores) = (parts.admission.clone(), stores.clone());
        let (control_planes, settings) = (Arc::clone(&control_planes), settings(args));
        AbortOnDrop(tokio::spawn(async move {
            // A review reads a Package that is not cached yet.
            stores.filled_for_reviews().await;
            // Every replica answers reviews, also without leadership.
            admission.set_caches(Caches::new(stores, control_planes, settings, of_reviews));
        }))
    });
    if let Some((status, client)) = parts.status.as_ref().zip(of_status) {
        // Every replica serves the status service and authorizes its callers.
        attach(status, stores.clone(), client, last_response);
    }
    let values_watches = event_handlers.values_watches.clone();
    // Only packages have values. Without them, Sluice may not list Secrets.
    let _watching = args.packages.then(|| {
        let watching = values_watches.run(
            client.clone(),
            event_handlers.triggers.clone(),
            stores.clusters.clone(),
            rollbacks,
        );
        AbortOnDrop(tokio::spawn(watching))
    });
    let management = Management {
        unbounded,
        client,
        fence,
        leadership,
        stores: stores.clone(),
        control_planes,
    };
    tokio::select! {
        outcome = lead(args, parts, management, stop) => outcome,
        _ = &mut following.0 => Err(lost(&stores)),
        _ = &mut answering.0 => Err(anyhow!("hook index panicked; see the panic above")),
    }
}

/// Error of a process whose cache has stopped.
fn lost(stores: &Stores) -> anyhow::Error {
    let kind = stores.ended().unwrap_or("an object");
    anyhow!("watch of {kind} panicked; see the panic above")
}

/// Returns a transport to the management API server.
async fn transport(args: &Args, metrics: &RestClientMetrics, idle: Duration) -> anyhow::Result<Transport> {
    let read = kubeconfig::config(args.kubeconfig.as_deref(), args.kubeconfig_files.as_deref());
    let mut config = match read.await? {
        Some(config) => config,
        None => Config::incluster()
            .context("use the service account of the pod; outside a pod, set --kubeconfig or KUBECONFIG to an existing file")?,
    };
    // A retry inside a request would bypass the fence of the lease, and hide a failing server for minutes. The next reconcile retries
    // instead.
    config.default_retry = false;
    // The client closes a connection that has been silent for this time. A watch receives a bookmark every minute.
    config.read_timeout = Some(SILENCE);
    let server = config.cluster_url.clone();
    let transport = pool::transport(config, IDLE, idle).context("connect to the management cluster")?;
    Ok(metrics.counting(transport, &server))
}

/// Cancels `stop` on the first signal and exits the process on the second.
async fn until_signal(stop: CancellationToken) {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return;
    };
    for first in [true, false] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if first {
            info!("Stopping");
            stop.cancel();
        }
    }
    std::process::exit(130);
}

/// Aborts a task when dropped.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
