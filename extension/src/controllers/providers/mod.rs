//! The controller of configuration kinds: what a user sets becomes the Secret that a package is installed with.
//!
//! One controller for all kinds of [`sluice_core::providers::kinds`]; a kind is a pure function there and has no code here, and so is the
//! [pass](sluice_core::reconcile::provider::Configuration) over one configuration.

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
        store::Store,
        streamed::streaming,
        values_watch::Edits,
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

/// What every reconcile shares.
pub struct Context {
    /// Client of the management cluster.
    pub client: Client,
    /// All Clusters.
    pub clusters: Store<Cluster>,
    /// Which configurations depend on what.
    pub dependents: Dependents,
    /// Connections to workload clusters.
    pub remotes: Arc<Remotes>,
    /// What configurations depend on.
    pub watches: Watches,
    /// Configurations by the reason of their condition.
    pub configurations: Configurations,
    /// Wakes the Cluster whose packages have new values.
    pub triggers: Requeues,
    /// What packages take their values from is watched.
    pub edits: Edits,
    /// Events for people.
    pub events: Notifier,
    /// How often a configuration is looked at when nothing happens.
    pub sync_period: SyncPeriod,
    /// Of the configurations of which the last pass failed.
    pub retries: Mutex<Retries<ConfigRef>>,
    /// What is counted.
    pub metrics: ReconcileMetrics,
}

/// A kind with what all kinds share.
struct OfKind {
    shared: Arc<Context>,
    kind: Kind,
    /// Name of the kind.
    name: Arc<str>,
    /// Of the configurations that have had a turn.
    uids: Mutex<Uids<ClusterRef>>,
}

impl OfKind {
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
        let of_kind = OfKind {
            shared: Arc::clone(&context),
            name: kind.resource.kind.as_str().into(),
            kind,
            uids: Mutex::default(),
        };
        run_kind(Arc::new(of_kind), concurrency, stop.clone())
    });
    futures::future::join_all(controllers).await;
}

async fn run_kind(ctx: Arc<OfKind>, concurrency: u16, stop: CancellationToken) {
    let shared = &ctx.shared;
    let wakes = shared.dependents.requeues(&ctx.name);
    let configs = Api::<Item<DynamicObject>>::all_with(streaming(shared.client.clone()), &ctx.kind.resource);
    let report = reporting(&*ctx.name, "Watching configurations", |config: &ObjectMeta, _| {
        shared
            .dependents
            .wake(&ctx.reference(ClusterRef::in_meta(config)));
    });
    let changed = |seen: &Seen<'_, DynamicObject>| {
        seen.each(|config, presence| shared.configurations.saw(&ctx.name, config, presence));
        report(seen);
    };
    let followed = Arc::new(Mutex::new(FollowedStore::of_named_kind()));
    let (store, following) = follow(
        configs,
        watcher::Config::default().streaming_lists(),
        Arc::default(),
        followed,
        changed,
    );
    let metrics = &shared.metrics.controllers.provider.queue;
    let queue = work_queue::run(wakes, concurrency, &stop, metrics, |name| {
        let (ctx, store) = (Arc::clone(&ctx), store.clone());
        async move { turn(&ctx, &store, name).await }
    });
    // It is followed for as long as passes run.
    tokio::select! {
        () = queue => {}
        () = following => {}
    }
}

/// A configuration has its turn. Returns when it has the next one, if nothing wakes it before.
async fn turn(ctx: &OfKind, store: &Store<DynamicObject>, name: ClusterRef) -> Option<Duration> {
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

/// When to try again after a pass that has failed.
fn failed(config: &DynamicObject, error: &Error, ctx: &OfKind) -> Duration {
    let again =
        lock(&ctx.shared.retries).failed(ctx.reference(ClusterRef::of(config)), error.is_conflict(), now());
    if let Again::Later(_) = again {
        let (kind, name) = (&ctx.name, config.name_any());
        let namespace = config.namespace().unwrap_or_default();
        warn!(%kind, namespace, name, error = %error_chain(error), "Reconciling a configuration");
    }
    again.wait()
}

/// One pass over a configuration. Whatever happens in it, others get their turn.
async fn reconcile(config: &Arc<DynamicObject>, ctx: &OfKind) -> Result<Done, Error> {
    let outcome = isolated(Box::pin(execute(config, ctx))).await;
    if outcome.is_ok() {
        lock(&ctx.shared.retries).forget(&ctx.reference(ClusterRef::of(config.as_ref())));
    }
    outcome
}

async fn execute(config: &Arc<DynamicObject>, ctx: &OfKind) -> Result<Done, Error> {
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

/// Whether the Cluster that owns a configuration is connected. One without an owner is given it by its first pass.
fn is_hot(config: &DynamicObject, reference: &ConfigRef, shared: &Context) -> bool {
    config.owner_references().iter().any(|owner| {
        let cluster = Source::cluster(reference.object.namespace(), &owner.name);
        // Before that is asked, so that no connection is opened between.
        shared.dependents.add(reference, &cluster);
        shared.remotes.is_open(&owner.uid)
    })
}

/// Publishes what is wrong with a configuration.
async fn publish(ctx: &OfKind, config: &DynamicObject, effects: Effects) {
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

/// What one pass over a configuration is carried out with.
struct Host<'a> {
    ctx: &'a OfKind,
    config: &'a DynamicObject,
    reference: &'a ConfigRef,
    /// The Cluster that something was written for, if it was.
    wrote_for: Mutex<Option<ClusterRef>>,
}

/// However the pass ends, the Cluster is looked at: the write may have been made, and an upgrade may wait for nothing else.
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
            Server::Workload => Err(Failure::other(server, "a configuration asks no workload")),
        }
    }

    async fn answer(&self, ask: &Read) -> Result<ReadResult, Failure> {
        let shared = &self.ctx.shared;
        if let Some(source) = ask.source() {
            // Before it is read, so that no change falls between.
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

    /// The event is there where the condition is seen.
    async fn writing(&self, effects: Effects) {
        let cluster = effects.cluster.as_ref();
        *lock(&self.wrote_for) = cluster.map(|(namespace, name)| ClusterRef::new(namespace, name));
        publish(self.ctx, self.config, effects).await;
    }

    fn wrote(&self, write: &Write, written: &Object) {
        self.ctx.shared.edits.wrote(write, written);
    }
}

#[cfg(test)]
mod tests;
