//! The ClusterBootstrap controller: packages of a cluster follow its release, and the record says how far they are.

mod reads;
mod troubles;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        Controller,
        controller::{self, Action, Config},
        reflector::ObjectRef,
        watcher,
    },
};
use sluice_core::{
    build::FIELD_MANAGER,
    chain::chain,
    hold::{GateReason, Hold},
    pass::{self, After, Close, Done, Event, Facts, Memory, close, pass_failed},
};
use sluice_crds::foreign::Cluster;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use troubles::{SLOW, Troubles, Turn};

use crate::{
    control_plane::ControlPlanes,
    events::Notifier,
    health::Heartbeat,
    index::Index,
    metrics::PassMetrics,
    remote::Remotes,
    runner::{self, Error, PassError, action, isolated, writes},
    stores::Stores,
    triggers::ClusterRef,
};

/// How soon a pass is repeated that ended in a conflict, at first.
const CONFLICT: Duration = Duration::from_millis(50);

/// So many passes in a row may end in a conflict; with one more, others write as often as Sluice does.
const CONFLICTS: u32 = 4;

/// No Cluster has this name, because Clusters have a namespace.
const PROBE: &str = "probe";
/// How often it is shown that passes get their turn when there is nothing to do.
const PROBE_PERIOD: Duration = Duration::from_secs(30);

/// What an operator has set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What a pass goes by.
    pub pass: pass::Settings,
    /// How many clusters are looked at at once.
    pub concurrency: u16,
}

/// What every reconcile shares.
pub struct Context {
    /// Client of the management cluster.
    pub client: Client,
    /// What an operator has set.
    pub settings: Settings,
    /// What is kept in memory.
    pub stores: Stores,
    /// Control planes of every kind in use.
    pub control_planes: ControlPlanes,
    /// Connections to workload clusters.
    pub remotes: Remotes,
    /// Where problems before the first record are told to hooks.
    pub index: Index,
    /// Events for people.
    pub events: Notifier,
    /// What is counted.
    pub metrics: PassMetrics,
    troubles: Troubles,
    /// By UID of each Cluster that is managed.
    memories: Mutex<HashMap<String, Memory>>,
    /// Clusters that were woken since their last pass began.
    woken: Mutex<HashSet<ClusterRef>>,
}

impl Context {
    /// A context without history.
    #[must_use]
    pub fn new(
        client: Client,
        settings: Settings,
        stores: Stores,
        control_planes: ControlPlanes,
        remotes: Remotes,
        index: Index,
        metrics: PassMetrics,
    ) -> Self {
        let events = Notifier::new(client.clone());
        Self {
            client,
            troubles: Troubles::new(settings.concurrency),
            settings,
            stores,
            control_planes,
            remotes,
            index,
            events,
            metrics,
            memories: Mutex::default(),
            woken: Mutex::default(),
        }
    }

    /// Something has happened to this Cluster that its next pass cannot see in the stores.
    fn woke(&self, cluster: &ClusterRef) {
        self.woken().insert(cluster.clone());
    }

    fn woken(&self) -> MutexGuard<'_, HashSet<ClusterRef>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pass over this Cluster begins. Until it comes to its end, what has woken the Cluster is not forgotten.
    fn begin(&self, cluster: &Cluster, uid: &str) -> Memory {
        let woken = self.woken().remove(&ObjectRef::from_obj(cluster));
        let mut memories = self.memories();
        let memory = memories.entry(uid.to_owned()).or_default();
        if woken {
            memory.wake();
        }
        memory.clone()
    }

    /// What is remembered of the Cluster with this UID.
    fn memory(&self, uid: &str) -> Memory {
        self.memories().get(uid).cloned().unwrap_or_default()
    }

    fn remember(&self, uid: &str, memory: Memory) {
        self.memories().insert(uid.to_owned(), memory);
    }

    /// The status of the Cluster with this UID was written outside of a pass.
    fn wrote(&self, uid: &str) {
        let written = Some(tokio::time::Instant::now().into_std());
        self.memories().entry(uid.to_owned()).or_default().written = written;
        self.index.note(uid, None);
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets Clusters that are gone. The last pass over one may have been before that, when it was still to be deleted.
    fn forget_gone(&self) {
        let there: HashSet<String> = self
            .stores
            .clusters
            .state()
            .iter()
            .filter_map(|cluster| cluster.uid())
            .collect();
        let known: Vec<String> = self.memories().keys().cloned().collect();
        let gone: Vec<String> = known.into_iter().filter(|uid| !there.contains(uid)).collect();
        for uid in gone {
            self.forget(&uid);
        }
        self.woken()
            .retain(|cluster| self.stores.clusters.get(cluster).is_some());
    }

    /// Forgets the Cluster with this UID. Says whether it was managed until now.
    fn forget(&self, uid: &str) -> bool {
        self.troubles.forget(uid);
        self.remotes.close(uid);
        self.index.note(uid, None);
        self.events.forget(uid);
        self.memories().remove(uid).is_some()
    }
}

/// Reconciles until `stop`. The stores must be filled. `heart` beats with each pass that ends.
pub async fn run(
    ctx: Arc<Context>,
    triggers: impl Stream<Item = ClusterRef> + Send + 'static,
    heart: Heartbeat,
    stop: CancellationToken,
) {
    // That it is looked for shows that the others get their turn.
    let probes = stream::unfold(tokio::time::interval(PROBE_PERIOD), |mut tick| async move {
        tick.tick().await;
        Some((ObjectRef::new(PROBE), tick))
    });
    let clusters = Api::<Cluster>::all(ctx.client.clone());
    let (swept, woken) = (Arc::clone(&ctx), Arc::clone(&ctx));
    let triggers = triggers.inspect(move |cluster| woken.woke(cluster));
    Controller::new(clusters, watcher::Config::default())
        .with_config(Config::default().concurrency(ctx.settings.concurrency))
        .reconcile_on(stream::select(triggers, probes))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, failed, ctx)
        .for_each(|result| {
            if !matches!(result, Err(controller::Error::QueueError(_))) {
                heart.beat();
            }
            // Other names that do not exist are many: those who write labels choose them.
            if matches!(&result, Err(controller::Error::ObjectNotFound(name)) if name.name == PROBE) {
                swept.forget_gone();
            }
            if let Err(error) = result {
                debug!(%error, "Reconciling");
            }
            std::future::ready(())
        })
        .await;
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of an error policy")]
fn failed(cluster: Arc<Cluster>, error: &Error, ctx: Arc<Context>) -> Action {
    let uid = cluster.uid().unwrap_or_default();
    let failures = ctx.troubles.failures(&uid);
    if error.is_conflict() && failures <= CONFLICTS {
        // Another one wrote first; what was written is on its way through the watch.
        return Action::requeue(CONFLICT * 2_u32.pow(failures));
    }
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    warn!(namespace, name, error = %chain(error), "Reconciling Cluster");
    Action::requeue(ctx.troubles.failed(&uid))
}

/// One pass over a Cluster, behind walls: whatever happens in it, other Clusters get their turn.
async fn reconcile(cluster: Arc<Cluster>, ctx: Arc<Context>) -> Result<Action, Error> {
    let uid = cluster.uid().unwrap_or_default();
    let slot = match ctx.troubles.turn(&uid) {
        Turn::Granted(slot) => slot,
        Turn::Later(wait) => return later(&ctx, &cluster, &uid, wait).await,
    };
    let whole = Box::pin(whole_pass(&cluster, &ctx, &uid));
    match ctx.troubles.attend(&uid, slot, whole).await {
        Ok(outcome) => outcome,
        Err(wait) => {
            ctx.metrics.cut_off();
            let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
            info!(
                namespace,
                name, "A slow pass was cut off; the next one waits for a slot"
            );
            later(&ctx, &cluster, &uid, wait).await
        }
    }
}

/// A Cluster that waits for a slot. What a pass has written that came to no end is not in the record, so its gates are closed.
async fn later(ctx: &Context, cluster: &Cluster, uid: &str, wait: Duration) -> Result<Action, Error> {
    let Some(hold) = ctx.troubles.unseen(uid) else {
        return Ok(Action::requeue(wait));
    };
    // It has no slot of the troubled ones, so it may not take long either.
    match timeout(SLOW, close_gates(ctx, cluster, &hold)).await {
        Ok(true) => Ok(Action::requeue(wait)),
        Ok(false) | Err(_) => Ok(Action::requeue(ctx.troubles.failed(uid))),
    }
}

/// Closes the gates of a Cluster of which no pass came to its end. Says whether that is done.
async fn close_gates(ctx: &Context, cluster: &Cluster, hold: &Hold) -> bool {
    let closed = isolated(Box::pin(closed(ctx, cluster, hold))).await;
    if let Err(error) = &closed {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        info!(namespace, name, error = %chain(error), "Closing gates");
    }
    closed.is_ok()
}

async fn closed(ctx: &Context, cluster: &Cluster, hold: &Hold) -> Result<(), Error> {
    let (namespace, uid) = (
        cluster.namespace().unwrap_or_default(),
        cluster.uid().unwrap_or_default(),
    );
    let key = ObjectRef::new(&cluster.name_any()).within(&namespace);
    let written = match close(ctx.stores.bootstraps.get(&key).as_deref(), &uid, hold) {
        Close::NoRecord => {
            ctx.index.note(&uid, Some(hold.clone()));
            Ok(())
        }
        Close::Recorded => Ok(()),
        Close::Write(write) => writes::make(&ctx.client, None, FIELD_MANAGER, &write)
            .await
            .map(|_| ctx.wrote(&uid)),
    };
    ctx.events.held(cluster, hold).await;
    written.map_err(Error::Refused)
}

/// A pass with all that is noted of it.
async fn whole_pass(cluster: &Arc<Cluster>, ctx: &Context, uid: &str) -> Result<Action, Error> {
    let (began, passing) = (tokio::time::Instant::now(), ctx.remotes.begin(uid));
    let written = ctx.memory(uid).written;
    let outcome = isolated(Box::pin(one_pass(cluster, ctx))).await;
    if let Some(passing) = &passing
        && ctx.memory(uid).written != written
    {
        passing.brought_news();
    }
    let error = match outcome {
        Ok(action) => {
            ctx.troubles.passed(uid, began.elapsed());
            return Ok(action);
        }
        Err(error) => error,
    };
    // The next pass mostly comes to its end.
    let patience = match &error {
        Error::Pass(_) => 0,
        error if error.is_conflict() => CONFLICTS,
        Error::Refused(_) | Error::Unfinished(_) => 1,
    };
    let hold = ended_early(ctx, &error);
    if ctx.troubles.failed_again(uid, patience, began, hold.clone()) {
        // What it has written is not in the record.
        close_gates(ctx, cluster, &hold).await;
    }
    Err(error)
}

/// Why the gates of a Cluster are closed of which a pass did not come to its end.
fn ended_early(ctx: &Context, error: &Error) -> Hold {
    match error {
        Error::Refused(failure) => pass_failed(failure),
        Error::Unfinished(_) => {
            let message =
                "a pass over the Cluster does not go on, a bug of Sluice; the log of Sluice says where";
            Hold::new(GateReason::ReconcileError, message)
        }
        Error::Pass(PassError::Panicked) => {
            ctx.metrics.panicked();
            let message = "a pass over the Cluster ended in a bug of Sluice; the log of Sluice says where";
            Hold::new(GateReason::ReconcilePanicked, message)
        }
        Error::Pass(PassError::TimedOut) => Hold::new(GateReason::ReconcileTimedOut, error.to_string()),
    }
}

async fn one_pass(cluster: &Arc<Cluster>, ctx: &Context) -> Result<Action, Error> {
    let control_plane = |reference: &_| {
        let key = ObjectRef::from_obj(cluster.as_ref());
        ctx.control_planes.get(&key, reference)
    };
    let Some(facts) = Facts::of(cluster, &ctx.stores, &ctx.settings.pass, control_plane) else {
        return Ok(unmanaged(ctx, cluster).await);
    };
    let uid = &facts.owner.uid;
    let (host, before) = (reads::Host { ctx, facts: &facts }, ctx.begin(&facts.cluster, uid));
    let (outcome, after) = runner::run(&host, &facts, &before).await;
    leave(ctx, &facts, after).await;
    let done = outcome?;
    if done == Done::Forget {
        ctx.forget(uid);
    }
    Ok(action(done))
}

/// Takes over what a pass has left.
async fn leave(ctx: &Context, facts: &Facts, after: After) {
    let uid = &facts.owner.uid;
    if after.close {
        ctx.remotes.close(uid);
    }
    if let Some(note) = after.note {
        ctx.index.note(uid, note);
    }
    ctx.remember(uid, after.memory);
    for event in after.events {
        match event {
            Event::Held(hold) => ctx.events.held(&facts.cluster, &hold).await,
            Event::Said(reason, note) => ctx.events.told(&facts.cluster, reason, &note).await,
        }
    }
}

/// A Cluster that nothing is done for. One that was managed before has left, and its users can see that.
async fn unmanaged(ctx: &Context, cluster: &Cluster) -> Action {
    let uid = cluster.uid().unwrap_or_default();
    if ctx.forget(&uid) && cluster.metadata.deletion_timestamp.is_none() {
        let note = "no release label and no ClusterBootstrap: Sluice installs nothing and holds no upgrade of this Cluster any more";
        ctx.events.told(cluster, "Unmanaged", note).await;
        // Its next event is of its own: it may be managed again.
        ctx.events.forget(&uid);
    }
    Action::await_change()
}

#[cfg(test)]
pub(crate) mod object_server;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
