//! Puts the parts together: listeners first, then stores, then leadership, then reconciling.

mod listeners;
mod metrics;
mod serving;
mod showing;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use futures::future::OptionFuture;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use prometheus_client::registry::Registry;
use sluice_core::{
    pass::Settings, providers::kinds, releases::ManagementClusters, retrigger::Handlers, retry::SyncPeriod,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{
    listeners::{hooks, plain, reviews_at},
    metrics::Metrics,
    serving::Serving,
    showing::{Ends, Showing, show},
};
use crate::{
    admission::{Admission, World},
    bounded::{Bounds, bounded, paced},
    cli::Args,
    clock::clock,
    contract::Contract,
    control_plane::ControlPlanes,
    controllers::{bootstrap, providers, releases},
    edits::Edits,
    events::Notifier,
    fence::Fence,
    health::{self, Health},
    index::Index,
    leader::{self, Elector},
    leadership::Leadership,
    metrics::PassMetrics,
    news::News,
    pool,
    remote::Remotes,
    retrigger, serve,
    status::Status,
    stores::Stores,
    sweep,
    telemetry::Log,
};

/// Between being unready and refusing connections: as long as it takes until no new caller is sent here.
const ENDPOINT_PROPAGATION: Duration = Duration::from_secs(5);

/// What a request to the management API server may take that is not the list or the watch of a store. The API server gives up what
/// it cannot answer within a minute.
pub(crate) const REQUEST: Bounds = Bounds {
    time: Duration::from_secs(30),
    answer: usize::MAX,
    memory: usize::MAX,
    list: usize::MAX,
    page: 0,
    pace: usize::MAX,
};

/// Connections to the management API server that are kept while nothing uses them, beside those of watches.
const IDLE: usize = 8;

/// How long the management API server may send nothing while something is waited for.
const SILENCE: Duration = Duration::from_secs(75);

/// How long a replica that listens waits to be ready until it has read everything.
const STARTING: Duration = Duration::from_secs(5);

/// How often the runtime that reconciles shows that it runs.
const BEAT: Duration = Duration::from_secs(5);

/// When it is taken for stuck.
const SILENT_RUNTIME: Duration = Duration::from_secs(30);

/// When the reconciler is taken for stuck: no pass takes as long, with the closing of its gates.
const SILENT_RECONCILER: Duration = Duration::from_mins(5);

/// For reconciles in flight to finish once the process is asked to stop.
const RECONCILE_GRACE: Duration = Duration::from_secs(5);

/// Runs until a signal or a failure.
///
/// # Errors
/// What keeps the process from serving: one line that names the file, address or object.
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
    let stop = CancellationToken::new();
    let news = news(&args);
    let index = Index::new(
        args.system_namespace.clone(),
        args.cluster_delete_timeout,
        news.uncounted.clone(),
    );
    if !args.hold_unresolved {
        index.lets_unresolved_go();
    }
    let health = Health::default();
    let mut registry = Registry::default();
    let metrics = Metrics::registered(log, &index, &mut registry);

    // Discovery needs nothing but this listener: Cluster API gives up after a minute without it.
    let hooks = hooks(&args.webhook, serving, &health, metrics.server).await?;
    let (synced, listening) = (index.clone(), Instant::now());
    health.check("index", move || {
        // A Cluster API that starts meanwhile needs an endpoint to discover, or it ends. Until the index is filled calls are held.
        if synced.was_filled() || listening.elapsed() >= STARTING {
            Ok(())
        } else {
            Err("not synced".to_owned())
        }
    });
    let _heart = beat(&health);
    let admission = Admission::new(args.system_namespace.clone(), metrics.admission);
    let drained = CancellationToken::new();
    let ends = Ends {
        stop: &stop,
        drained: &drained,
    };
    let shown = show(&args, showing, &news, metrics.status, &health, ends).await?;
    let (status, shown) = shown
        .map(|Showing { status, listening }| (status, listening))
        .unzip();
    let probes_at = serving
        .bind(plain(args.health_addr), serve::Metrics::default())
        .await?;
    let router = sluice_hooks::router(index.clone(), metrics.hooks);
    let hooks = serving.run(hooks, router, &drained);
    let reviews = admitting
        .run_once_bound(reviews_at(&args), admission.router(), &drained)
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
        passes: metrics.passes,
        releases: metrics.releases,
        health: health.clone(),
        news,
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

fn news(args: &Args) -> News {
    let handlers = Handlers::of(args.extension_configs.iter().map(String::as_str));
    News {
        edits: Edits::of(&args.secret_namespaces),
        management: Arc::new(Mutex::new(ManagementClusters::of(&args.system_namespace))),
        system_namespace: args.system_namespace.clone(),
        ..News::of(handlers)
    }
}

/// Shows for as long as it is kept that the runtime goes round which this is called on.
fn beat(health: &Health) -> AbortOnDrop {
    let heart = health.heartbeat("runtime", SILENT_RUNTIME);
    AbortOnDrop(tokio::spawn(heart.keep(BEAT)))
}

/// What hooks and probes show of what goes on behind them.
struct Parts {
    index: Index,
    admission: Admission,
    configurations: providers::Configurations,
    passes: PassMetrics,
    releases: releases::ReleaseMetrics,
    health: Health,
    news: News,
    /// None where it is not served.
    status: Option<Status>,
}

/// Everything behind the hooks: stores, leadership, reconciling. Ends when `stop` does.
async fn control(args: &Args, parts: Parts, stop: &CancellationToken) -> anyhow::Result<()> {
    let Parts { index, news, .. } = &parts;
    let fence = if args.leader.leader_elect {
        Fence::closed()
    } else {
        Fence::open()
    };
    let leadership = Leadership::new(args.leader.leader_elect_lease_duration);
    if args.leader.leader_elect {
        index.needs(leadership.clone());
    }
    let unbounded = paced(client(args.kubeconfig.as_deref()).await?);
    // Reviews have connections of their own: callers, however many there are, delay neither a renewal of the lease nor a pass.
    let reviews = OptionFuture::from(parts.status.as_ref().map(|_| client(args.kubeconfig.as_deref())));
    let reviews = reviews.await.transpose()?;
    // Lists of stores may take long, and have a deadline of their own.
    let client = fence.guard(bounded(unbounded.clone(), REQUEST));
    let (stores, following) = Stores::open(&unbounded, &args.system_namespace, news);
    let mut following = AbortOnDrop(tokio::spawn(following));
    let mut answering = AbortOnDrop(tokio::spawn({
        let (index, stores) = (index.clone(), stores.clone());
        async move { index.follow(stores).await }
    }));
    // One memory of control planes, for reviews and for passes: kinds are watched from the first Cluster on that is looked at.
    let control_planes = Arc::new(ControlPlanes::new(
        client.clone(),
        news.triggers.clone(),
        args.control_plane_groups.clone(),
    ));
    let _admitting = AbortOnDrop(tokio::spawn({
        let (admission, stores) = (parts.admission.clone(), stores.clone());
        let control_planes = Arc::clone(&control_planes);
        // Every replica reads for reviews, whether it leads or not.
        let client = unbounded.clone();
        async move {
            // A Package that is not in memory yet is read when it is asked about.
            stores.filled_for_reviews().await;
            admission.knows(World::new(stores, control_planes, client));
        }
    }));
    if let Some((status, reviews)) = parts.status.as_ref().zip(reviews) {
        // Every replica answers, and asks who may see what.
        status.knows(stores.clone(), reviews);
    }
    let edits = news.edits.clone();
    let watching = edits.run(client.clone(), news.triggers.clone(), stores.clusters.clone());
    let _watching = AbortOnDrop(tokio::spawn(watching));
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
        _ = &mut answering.0 => Err(anyhow!("the index of hooks is not kept up to date any more, see the panic above")),
    }
}

/// What keeps a process from going on whose memory has stopped.
fn lost(stores: &Stores) -> anyhow::Error {
    let kind = stores.ended().unwrap_or("an object");
    anyhow!("the store of kind {kind} is not kept up to date any more, see the panic above")
}

/// The management cluster, as memory and as clients.
struct Management {
    /// For lists of stores, which may take long, and for the lease.
    unbounded: Client,
    client: Client,
    fence: Fence,
    leadership: Leadership,
    stores: Stores,
    control_planes: Arc<ControlPlanes>,
}

/// Waits for the lease, and reconciles while it is held.
async fn lead(
    args: &Args,
    parts: Parts,
    management: Management,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let Management {
        unbounded,
        client,
        fence,
        leadership,
        stores,
        control_planes,
    } = management;
    let releases = releases::Context::of(
        client.clone(),
        args.system_namespace.clone(),
        stores.clone(),
        &parts.news,
        parts.passes.clone(),
        parts.releases,
    );
    let News {
        triggers,
        dependents,
        sweeps,
        uncalled,
        edits,
        ..
    } = parts.news;
    // The lease is renewed from the moment it is held, so that the memory of a leader is filled before.
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = stores.synced() => {}
    }
    let mut elector = args
        .leader
        .leader_elect
        .then(|| Elector::new(unbounded, election(args), fence.clone()).showing(leadership));
    if let Some(elector) = &mut elector
        && elector.acquire(stop).await.is_none()
    {
        return Ok(());
    }

    let concurrency = args.cluster_concurrency;
    // From here on: the reconciler begins with every Cluster, and only then does what wakes one of them matter.
    let (wakes, changes) = (triggers.listen(), sweeps.listen());
    let releases_changed = releases.listen();
    edits.lead();
    let contract = Contract::new(client.clone(), args.control_plane_groups.clone());
    let remotes = Arc::new(Remotes::new(
        args.system_namespace.clone(),
        triggers.clone(),
        dependents.clone(),
        fence,
    ));
    let providers = Arc::new(providers::Context {
        client: client.clone(),
        clusters: stores.clusters.clone(),
        watches: providers::Watches::new(contract, dependents.clone()),
        dependents: dependents.clone(),
        remotes: Arc::clone(&remotes),
        configurations: parts.configurations,
        triggers: triggers.clone(),
        edits: edits.clone(),
        events: Notifier::new(client.clone()),
        sync_period: SyncPeriod::of_day(args.sync_period, clock()),
        retries: Mutex::default(),
        metrics: parts.passes.clone(),
    });
    let context = Arc::new(bootstrap::Context {
        client: client.clone(),
        dependents,
        settings: settings(args),
        stores: stores.clone(),
        control_planes,
        remotes,
        index: parts.index,
        edits,
        events: Notifier::new(client.clone()),
        metrics: parts.passes,
        slots: bootstrap::Slots::new(concurrency),
        memories: Mutex::default(),
    });
    info!("Reconciling");
    let heart = parts.health.heartbeat("reconciler", SILENT_RECONCILER);
    let reconciling = async {
        let controllers = async {
            tokio::join!(
                bootstrap::run(context, wakes, concurrency, heart, stop.clone()),
                providers::run(providers, kinds(), concurrency, stop.clone()),
                releases::run(releases, releases_changed, stop.clone()),
            )
        };
        tokio::select! {
            _ = controllers => {}
            () = retrigger::run(client.clone(), stores.clusters.clone(), uncalled) => {}
            () = sweep::run(stores.clone(), parts.news.classes, changes, triggers) => {}
            () = patience(stop) => {}
        }
    };
    Box::pin(while_leading(elector, reconciling)).await
}

/// Reconciles, and renews the lease if there is one.
async fn while_leading(
    elector: Option<Elector>,
    reconciling: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    match elector {
        None => reconciling.await,
        Some(mut elector) => {
            // Reconcilers end before the lease is handed back, so that two leaders never write. A lost lease ends the
            // process at once, for the same reason.
            let reconciled = CancellationToken::new();
            let work = async {
                reconciling.await;
                reconciled.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                renewed = elector.renew(&reconciled) => renewed?,
                () = work => {}
            }
        }
    }
    Ok(())
}

/// The controller finishes what it has begun, but a request that hangs must not keep the process.
async fn patience(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(RECONCILE_GRACE).await;
}

fn settings(args: &Args) -> Settings {
    Settings {
        system_namespace: args.system_namespace.clone(),
        sync_period: SyncPeriod::of_day(args.sync_period, clock()),
        deletion_limit: args.cluster_delete_timeout,
    }
}

/// The management cluster's client. The operator's own kubeconfig may hold anything; those of workload clusters may not.
async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let shown = path.display();
            let kubeconfig =
                Kubeconfig::read_from(path).with_context(|| format!("read --kubeconfig {shown}"))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("use --kubeconfig {shown}"))?
        }
        None => Config::incluster()
            .context("use the service account of the pod; outside a pod, set --kubeconfig")?,
    };
    // A retry inside a request would pass the fence of the lease unseen, and hide for minutes that the server is in trouble. What
    // failed is tried again by the next pass.
    config.default_retry = false;
    // Longer than any watch or list lasts: a connection on which nothing arrives any more is given up.
    config.read_timeout = Some(SILENCE);
    pool::client(config, IDLE).context("connect to the management cluster")
}

fn election(args: &Args) -> leader::Config {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    let replica = args
        .leader
        .leader_elect_identity
        .clone()
        .or_else(|| host().ok())
        .unwrap_or_default();
    leader::Config {
        namespace: args.leader.leader_elect_namespace.clone(),
        // The process id tells a restarted container from the one before it.
        identity: format!(
            "{replica}_{}_{}",
            std::process::id(),
            jiff::Timestamp::now().as_nanosecond()
        ),
        lease_duration: args.leader.leader_elect_lease_duration,
        renew_deadline: args.leader.leader_elect_renew_deadline,
        retry_period: args.leader.leader_elect_retry_period,
    }
}

/// The first signal asks to stop, the second one does not ask.
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

/// Ends a task with its owner.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
