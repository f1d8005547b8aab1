//! The ClusterBootstrap controller: packages of a cluster follow its release, and the record says how far they are.

mod apply;
mod ask_again;
mod at_rest;
mod confirm;
mod delete;
mod dereference;
mod edited;
mod legacy_pause;
mod packages;
mod provider;
mod quiet;
mod record_first;
mod refusal;
mod targets;
mod troubles;
mod update_status;
mod validate;
mod values;
mod workload;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
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
    hold::{Hold, HoldReason},
    proof::last_moved,
};
use sluice_crds::foreign::{App, Cluster};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use edited::Edited;
use quiet::Quiet;
use record_first::Opened;
use troubles::{SLOW, Troubles, Turn};

use super::{
    chain,
    isolate::{PassError, isolated},
    write,
};
use crate::{
    control_plane::{ControlPlanes, Unknown},
    events::Notifier,
    health::Heartbeat,
    index::Index,
    metrics::PassMetrics,
    remote::Remotes,
    stores::Stores,
    triggers::ClusterRef,
};

/// How soon a pass is repeated that ended in a conflict, at first.
const CONFLICT: Duration = Duration::from_millis(50);

/// So many passes in a row may end in a conflict; with one more, others write as often as Sluice does.
const CONFLICTS: u32 = 4;

/// How soon a cluster is looked at again that waits for something no watch shows (Secrets are never watched).
const UNWATCHED: Duration = Duration::from_secs(1);
/// How soon a cluster at rest is looked at again whose values cannot be had any more. There may be hundreds that share the
/// cause, such as the login of a cloud. The configurations of Sluice wake it as soon as they are ready.
const AT_REST: Duration = Duration::from_secs(30);
/// How soon a hot cluster is looked at again when nothing happens.
const HOT: Duration = Duration::from_secs(10);
/// No Cluster has this name, because Clusters have a namespace.
const PROBE: &str = "probe";
/// How often it is shown that passes get their turn when there is nothing to do.
const PROBE_PERIOD: Duration = Duration::from_secs(30);

/// What an operator has set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Namespace of templates and Packages, and of PackageInstalls in workload clusters.
    pub system_namespace: String,
    /// How often kapp-controller looks at a package again, and this controller at a settled cluster.
    pub sync_period: Duration,
    /// How long a deletion waits for additional packages to be uninstalled.
    pub delete_timeout: Duration,
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
    written: Mutex<HashMap<String, Instant>>,
    managed: Mutex<HashSet<String>>,
    quiet: Mutex<Quiet>,
    edited: Mutex<Edited>,
    opened: Mutex<Opened>,
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
            written: Mutex::default(),
            managed: Mutex::default(),
            quiet: Mutex::default(),
            edited: Mutex::default(),
            opened: Mutex::default(),
        }
    }

    /// When the status of a cluster was written last, by its UID.
    fn last_written(&self, uid: &str) -> Option<Instant> {
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(uid)
            .copied()
    }

    fn set_written(&self, uid: &str) {
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(uid.to_owned(), Instant::now());
    }

    /// Whether an App of the Cluster with this UID has not moved for long.
    fn is_quiet(&self, uid: &str, app: &App) -> bool {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        quiet.is_over(uid, app, last_moved(app), (Instant::now(), Timestamp::now()))
    }

    /// Remembers that the Cluster with this UID is managed.
    fn set_managed(&self, uid: &str) {
        let mut managed = self.managed.lock().unwrap_or_else(PoisonError::into_inner);
        if !managed.contains(uid) {
            managed.insert(uid.to_owned());
        }
    }

    /// How long the settled Cluster with this UID still leaves Packages as they were before they were edited in place.
    fn leaves_edits(&self, uid: &str) -> Option<Duration> {
        let mut edited = self.edited.lock().unwrap_or_else(PoisonError::into_inner);
        edited.wait(uid, self.settings.sync_period, Instant::now())
    }

    /// Gates that this process may have opened.
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_no_edits(&self, uid: &str) {
        self.edited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .forget(uid);
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
        let managed = self.managed.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<String> = managed.difference(&there).cloned().collect();
        drop(managed);
        for uid in gone {
            self.forget(&uid);
        }
    }

    /// Forgets the Cluster with this UID. Says whether it was managed until now.
    fn forget(&self, uid: &str) -> bool {
        self.has_no_edits(uid);
        self.opened().forget(uid);
        self.troubles.forget(uid);
        self.quiet
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .forget(uid);
        self.remotes.close(uid);
        self.index.note(uid, None);
        self.events.forget(uid);
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
        self.managed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid)
    }
}

/// Why a reconcile ended early. It is tried again by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The management API server refused a request or did not answer.
    #[error("talk to the management API server")]
    Management(#[from] kube::Error),
    /// The pass was cut off or panicked.
    #[error(transparent)]
    Pass(#[from] PassError),
}

impl Error {
    fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// What an API server answered, if it did.
    fn code(&self) -> Option<u16> {
        match self {
            Self::Management(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
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
    let swept = Arc::clone(&ctx);
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
    match timeout(SLOW, close(ctx, cluster, &hold)).await {
        Ok(true) => Ok(Action::requeue(wait)),
        Ok(false) | Err(_) => Ok(Action::requeue(ctx.troubles.failed(uid))),
    }
}

/// Closes the gates of a Cluster of which no pass came to its end. Says whether that is done.
async fn close(ctx: &Context, cluster: &Cluster, hold: &Hold) -> bool {
    let closed = isolated(Box::pin(update_status::unseen(ctx, cluster, hold))).await;
    let error = closed.map_err(Error::from).flatten().err();
    if let Some(error) = &error {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        info!(namespace, name, error = %chain(error), "Closing gates");
    }
    error.is_none()
}

/// A pass with all that is noted of it.
async fn whole_pass(cluster: &Arc<Cluster>, ctx: &Context, uid: &str) -> Result<Action, Error> {
    let (began, passing) = (tokio::time::Instant::now(), ctx.remotes.begin(uid));
    let written = ctx.last_written(uid);
    let outcome = isolated(Box::pin(pass(cluster, ctx))).await;
    if let Some(passing) = &passing
        && ctx.last_written(uid) != written
    {
        passing.brought_news();
    }
    let error = match outcome.map_err(Error::from).flatten() {
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
        Error::Management(_) => 1,
    };
    let hold = ended_early(ctx, &error);
    if ctx.troubles.failed_again(uid, patience, began, hold.clone()) {
        // What it has written is not in the record.
        close(ctx, cluster, &hold).await;
    }
    Err(error)
}

/// Why the gates of a Cluster are closed of which a pass did not come to its end.
fn ended_early(ctx: &Context, error: &Error) -> Hold {
    match error {
        Error::Management(error) => refusal::failed(error),
        Error::Pass(PassError::Panicked) => {
            ctx.metrics.panicked();
            let message = "a pass over the Cluster ended in a bug of Sluice; the log of Sluice says where";
            Hold::new(HoldReason::PassPanicked, message)
        }
        Error::Pass(PassError::TimedOut) => Hold::new(HoldReason::PassCutOff, error.to_string()),
    }
}

async fn pass(cluster: &Arc<Cluster>, ctx: &Context) -> Result<Action, Error> {
    let Some(found) = dereference::run(cluster, ctx) else {
        return Ok(unmanaged(ctx, cluster).await);
    };
    ctx.set_managed(&found.owner.uid);
    if cluster.metadata.deletion_timestamp.is_some() {
        legacy_pause::remove(ctx, &found).await?;
        return delete::run(ctx, &found).await;
    }
    // The watch of the kind wakes the Cluster.
    match &found.unknown {
        None => legacy_pause::remove(ctx, &found).await?,
        Some(Unknown::Reading) => return Ok(Action::requeue(AT_REST)),
        Some(Unknown::Unreadable(hold)) => {
            update_status::unseen(ctx, cluster, hold).await?;
            return Ok(Action::requeue(AT_REST));
        }
    }

    let system_namespace = &ctx.settings.system_namespace;
    let template = |release: &str| dereference::template(ctx, release);
    let validated = validate::run(&found, system_namespace, template);
    let (bootstrap, problem) = change(ctx, &found, &validated).await?;
    let Some(bootstrap) = bootstrap else {
        return Ok(unborn(ctx, &found, problem).await);
    };
    // What was merged may be something else by now.
    let problem = problem
        .or_else(|| validate::below_release(&found, &validated, &bootstrap, system_namespace, template));

    let packages = packages::run(ctx, &found, &validated, &bootstrap, problem).await?;
    update_status::run(ctx, &found, &validated, &bootstrap, packages).await
}

/// Writes the ClusterBootstrap where it has to be another one. Returns it as it is now, and what is wrong.
async fn change(
    ctx: &Context,
    found: &dereference::Found,
    validated: &validate::Validated,
) -> Result<(Option<Arc<sluice_crds::run::ClusterBootstrap>>, Option<Hold>), Error> {
    let current = found.bootstrap.clone();
    let change = validated.change.clone().filter(|_| validated.paused.is_none());
    let (Some(draft), Ok(release)) = (change, &validated.release) else {
        return Ok((current, validated.problem.clone()));
    };
    Ok(
        match apply::draft(ctx, &found.owner, current.as_deref(), release, draft).await? {
            Ok(written) => (Some(Arc::new(written)), None),
            Err(hold) => (current, Some(hold)),
        },
    )
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

/// A Cluster without ClusterBootstrap has no record to carry the reason, so hooks and events do.
async fn unborn(ctx: &Context, found: &dereference::Found, problem: Option<Hold>) -> Action {
    ctx.index.note(&found.owner.uid, problem.clone());
    let Some(hold) = problem else {
        return Action::await_change();
    };
    ctx.events.held(&found.cluster, &hold).await;
    Action::requeue(UNWATCHED)
}

#[cfg(test)]
pub(crate) mod object_server;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
