//! Gate controller: judges the UpgradeGates of each Cluster, and writes its ClusterUpgrade, from which every replica answers hooks.
//!
//! It has a queue, limits and outcomes of its own. A slow gated Cluster therefore takes no slot of the Cluster controller, which installs
//! packages, and no Cluster waits for both.

mod clients;
mod fan_out;
mod local_states;
mod reads;
mod status;
mod watches;

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use futures::{Stream, StreamExt as _, stream};
use kube::{Client, Resource as _, ResourceExt as _};
use sluice_core::{
    cache::stores::{Found, GateKinds, Stored, Stores as _},
    error_chain::error_chain,
    events::Notice,
    gates::{
        facts::{GateFacts, GateSettings},
        reconcile::{GateEffects, GateLocalState, close},
    },
    limits::Again,
    packages::build::FIELD_MANAGER,
    protocol::Done,
    reasons::Hold,
    reconcile::{
        cluster::Close,
        outcomes::{SLOW, UNSEEN},
    },
};
use sluice_crds::{foreign::Cluster, lifecycle::ClusterUpgrade};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(crate) use clients::Clients;
pub(crate) use local_states::LocalStates;
pub use status::{GateStatuses, run as run_statuses};

use crate::{
    cache::{control_plane::ControlPlanes, event_handlers::GateChange, rollbacks::Rollbacks, stores::Stores},
    clock::{clock, now},
    controllers::{
        concurrency::{Limiter, Ran},
        events::Notifier,
        executor::{self, Error, again, counted, isolated, writes},
    },
    lock::lock,
    queue::{
        requeues::{ClusterRef, Requeues},
        work_queue::{self, Feed},
    },
    server::health::Heartbeat,
    telemetry::metrics::ReconcileMetrics,
};

/// Name without a namespace, which no Cluster has.
const PROBE: &str = "probe";

/// Interval of the probe. It shows that the queue advances without events, and drops the state of deleted Clusters.
const PROBE_PERIOD: Duration = Duration::from_secs(30);

/// Requeue delay of a Cluster that keeps its permit to contact the workload cluster: objects are read once a second.
const SOON: Duration = Duration::from_secs(1);

/// State that all reconciles share.
pub struct Context {
    /// Client of the management cluster.
    pub(crate) client: Client,
    /// Settings from the flags.
    pub(crate) settings: GateSettings,
    /// Caches of the management cluster.
    pub(crate) stores: Stores,
    /// Control planes of every kind in use.
    pub(crate) control_planes: Arc<ControlPlanes>,
    /// Clients of workload clusters.
    pub(crate) clients: Clients,
    /// Requeues of Clusters.
    pub(crate) triggers: Requeues,
    /// Requeues of the statuses of UpgradeGates, by namespace.
    pub(crate) statuses: Feed<String>,
    /// Rollbacks of the API server, which end the local states.
    pub(crate) rollbacks: Rollbacks,
    /// Publisher of events.
    pub(crate) events: Notifier,
    /// Counters of reconciles.
    pub(crate) metrics: ReconcileMetrics,
    /// Concurrency limiter of slow and failing Clusters.
    pub(crate) limiter: Limiter,
    /// Local state by Cluster.
    pub(crate) local_states: Mutex<LocalStates<GateLocalState>>,
}

impl Context {
    fn local_states(&self) -> MutexGuard<'_, LocalStates<GateLocalState>> {
        lock(&self.local_states)
    }

    /// Drops the state of deleted Clusters, and unused clients.
    fn forget_gone(&self) {
        let clusters = &self.stores.clusters;
        let is_there = |namespace: &str, name: &str| clusters.get(Some(namespace), name).is_some();
        self.control_planes.forget_gone(is_there);
        self.clients.forget_unused(now());
        let gone = clusters.missing(self.local_states().uids());
        for uid in gone {
            self.forget(&uid);
        }
    }

    /// Drops the state of the Cluster with this UID.
    fn forget(&self, uid: &str) {
        self.limiter.outcomes().forget(uid);
        self.clients.forget(uid);
        self.clients.heard(uid, None);
        if self.local_states().forget(uid) {
            self.events.forget(uid);
        }
    }

    fn upgrade(&self, cluster: &ClusterRef) -> Found<ClusterUpgrade> {
        self.stores.found(Some(cluster.namespace()), cluster.name())
    }

    /// Whether the Cluster has no ClusterUpgrade, and no UpgradeGate of its namespace could select it.
    fn is_ungated(&self, cluster: &ClusterRef) -> bool {
        matches!(self.upgrade(cluster), Ok(None)) && self.stores.gates_of(cluster.namespace()).is_empty()
    }
}

/// Reconciles until `stop`, starting with all Clusters, as many at once as the limiter permits. `changes` are those of UpgradeGates. All
/// Clusters are reconciled again once the other stores are filled. `heart` beats after each reconcile.
pub async fn run(
    ctx: Arc<Context>,
    requeues: impl Stream<Item = ClusterRef>,
    changes: impl Stream<Item = GateChange> + Unpin,
    heart: Heartbeat,
    stop: CancellationToken,
) {
    let probes = stream::unfold(tokio::time::interval(PROBE_PERIOD), |mut tick| async move {
        tick.tick().await;
        Some((ClusterRef::new("", PROBE), tick))
    });
    let all = stream::iter(ctx.stores.clusters.names());
    let others = stream::select(probes, stream::select(ctx.limiter.granted(), once_filled(&ctx)));
    let requeues = stream::select(all.chain(requeues), others);
    let heart = Arc::new(heart);
    let (metrics, workers) = (&ctx.metrics.controllers.cluster_upgrade, ctx.limiter.workers());
    metrics.started(workers.into());
    let queue = work_queue::run(requeues, workers, &stop, &metrics.queue, |cluster| {
        let (ctx, heart) = (Arc::clone(&ctx), Arc::clone(&heart));
        async move {
            let again = turn(&cluster, &ctx).await;
            heart.beat();
            again
        }
    });
    tokio::select! {
        () = queue => {}
        () = fan_out::run(&ctx, changes) => {}
    }
}

/// Returns all Clusters once the unfilled stores are filled. Gated Clusters are held until then.
fn once_filled(ctx: &Arc<Context>) -> impl Stream<Item = ClusterRef> + use<> {
    let unlisted = ctx.stores.unlisted().map(|_| Arc::clone(ctx));
    let filled = stream::iter(unlisted).then(|ctx| async move {
        ctx.stores.workers_listed().await;
        stream::iter(ctx.stores.clusters.names())
    });
    filled.flatten()
}

/// Reconciles a queued Cluster. Returns the delay until it is requeued without an event.
async fn turn(reference: &ClusterRef, ctx: &Context) -> Option<Duration> {
    let (namespace, name) = (reference.namespace(), reference.name());
    let Some(cluster) = ctx.stores.clusters.get(Some(namespace), name) else {
        ctx.limiter.forget(reference);
        // Labels may reference any Cluster of a namespace, also a missing one.
        if namespace.is_empty() && name == PROBE {
            ctx.forget_gone();
        }
        return None;
    };
    let uid = cluster.uid().unwrap_or_default();
    // Before the stores are filled, nothing is known of gates.
    if !matches!(ctx.stores.gate_kinds(), GateKinds::Listed) {
        ctx.clients.rests(&uid, None);
        return None;
    }
    if ctx.is_ungated(reference) {
        ctx.limiter.forget(reference);
        ctx.forget(&uid);
        return None;
    }
    let reconcile = async { reconcile(&cluster, reference, ctx).await.map(again) };
    let again = match counted(&ctx.metrics.controllers.cluster_upgrade, reconcile).await {
        Ok(again) => again,
        Err(error) => {
            // Its backoff must not depend on events.
            ctx.clients.unwatch(&uid);
            Some(failed(&cluster, &error, ctx))
        }
    };
    ctx.clients.rests(&uid, again);
    again
}

/// Returns the backoff after a failed reconcile.
fn failed(cluster: &Cluster, error: &Error, ctx: &Context) -> Duration {
    let uid = cluster.uid().unwrap_or_default();
    let again = ctx.limiter.outcomes().again(&uid, error, now());
    if let Again::Later(_) = again {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        warn!(namespace, name, error = %error_chain(error), "Failed to reconcile gates of Cluster");
    }
    again.wait()
}

/// Reconciles a Cluster under timeouts and limits, isolated from other Clusters.
async fn reconcile(cluster: &Arc<Cluster>, reference: &ClusterRef, ctx: &Context) -> Result<Done, Error> {
    let uid = cluster.uid().unwrap_or_default();
    let whole = Box::pin(execute(cluster, ctx, &uid));
    match ctx.limiter.run(reference, &uid, whole).await {
        Ran::Ended(outcome) => outcome,
        Ran::Waits => Ok(waits(ctx, cluster, &uid).await),
        Ran::Stopped => Ok(Done::AwaitChange),
        Ran::Canceled => {
            ctx.metrics.cut_off();
            let (namespace, name) = (reference.namespace(), reference.name());
            info!(
                namespace,
                name, "Canceled slow reconcile of gates: limit for slow Clusters reached"
            );
            Ok(waits(ctx, cluster, &uid).await)
        }
    }
}

/// Handles a Cluster that waits for a permit, which requeues it. Its record may be stale by then, so its gates are closed.
async fn waits(ctx: &Context, cluster: &Cluster, uid: &str) -> Done {
    ctx.clients.unwatch(uid);
    let hold = match ctx.limiter.outcomes().waits(uid, now()) {
        Ok(left) => return Done::RequeueAfter(left),
        Err(hold) => hold,
    };
    // It has no permit for slow Clusters, so the closing must be fast, too.
    let closed = timeout(SLOW, close_gates(ctx, cluster, &hold)).await;
    if closed == Ok(true) {
        return Done::RequeueAfter(UNSEEN);
    }
    Done::RequeueAfter(ctx.limiter.outcomes().failed(uid, now()))
}

/// Closes the gates of a Cluster whose last reconcile did not finish. Returns whether it succeeded.
async fn close_gates(ctx: &Context, cluster: &Cluster, hold: &Hold) -> bool {
    let metrics = &ctx.metrics.controllers.cluster_upgrade;
    let closed = isolated(metrics, Box::pin(closed(ctx, cluster, hold))).await;
    if let Err(error) = &closed {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        info!(namespace, name, error = %error_chain(error), "Failed to close gates");
    }
    closed.is_ok()
}

async fn closed(ctx: &Context, cluster: &Cluster, hold: &Hold) -> Result<(), Error> {
    let uid = cluster.uid().unwrap_or_default();
    let upgrade = ctx.upgrade(&ClusterRef::of(cluster)).ok().flatten();
    let mut late = None;
    let written = match close(upgrade.as_deref(), &uid, hold, clock().now) {
        Close::NoRecord | Close::Recorded => Ok(()),
        Close::Write(write, event) => {
            let written = writes::make(&ctx.client, FIELD_MANAGER, &write).await;
            written.map(|_| {
                late = event;
            })
        }
    };
    let cluster = cluster.object_ref(&());
    ctx.events.publish(&cluster, Notice::of_hold(hold)).await;
    ctx.events
        .publish(&cluster, late.as_ref().and_then(Notice::of))
        .await;
    written.map_err(Error::Refused)
}

/// Runs a reconcile and updates the outcomes, its events and its gates.
async fn execute(cluster: &Arc<Cluster>, ctx: &Context, uid: &str) -> Result<Done, Error> {
    let began = now();
    let metrics = &ctx.metrics.controllers.cluster_upgrade;
    let outcome = isolated(metrics, Box::pin(reconcile_once(cluster, ctx))).await;
    let ended = outcome.as_ref().map(drop);
    let hold = ctx.limiter.outcomes().ended(uid, ended, began, now());
    if let Some(hold) = hold {
        if outcome.as_ref().is_err_and(Error::is_conflict) {
            // Other clients write as often, or the cache has lost the last write.
            ctx.rollbacks.lost_events(&format!(
                "writes for Cluster {} are refused",
                ClusterRef::of(cluster.as_ref())
            ));
        }
        // What it has proven may not hold any more.
        close_gates(ctx, cluster, &hold).await;
    }
    outcome
}

pub(crate) async fn reconcile_once(cluster: &Arc<Cluster>, ctx: &Context) -> Result<Done, Error> {
    let reference = ClusterRef::of(cluster.as_ref());
    let control_plane = |named: &_| ctx.control_planes.get(&reference, named);
    let Some(facts) = GateFacts::of(cluster, &ctx.stores, &ctx.settings, control_plane) else {
        // While the kinds are not listed, the Cluster may still be gated.
        if matches!(ctx.stores.gate_kinds(), GateKinds::Listed) {
            ctx.limiter.forget(&reference);
            ctx.forget(&cluster.uid().unwrap_or_default());
        }
        return Ok(Done::AwaitChange);
    };
    let (uid, rollbacks) = (&facts.owner.uid, ctx.rollbacks.count());
    let before = ctx.local_states().begin(uid, rollbacks);
    let host = reads::Host {
        ctx,
        facts: &facts,
        rollbacks,
        workload: OnceLock::new(),
        permit: OnceLock::new(),
    };
    let (outcome, mut effects) = executor::run(&host, &facts, &before).await;
    if host.is_deferred() {
        // The permit requeues it, and the drift check stays due.
        return Ok(Done::RequeueAfter(PROBE_PERIOD));
    }
    let is_soon = matches!(outcome, Ok(Done::RequeueAfter(time)) if time <= SOON);
    if !host.needs_permit() && !is_soon {
        // Others wait for it.
        drop(ctx.limiter.granted_drift_check(&reference));
    }
    let (watched, at_rest) = (mem::take(&mut effects.watched), effects.at_rest);
    apply(ctx, &facts, rollbacks, effects).await;
    let done = outcome?;
    ctx.clients.watch(uid, &reference, &watched, &ctx.triggers);
    if at_rest {
        ctx.clients.forget(uid);
    }
    if done == Done::Forget {
        ctx.forget(uid);
    }
    Ok(done)
}

/// Applies the effects of a reconcile that began after this number of rollbacks.
async fn apply(ctx: &Context, facts: &GateFacts, rollbacks: u64, effects: GateEffects) {
    // A reconcile that began before the last restart of the watches compares with an older cache.
    if rollbacks == ctx.rollbacks.count() {
        if let Some(object) = &effects.rolled_back {
            ctx.rollbacks.saw_earlier(object);
        }
        if let Some(difference) = &effects.outdated {
            ctx.rollbacks.lost_events(difference);
        }
    }
    ctx.local_states()
        .keep(&facts.owner.uid, rollbacks, effects.local);
    for count in &effects.counts {
        ctx.metrics.upgrades.count_gated(count);
    }
    if !effects.status.is_empty() {
        ctx.statuses.send(facts.owner.namespace.clone());
    }
    let cluster = facts.cluster.object_ref(&());
    for event in &effects.events {
        ctx.events.publish(&cluster, Notice::of(event)).await;
    }
}

#[cfg(test)]
mod tests;
