//! The ClusterBootstrap controller: packages of a cluster follow its release, and the record says how far they are.

mod reads;
mod troubles;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock},
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
    hold::Hold,
    pass::{self, After, Close, Done, Event, Facts, Memories, close},
    slots::{Again, SLOW},
};
use sluice_crds::foreign::Cluster;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use troubles::Slots;

use crate::{
    clock::now,
    control_plane::ControlPlanes,
    events::Notifier,
    health::Heartbeat,
    index::Index,
    lock::lock,
    metrics::PassMetrics,
    remote::Remotes,
    runner::{self, Error, PassError, action, isolated, writes},
    stores::Stores,
    triggers::Trigger,
};

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
    slots: Slots,
    memories: Mutex<Memories>,
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
            slots: Slots::new(settings.concurrency),
            settings,
            stores,
            control_planes,
            remotes,
            index,
            events,
            metrics,
            memories: Mutex::default(),
        }
    }

    /// What is remembered of Clusters.
    fn memories(&self) -> MutexGuard<'_, Memories> {
        lock(&self.memories)
    }

    /// Forgets Clusters that are gone. The last pass over one may have been before that, when it was still to be deleted.
    fn forget_gone(&self) {
        let gone = self.memories().gone(&self.stores.clusters.state());
        for uid in gone {
            self.forget(&uid);
        }
    }

    /// Forgets the Cluster with this UID. Says whether it was managed until now.
    fn forget(&self, uid: &str) -> bool {
        self.slots.troubles().forget(uid);
        self.remotes.close(uid);
        self.index.note(uid, None);
        self.events.forget(uid);
        self.memories().forget(uid)
    }
}

/// Reconciles until `stop`. The stores must be filled. `heart` beats with each pass that ends.
pub async fn run(
    ctx: Arc<Context>,
    triggers: impl Stream<Item = Trigger> + Send + 'static,
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
    let triggers = triggers.map(move |Trigger { cluster, unseen }| {
        if unseen {
            let namespace = cluster.namespace.as_deref().unwrap_or_default();
            woken.memories().woke(namespace, &cluster.name);
        }
        cluster
    });
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
    let again = ctx.slots.troubles().again(&uid, error, now());
    match again {
        Again::Soon(wait) => Action::requeue(wait),
        Again::Later(wait) => {
            let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
            warn!(namespace, name, error = %chain(error), "Reconciling Cluster");
            Action::requeue(wait)
        }
    }
}

/// One pass over a Cluster, behind walls: whatever happens in it, other Clusters get their turn.
async fn reconcile(cluster: Arc<Cluster>, ctx: Arc<Context>) -> Result<Action, Error> {
    let uid = cluster.uid().unwrap_or_default();
    let slot = match ctx.slots.turn(&uid) {
        Ok(slot) => slot,
        Err(wait) => return later(&ctx, &cluster, &uid, wait).await,
    };
    let whole = Box::pin(whole_pass(&cluster, &ctx, &uid));
    match ctx.slots.attend(&uid, slot, whole).await {
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
    let Some(hold) = ctx.slots.troubles().unseen(uid, now()) else {
        return Ok(Action::requeue(wait));
    };
    // It has no slot of the troubled ones, so it may not take long either.
    match timeout(SLOW, close_gates(ctx, cluster, &hold)).await {
        Ok(true) => Ok(Action::requeue(wait)),
        Ok(false) | Err(_) => Ok(Action::requeue(ctx.slots.troubles().failed(uid, now()))),
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
        Close::Write(write) => {
            let written = writes::make(&ctx.client, FIELD_MANAGER, &write).await;
            written.map(|_| {
                ctx.memories().wrote(&uid, now());
                ctx.index.note(&uid, None);
            })
        }
    };
    ctx.events.held(cluster, hold).await;
    written.map_err(Error::Refused)
}

/// A pass with all that is noted of it.
async fn whole_pass(cluster: &Arc<Cluster>, ctx: &Context, uid: &str) -> Result<Action, Error> {
    let (began, passing) = (now(), ctx.remotes.begin(uid));
    let written = || ctx.memories().get(uid).written;
    let before = written();
    let outcome = isolated(Box::pin(one_pass(cluster, ctx))).await;
    if let Some(passing) = &passing
        && written() != before
    {
        passing.brought_news();
    }
    let error = match outcome {
        Ok(action) => {
            ctx.slots.troubles().passed(uid, began, now());
            return Ok(action);
        }
        Err(error) => error,
    };
    if matches!(error, Error::Pass(PassError::Panicked)) {
        ctx.metrics.panicked();
    }
    let hold = ctx.slots.troubles().ended(uid, &error, began, now());
    if let Some(hold) = hold {
        // What it has written is not in the record.
        close_gates(ctx, cluster, &hold).await;
    }
    Err(error)
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
    let before = ctx.memories().begin(&facts.owner);
    let host = reads::Host {
        ctx,
        facts: &facts,
        remote: OnceLock::new(),
    };
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
    ctx.memories().keep(uid, after.memory);
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
