//! Controller of configuration kinds: it builds the values Secret of a package from a user's configuration.
//!
//! One controller serves all kinds of [`sluice_core::providers::kinds`]. A kind is a pure function there and has no code here. The same
//! holds for the [reconcile](sluice_core::reconcile::provider::Configuration) of a configuration.

mod metrics;
mod watches;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{
    Api, Client, Resource as _, ResourceExt,
    core::{DynamicObject, ObjectMeta},
    runtime::watcher,
};
use sluice_core::{
    cache::FollowedStore,
    decode::Item,
    error_chain::error_chain,
    events::{Notice, Uids},
    limits::{Again, Retries},
    protocol::{Done, Failure, Object, Read, ReadResult, Server, Write},
    providers::{Kind, Source},
    reconcile::provider::{Configuration, Effects},
    schedule::SyncPeriod,
    value_kinds::ConfigRef,
};
use sluice_crds::foreign::Cluster;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use metrics::Configurations;
pub use watches::Watches;

use crate::{
    cache::{
        rollbacks::Rollbacks,
        store::Store,
        streamed::streaming,
        values_watch::ValuesWatches,
        watch::{Seen, follow, reporting},
    },
    clock::now,
    controllers::{
        events::Notifier,
        executor::{self, Error, again, counted, isolated},
    },
    lock::lock,
    queue::{
        dependents::Dependents,
        requeues::{ClusterRef, Requeues},
        work_queue,
    },
    telemetry::metrics::ReconcileMetrics,
    workload::Remotes,
};

/// Field manager of everything that this controller writes.
const FIELD_MANAGER: &str = "sluice-providers";

/// State that all reconciles share.
pub struct Context {
    /// Client of the management cluster.
    pub client: Client,
    /// All Clusters.
    pub clusters: Store<Cluster>,
    /// Dependencies of configurations.
    pub dependents: Dependents,
    /// Connections to workload clusters.
    pub remotes: Arc<Remotes>,
    /// Watches of the sources of configurations.
    pub watches: Watches,
    /// Configurations by the reason of their condition.
    pub configurations: Configurations,
    /// Requeues of Clusters with new values.
    pub triggers: Requeues,
    /// Watch of values sources.
    pub values_watches: ValuesWatches,
    /// Rollbacks of the API server, which restart the watches of configurations.
    pub rollbacks: Rollbacks,
    /// Publisher of events.
    pub events: Notifier,
    /// Resync interval of a configuration.
    pub sync_period: SyncPeriod,
    /// Backoff of configurations whose last reconcile failed.
    pub retries: Mutex<Retries<ConfigRef>>,
    /// Counters of reconciles.
    pub metrics: ReconcileMetrics,
}

/// One kind with the shared state.
struct KindContext {
    shared: Arc<Context>,
    kind: Kind,
    /// Name of the kind.
    name: Arc<str>,
    /// UIDs of reconciled configurations.
    uids: Mutex<Uids<ClusterRef>>,
}

impl KindContext {
    fn reference(&self, object: ClusterRef) -> ConfigRef {
        ConfigRef {
            kind: Arc::clone(&self.name),
            object,
        }
    }
}

/// Reconciles every kind of `kinds` until `stop`.
pub async fn run(context: Arc<Context>, kinds: Vec<Kind>, concurrency: u16, stop: CancellationToken) {
    // Each kind has a queue of its own.
    let metrics = &context.metrics.controllers.provider;
    metrics.started(kinds.len() * usize::from(concurrency));
    let controllers = kinds.into_iter().map(|kind| {
        let of_kind = KindContext {
            shared: Arc::clone(&context),
            name: kind.resource.kind.as_str().into(),
            kind,
            uids: Mutex::default(),
        };
        run_kind(Arc::new(of_kind), concurrency, stop.clone())
    });
    futures::future::join_all(controllers).await;
}

async fn run_kind(ctx: Arc<KindContext>, concurrency: u16, stop: CancellationToken) {
    let shared = &ctx.shared;
    let requeues = shared.dependents.requeues(&ctx.name);
    let client = streaming(shared.client.clone()).into_client();
    let configs = Api::<Item<DynamicObject>>::all_with(client, &ctx.kind.resource);
    let report = reporting(
        &*ctx.name,
        "Failed to watch configurations",
        |config: &ObjectMeta, _| {
            shared
                .dependents
                .enqueue(&ctx.reference(ClusterRef::in_meta(config)));
        },
    );
    let changed = |seen: &Seen<'_, DynamicObject>| {
        seen.each(|config, presence| shared.configurations.saw(&ctx.name, config, presence));
        report(seen);
    };
    let (store, following) = follow(
        configs,
        watcher::Config::default().streaming_lists(),
        FollowedStore::of_named_kind(),
        shared.rollbacks.restarts(),
        changed,
    );
    let metrics = &shared.metrics.controllers.provider.queue;
    let queue = work_queue::run(requeues, concurrency, &stop, metrics, |name| {
        let (ctx, store) = (Arc::clone(&ctx), store.clone());
        async move { turn(&ctx, &store, name).await }
    });
    // The store is updated for as long as reconciles run.
    tokio::select! {
        () = queue => {}
        () = following => {}
    }
}

/// Reconciles a queued configuration. Returns the delay until it is requeued without an event.
async fn turn(ctx: &KindContext, store: &Store<DynamicObject>, name: ClusterRef) -> Option<Duration> {
    let found = store.get(Some(name.namespace()), name.name());
    let uid = found.as_ref().and_then(|config| config.uid());
    if let Some(gone) = lock(&ctx.uids).saw(&name, uid.as_deref()) {
        ctx.shared.events.forget(&gone);
    }
    let Some(config) = found else {
        let gone = ctx.reference(name);
        ctx.shared.dependents.set(&gone, &[]);
        lock(&ctx.shared.retries).forget(&gone);
        return None;
    };
    let reconcile = async { reconcile(&config, ctx).await.map(again) };
    match counted(&ctx.shared.metrics.controllers.provider, reconcile).await {
        Ok(again) => again,
        Err(error) => Some(failed(&config, &error, ctx)),
    }
}

/// Returns the backoff after a failed reconcile.
fn failed(config: &DynamicObject, error: &Error, ctx: &KindContext) -> Duration {
    let again =
        lock(&ctx.shared.retries).failed(ctx.reference(ClusterRef::of(config)), error.is_conflict(), now());
    if let Again::Later(_) = again {
        let (kind, name) = (&ctx.name, config.name_any());
        let namespace = config.namespace().unwrap_or_default();
        warn!(%kind, namespace, name, error = %error_chain(error), "Failed to reconcile configuration");
    }
    again.wait()
}

/// Reconciles a configuration, isolated from other configurations.
async fn reconcile(config: &Arc<DynamicObject>, ctx: &KindContext) -> Result<Done, Error> {
    let outcome = isolated(
        &ctx.shared.metrics.controllers.provider,
        Box::pin(execute(config, ctx)),
    )
    .await;
    if outcome.is_ok() {
        lock(&ctx.shared.retries).forget(&ctx.reference(ClusterRef::of(config.as_ref())));
    }
    outcome
}

async fn execute(config: &Arc<DynamicObject>, ctx: &KindContext) -> Result<Done, Error> {
    let (shared, reference) = (&ctx.shared, ctx.reference(ClusterRef::of(config.as_ref())));
    let configuration = Configuration {
        kind: ctx.kind.clone(),
        object: Arc::clone(config),
        sync_period: shared.sync_period,
        is_hot: is_hot(config, &reference, shared),
    };
    let host = Host {
        ctx,
        config,
        reference: &reference,
        wrote_for: Mutex::default(),
    };
    let (outcome, effects) = executor::run(&host, &configuration, &()).await;
    shared.dependents.set(&reference, &effects.sources);
    publish(ctx, config, effects).await;
    outcome
}

/// Returns whether the Cluster that owns a configuration is connected. The first reconcile sets a missing owner.
fn is_hot(config: &DynamicObject, reference: &ConfigRef, shared: &Context) -> bool {
    config.owner_references().iter().any(|owner| {
        let cluster = Source::cluster(reference.object.namespace(), &owner.name);
        // Added before the check, so that no new connection is missed.
        shared.dependents.add(reference, &cluster);
        shared.remotes.is_open(&owner.uid)
    })
}

/// Publishes the events of a configuration.
async fn publish(ctx: &KindContext, config: &DynamicObject, effects: Effects) {
    let events = &ctx.shared.events;
    match effects.problem {
        Some(Some(problem)) => {
            let object = config.object_ref(&ctx.kind.resource);
            events.publish(&object, Some(Notice::of_problem(&problem))).await;
        }
        Some(None) => events.forget(&config.uid().unwrap_or_default()),
        None => {}
    }
}

/// Environment of one reconcile of a configuration.
struct Host<'a> {
    ctx: &'a KindContext,
    config: &'a DynamicObject,
    reference: &'a ConfigRef,
    /// Cluster of the written values, if any.
    wrote_for: Mutex<Option<ClusterRef>>,
}

/// Requeues the Cluster however the reconcile ends: the write may have succeeded, and an upgrade may wait for it.
impl Drop for Host<'_> {
    fn drop(&mut self) {
        if let Some(cluster) = lock(&self.wrote_for).take() {
            self.ctx.shared.triggers.enqueue_with_reads(cluster);
        }
    }
}

impl executor::Host<Configuration> for Host<'_> {
    const MANAGER: &'static str = FIELD_MANAGER;

    fn subject(&self) -> (&str, &str) {
        let object = &self.reference.object;
        (object.namespace(), object.name())
    }

    fn client(&self, server: Server) -> Result<&Client, Failure> {
        match server {
            Server::Management => Ok(&self.ctx.shared.client),
            Server::Workload => Err(Failure::other(
                server,
                "a configuration reconcile reads no workload cluster",
            )),
        }
    }

    async fn answer(&self, ask: &Read) -> Result<ReadResult, Failure> {
        let shared = &self.ctx.shared;
        if let Some(source) = ask.source() {
            // Added before the read, so that no change is lost in between.
            shared.dependents.add(self.reference, &source);
        }
        Ok(match ask {
            Read::Cluster(namespace, name) => {
                let found = shared.clusters.found(Some(namespace), name);
                let found = found.map_err(|object| Failure::undecodable(Server::Management, object))?;
                found.map_or(ReadResult::Absent, ReadResult::Cluster)
            }
            Read::Source(source) => shared.watches.read(source).await,
            _ => ReadResult::Absent,
        })
    }

    /// Publishes the event before the condition is visible.
    async fn writing(&self, effects: Effects) {
        let cluster = effects.cluster.as_ref();
        *lock(&self.wrote_for) = cluster.map(|(namespace, name)| ClusterRef::new(namespace, name));
        publish(self.ctx, self.config, effects).await;
    }

    fn wrote(&self, write: &Write, written: &Object) {
        self.ctx.shared.values_watches.wrote(write, written);
    }
}

#[cfg(test)]
mod tests;
