//! Cluster controller: packages of a Cluster follow its release, and the record shows their progress.

mod probes;
mod reads;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use kube::{Client, Resource as _, ResourceExt};
use sluice_core::{
    cache::stores::{Stored as _, Stores as _},
    error_chain::error_chain,
    events::{Event, Notice},
    limits::Again,
    packages::build::FIELD_MANAGER,
    reasons::Hold,
    reconcile::{
        cluster::{Close, Count, Done, Effects, Facts, LocalStates, Settings, close},
        outcomes::{SLOW, UNSEEN},
    },
};
use sluice_crds::{foreign::Cluster, run::ClusterBootstrap};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(crate) use self::probes::Probes;
use crate::{
    cache::{
        control_plane::ControlPlanes, management_uid::ManagementUid, rollbacks::Rollbacks, stores::Stores,
        values_watch::ValuesWatches,
    },
    clock::{clock, now},
    controllers::{
        concurrency::{Limiter, Ran},
        events::Notifier,
        executor::{self, Error, again, counted, isolated, writes},
        gate_in_force::GatesInForce,
    },
    hooks::Index,
    lock::lock,
    queue::{
        dependents::Dependents,
        requeues::{ClusterRef, Requeue},
        work_queue,
    },
    server::health::Heartbeat,
    telemetry::metrics::ReconcileMetrics,
    workload::Remotes,
};

/// Name without a namespace, which no Cluster has.
const PROBE: &str = "probe";
/// Interval of the probe. It shows that the queue advances without events, and drops the local state of deleted Clusters.
const PROBE_PERIOD: Duration = Duration::from_secs(30);

/// Time that the first reconciles wait for the UID of the management cluster.
const FIRST_UID: Duration = Duration::from_secs(10);

/// State that all reconciles share.
pub struct Context {
    /// Client of the management cluster.
    pub(crate) client: Client,
    /// Settings from the flags.
    pub(crate) settings: Settings,
    /// Caches of the management cluster.
    pub(crate) stores: Stores,
    /// Control planes of every kind in use.
    pub(crate) control_planes: Arc<ControlPlanes>,
    /// Connections to workload clusters.
    pub(crate) remotes: Arc<Remotes>,
    /// Requeues of configurations whose values are missing.
    pub(crate) dependents: Dependents,
    /// Index that answers hook calls. Holds of Clusters without a record are noted there.
    pub(crate) index: Index,
    /// Watch of values sources.
    pub(crate) values_watches: ValuesWatches,
    /// Rollbacks of the API server, which end the local states.
    pub(crate) rollbacks: Rollbacks,
    /// UID of the management cluster.
    pub(crate) management_uid: ManagementUid,
    /// Reports of gates that are not in force.
    pub(crate) gates_in_force: GatesInForce,
    /// Publisher of events.
    pub(crate) events: Notifier,
    /// Counters of reconciles.
    pub(crate) metrics: ReconcileMetrics,
    /// Concurrency limiter of slow and failing Clusters.
    pub(crate) limiter: Limiter,
    /// Running probes of held Clusters.
    pub(crate) probes: Probes,
    /// Local state by Cluster.
    pub(crate) local_states: Mutex<LocalStates>,
}

impl Context {
    fn local_states(&self) -> MutexGuard<'_, LocalStates> {
        lock(&self.local_states)
    }

    /// Drops the state of deleted Clusters. The last reconcile of one may have run before its deletion ended.
    fn forget_gone(&self) {
        let (clusters, mut local_states) = (&self.stores.clusters, self.local_states());
        let is_there = |namespace: &str, name: &str| clusters.get(Some(namespace), name).is_some();
        local_states.forget_requeues(is_there);
        self.control_planes.forget_gone(is_there);
        let gone = clusters.missing(local_states.managed());
        drop(local_states);
        for uid in gone {
            self.forget(&uid);
        }
    }

    /// Drops the state of the Cluster with this UID. Returns whether it was managed until now.
    fn forget(&self, uid: &str) -> bool {
        self.limiter.outcomes().forget(uid);
        self.remotes.close(uid);
        self.index.forget(uid);
        self.events.forget(uid);
        self.probes.forget(uid);
        self.local_states().forget(uid)
    }
}

/// Reconciles until `stop`, starting with all Clusters, as many at once as the limiter permits. The stores must know which Clusters are managed.
/// All Clusters are reconciled again once the other stores are filled. `heart` beats after each reconcile.
pub async fn run(
    ctx: Arc<Context>,
    triggers: impl Stream<Item = Requeue>,
    heart: Heartbeat,
    stop: CancellationToken,
) {
    // Without the UID, management clusters are held.
    let _known = timeout(FIRST_UID, ctx.management_uid.known()).await;
    let probes = stream::unfold(tokio::time::interval(PROBE_PERIOD), |mut tick| async move {
        tick.tick().await;
        Some((ClusterRef::new("", PROBE), tick))
    });
    let states = Arc::clone(&ctx);
    let triggers = triggers.map(move |Requeue { cluster, needs_read }| {
        if needs_read {
            states
                .local_states()
                .note_requeue(cluster.namespace(), cluster.name());
        }
        cluster
    });
    let all = stream::iter(ctx.stores.clusters.names());
    let late = stream::select(once_filled(&ctx), once_told_apart(&ctx));
    let ended = stream::select(ctx.limiter.granted(), ctx.probes.ended());
    let others = stream::select(probes, stream::select(ended, late));
    let requeues = stream::select(all.chain(triggers), others);
    let heart = Arc::new(heart);
    let (metrics, workers) = (&ctx.metrics.controllers.cluster, ctx.limiter.workers());
    metrics.started(workers.into());
    work_queue::run(requeues, workers, &stop, &metrics.queue, |cluster| {
        let (ctx, heart) = (Arc::clone(&ctx), Arc::clone(&heart));
        async move {
            let again = turn(&cluster, &ctx).await;
            heart.beat();
            again
        }
    })
    .await;
}

/// Returns all Clusters once the unfilled stores are filled. Managed Clusters are held until then.
fn once_filled(ctx: &Arc<Context>) -> impl Stream<Item = ClusterRef> + use<> {
    let unlisted = ctx.stores.unlisted().map(|_| Arc::clone(ctx));
    let filled = stream::iter(unlisted).then(|ctx| async move {
        ctx.stores.synced().await;
        stream::iter(ctx.stores.clusters.names())
    });
    filled.flatten()
}

/// Returns all Clusters once the UID of the management cluster is known, if it is not yet. Some are held until then.
fn once_told_apart(ctx: &Arc<Context>) -> impl Stream<Item = ClusterRef> + use<> {
    let unknown = ctx.management_uid.get().is_none().then(|| Arc::clone(ctx));
    let known = stream::iter(unknown).then(|ctx| async move {
        ctx.management_uid.known().await;
        stream::iter(ctx.stores.clusters.names())
    });
    known.flatten()
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
    let reconcile = async { reconcile(&cluster, ctx).await.map(again) };
    match counted(&ctx.metrics.controllers.cluster, reconcile).await {
        Ok(again) => again,
        Err(error) => Some(failed(&cluster, &error, ctx)),
    }
}

/// Returns the backoff after a failed reconcile.
fn failed(cluster: &Cluster, error: &Error, ctx: &Context) -> Duration {
    let uid = cluster.uid().unwrap_or_default();
    let again = ctx.limiter.outcomes().again(&uid, error, now());
    if let Again::Later(_) = again {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        warn!(namespace, name, error = %error_chain(error), "Failed to reconcile Cluster");
    }
    again.wait()
}

/// Reconciles a Cluster under timeouts and limits, isolated from other Clusters.
async fn reconcile(cluster: &Arc<Cluster>, ctx: &Context) -> Result<Done, Error> {
    let (reference, uid) = (
        ClusterRef::of(cluster.as_ref()),
        cluster.uid().unwrap_or_default(),
    );
    let whole = Box::pin(execute(cluster, ctx, &uid));
    match ctx.limiter.run(&reference, &uid, whole).await {
        Ran::Ended(outcome) => outcome,
        Ran::Waits => Ok(waits(ctx, cluster, &uid).await),
        Ran::Stopped => Ok(Done::AwaitChange),
        Ran::Canceled => {
            ctx.metrics.cut_off();
            let (namespace, name) = (reference.namespace(), reference.name());
            info!(
                namespace,
                name, "Canceled slow reconcile: limit for slow Clusters reached"
            );
            Ok(waits(ctx, cluster, &uid).await)
        }
    }
}

/// Handles a Cluster that waits for a permit, which requeues it. A canceled reconcile may have made writes that the record lacks, so its
/// gates are closed.
async fn waits(ctx: &Context, cluster: &Cluster, uid: &str) -> Done {
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
    let closed = isolated(
        &ctx.metrics.controllers.cluster,
        Box::pin(closed(ctx, cluster, hold)),
    )
    .await;
    if let Err(error) = &closed {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        info!(namespace, name, error = %error_chain(error), "Failed to close gates");
    }
    closed.is_ok()
}

async fn closed(ctx: &Context, cluster: &Cluster, hold: &Hold) -> Result<(), Error> {
    let uid = cluster.uid().unwrap_or_default();
    let bootstrap: Option<Arc<ClusterBootstrap>> = ctx
        .stores
        .get(cluster.namespace().as_deref(), &cluster.name_any());
    let mut late = None;
    let written = match close(bootstrap.as_deref(), &uid, hold, clock().now) {
        Close::NoRecord => {
            ctx.index.note(&ClusterRef::of(cluster), &uid, Some(hold.clone()));
            Ok(())
        }
        Close::Recorded => Ok(()),
        Close::Write(write, event) => {
            let written = writes::make(&ctx.client, FIELD_MANAGER, &write).await;
            written.map(|_| {
                late = event;
                ctx.local_states().wrote(&uid, now());
                ctx.index.note(&ClusterRef::of(cluster), &uid, None);
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
    // While `passing` lives, and some time after, workload events do not requeue the Cluster. A status write shortens that time.
    let (began, passing) = (now(), ctx.remotes.begin(uid));
    let status_written = || ctx.local_states().get(uid).written;
    let before = status_written();
    let outcome = isolated(
        &ctx.metrics.controllers.cluster,
        Box::pin(reconcile_once(cluster, ctx)),
    )
    .await;
    if let Some(passing) = &passing
        && status_written() != before
    {
        passing.brought_changes();
    }
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
        // The record lacks its writes.
        close_gates(ctx, cluster, &hold).await;
    }
    outcome
}

pub(crate) async fn reconcile_once(cluster: &Arc<Cluster>, ctx: &Context) -> Result<Done, Error> {
    // Also of a Cluster that is not managed any more, whose permit others wait for.
    let granted = ctx.limiter.granted_drift_check(&ClusterRef::of(cluster.as_ref()));
    let control_plane = |reference: &_| {
        ctx.control_planes
            .get(&ClusterRef::of(cluster.as_ref()), reference)
    };
    let Some(mut facts) = Facts::of(cluster, &ctx.stores, &ctx.settings, control_plane) else {
        return Ok(unmanaged(ctx, cluster).await);
    };
    facts.server_now = ctx.index.server_clock().now();
    facts.management_uid = ctx.management_uid.get();
    facts.gate_in_force = ctx.gates_in_force.report(&ClusterRef::of(cluster.as_ref()));
    let mut before = {
        let probed = ctx.probes.take(&facts.owner.uid);
        let mut local_states = ctx.local_states();
        if let Some(probed) = probed {
            local_states.probed(&facts.owner.uid, probed);
        }
        local_states.begin(&facts.owner, ctx.rollbacks.count())
    };
    if granted.is_some() {
        before.drift_check_is_due(now());
    }
    let host = reads::Host {
        ctx,
        facts: &facts,
        remote: OnceLock::new(),
        drift_check_client: OnceLock::new(),
        drift_check_permit: granted.map_or_else(OnceLock::new, OnceLock::from),
    };
    let (outcome, mut effects) = executor::run(&host, &facts, &before).await;
    if let Some(probe) = effects.probe.take() {
        let workload = host.remote.get().map(|remote| remote.probing());
        let clients = (ctx.client.clone(), workload);
        if !ctx.probes.start(&facts.owner.uid, clients, probe) {
            effects.local.probe_later();
        }
    }
    apply(ctx, &facts, effects).await;
    let done = outcome?;
    if done == Done::Forget {
        ctx.forget(&facts.owner.uid);
    }
    Ok(done)
}

/// Applies the effects of a reconcile.
async fn apply(ctx: &Context, facts: &Facts, effects: Effects) {
    let uid = &facts.owner.uid;
    if effects.disconnect {
        ctx.remotes.close(uid);
    }
    if let Some(note) = effects.note {
        ctx.index.note(&ClusterRef::of(facts.cluster.as_ref()), uid, note);
    }
    // A reconcile that began before the last restart of the watches compares with an older cache.
    if effects.local.is_after(ctx.rollbacks.count()) {
        if let Some(object) = &effects.rolled_back {
            ctx.rollbacks.saw_earlier(object);
        }
        if let Some(difference) = &effects.outdated {
            ctx.rollbacks.lost_events(difference);
        }
    }
    let reference = ClusterRef::of(facts.cluster.as_ref());
    ctx.gates_in_force.ungated(&reference, facts.says_ungated());
    ctx.local_states().keep(uid, effects.local);
    for count in &effects.counts {
        ctx.metrics.upgrades.count(count);
        if let Count::Ungated(ungated) = count {
            let (namespace, name) = (&facts.owner.namespace, &facts.owner.name);
            warn!(namespace, name, %ungated, "Found version without an open gate");
        }
    }
    for configuration in &effects.configurations {
        ctx.dependents.enqueue(configuration);
    }
    let cluster = facts.cluster.object_ref(&());
    for event in &effects.events {
        ctx.events.publish(&cluster, Notice::of(event)).await;
        if let Event::Overridden(note) = event {
            let (namespace, name) = (&facts.owner.namespace, &facts.owner.name);
            warn!(namespace, name, %note, "Overridden gate");
            if let Some(bootstrap) = &facts.bootstrap {
                let bootstrap = bootstrap.object_ref(&());
                ctx.events.publish(&bootstrap, Notice::of(event)).await;
            }
        }
    }
}

/// Handles an unmanaged Cluster. An event reports the change to users of a Cluster that was managed before.
async fn unmanaged(ctx: &Context, cluster: &Cluster) -> Done {
    let uid = cluster.uid().unwrap_or_default();
    if ctx.forget(&uid) && cluster.metadata.deletion_timestamp.is_none() {
        let note = "Cluster has neither a release label nor a ClusterBootstrap; Sluice no longer installs packages or holds its upgrades";
        let event = Notice::said("Unmanaged", note);
        ctx.events.publish(&cluster.object_ref(&()), Some(event)).await;
        // If the Cluster is managed again, its next event must not count as a repetition.
        ctx.events.forget(&uid);
    }
    Done::AwaitChange
}

#[cfg(test)]
pub(crate) mod object_server;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
