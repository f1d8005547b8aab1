//! Controller of releases: it writes for users and label selectors which releases are usable and which updates a Cluster may take next.
//! It installs Packages that bring releases through kapp-controller. [`sluice_core::releases`] decides the content. No gate depends on these
//! conditions. The record of the management packages that a release needs keeps a proof while a resync fails.

mod metrics;
mod sources;
mod turn;

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt as _, Stream, StreamExt as _, channel::mpsc};
use kube::{Client, ResourceExt as _};
use sluice_core::{
    cache::stores::Stores as _,
    cluster::ClusterRef,
    events::Uids,
    limits::Retries,
    releases::{
        ClusterConditions, Evaluation, Facts, ManagementClusters, Offers, ReleaseEvent, ReleaseObject,
        TkrPackage, Underway, of_image, package_in,
    },
    resolver::class_of,
};
use tokio::{
    task::yield_now,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use metrics::ReleaseMetrics;

use self::sources::{Sources, follow};
use crate::{
    cache::{event_handlers::EventHandlers, rollbacks::Rollbacks, stores::Stores},
    clock::{clock, later},
    controllers::events::Notifier,
    lock::lock,
    queue::work_queue::{self, Feed},
    telemetry::metrics::ReconcileMetrics,
};

/// Time window in which changes are merged.
const TOGETHER: Duration = Duration::from_millis(500);

/// Time without a change of releases before Clusters are checked: a release comes with images and packages, and seldom alone.
const QUIET: Duration = Duration::from_secs(2);

/// Maximum delay of that check under continuous changes.
const AT_LAST: Duration = Duration::from_secs(15);

/// Clusters or releases that are checked before the task yields.
const BATCH: usize = 100;

/// Time between two writes of Clusters. Each write triggers reconciles of Cluster API and of Sluice.
const BETWEEN: Duration = Duration::from_millis(10);

/// Objects that are written concurrently.
const AT_ONCE: u16 = 4;

/// Delay of the restart after a panic.
const AFTER_PANIC: Duration = Duration::from_mins(1);

/// State that all reconciles share.
pub struct Context {
    client: Client,
    system_namespace: String,
    stores: Stores,
    management: Arc<Mutex<ManagementClusters>>,
    changes: Feed<ReleaseEvent>,
    /// Rollbacks of the API server, which restart the watches of sources.
    rollbacks: Rollbacks,
    events: Notifier,
    /// Backoff of failed writes.
    retries: Mutex<Retries<ReleaseObject>>,
    reconciles: ReconcileMetrics,
    metrics: ReleaseMetrics,
}

impl Context {
    /// Returns a context that writes with `client` and receives the changes of the event handlers of `stores`.
    #[must_use]
    pub fn of(
        client: Client,
        system_namespace: String,
        stores: Stores,
        event_handlers: &EventHandlers,
        reconciles: ReconcileMetrics,
        metrics: ReleaseMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            events: Notifier::new(client.clone()),
            client,
            system_namespace,
            stores,
            management: Arc::clone(&event_handlers.management),
            changes: event_handlers.releases.clone(),
            rollbacks: event_handlers.rollbacks.clone(),
            retries: Mutex::default(),
            reconciles,
            metrics,
        })
    }

    /// Returns the changes from now on.
    #[must_use]
    pub fn listen(&self) -> mpsc::UnboundedReceiver<ReleaseEvent> {
        self.changes.listen()
    }
}

/// State of the running controller.
struct Shared {
    context: Arc<Context>,
    sources: Sources,
    /// Last evaluation; `None` before the first one.
    evaluation: Mutex<Option<Arc<Evaluation>>>,
    /// Available updates of Clusters by the last evaluation.
    offers: Mutex<Option<Offers>>,
    /// Packages whose releases are being installed.
    underway: Mutex<Underway>,
    /// UIDs of reconciled objects.
    uids: Mutex<Uids<ReleaseObject>>,
}

/// Reconciles releases, OSImages and Clusters until `stop`. A panic restarts only this controller.
pub async fn run(
    context: Arc<Context>,
    mut changes: impl Stream<Item = ReleaseEvent> + Unpin + Send,
    stop: CancellationToken,
) {
    context.reconciles.controllers.release.started(AT_ONCE.into());
    loop {
        let until_stopped = until_stopped(Arc::clone(&context), &mut changes, &stop);
        if AssertUnwindSafe(until_stopped).catch_unwind().await.is_ok() {
            return;
        }
        context.reconciles.controllers.release.panicked();
        error!("Release controller panicked; restarting in a minute");
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(AFTER_PANIC) => {}
        }
    }
}

async fn until_stopped(
    context: Arc<Context>,
    changes: &mut (impl Stream<Item = ReleaseEvent> + Unpin + Send),
    stop: &CancellationToken,
) {
    // Another replica may have led since, so earlier results are stale.
    context.metrics.forget_packages();
    let (sources, following) = follow(&context);
    let shared = Arc::new(Shared {
        sources,
        evaluation: Mutex::default(),
        offers: Mutex::default(),
        underway: Mutex::default(),
        uids: Mutex::default(),
        context,
    });
    let (due, turns) = mpsc::unbounded();
    let metrics = shared.context.reconciles.controllers.release.queue.clone();
    let turns = work_queue::run(turns, AT_ONCE, stop, &metrics, |named| {
        let shared = Arc::clone(&shared);
        async move { turn::turn(&shared, named).await }
    });
    tokio::select! {
        () = turns => {}
        () = run_due(&shared, changes, &due) => {}
        () = following => {}
    }
}

/// Evaluates changes and sends objects with pending writes to `due`.
async fn run_due(
    shared: &Shared,
    changes: &mut (impl Stream<Item = ReleaseEvent> + Unpin),
    due: &mpsc::UnboundedSender<ReleaseObject>,
) {
    let stores = &shared.context.stores;
    // An empty store of Packages may be unfilled. kapp-controller may be missing, and other results do not wait for it.
    let mut packages_listed = pin!(stores.packages_listed().fuse());
    let mut management_packages_listed = pin!(stores.management_packages_listed().fuse());
    let mut seen = HashSet::new();
    if !stores.are_packages_listed() {
        seen.insert(ReleaseEvent::All);
    }
    // First and last change of releases or classes since the last check of Clusters.
    let mut pending: Option<(Instant, Instant)> = None;
    let mut left = Vec::new();
    loop {
        let are_affected = seen.remove(&ReleaseEvent::All) && evaluate(shared, due).await;
        if seen.remove(&ReleaseEvent::Classes) || are_affected {
            let now = Instant::now();
            pending = Some((pending.map_or(now, |(since, _)| since), now));
        }
        for change in seen.drain() {
            match change {
                ReleaseEvent::Cluster(named) => {
                    consider(shared, named, due);
                }
                ReleaseEvent::Package(name) => {
                    let _ends = due.unbounded_send(ReleaseObject::Package(name));
                }
                ReleaseEvent::Install(install) => {
                    let packages = shared.context.stores.catalogue();
                    let of_name = |name: &&String| TkrPackage::install_name(name) == install;
                    for name in packages.keys().filter(of_name) {
                        let _ends = due.unbounded_send(ReleaseObject::Package(name.clone()));
                    }
                }
                ReleaseEvent::All | ReleaseEvent::Classes => {}
            }
        }
        let check_at = pending.map(|(since, last)| (last + QUIET).min(since + AT_LAST));
        tokio::select! {
            () = &mut packages_listed => {
                all_packages(shared, due).await;
                seen.insert(ReleaseEvent::All);
            }
            () = &mut management_packages_listed => {
                seen.insert(ReleaseEvent::All);
            }
            first = changes.next() => match first {
                Some(first) => seen = together(first, changes).await,
                None => return,
            },
            () = later(check_at.map(Instant::into_std)) => {
                pending = None;
                left = shared.context.stores.clusters.names();
            }
            () = sleep(BETWEEN), if !left.is_empty() => {
                // A batch ends with the first write; Clusters without one are cheap.
                for _ in 0..BATCH {
                    let Some(named) = left.pop() else { break };
                    if consider(shared, named, due) {
                        break;
                    }
                }
            }
        }
    }
}

/// Sends a Cluster to `due` if it has a pending write. Returns whether it does.
fn consider(shared: &Shared, named: ClusterRef, due: &mpsc::UnboundedSender<ReleaseObject>) -> bool {
    let is_due = offer(shared, &named).is_some();
    if is_due {
        let _ends = due.unbounded_send(ReleaseObject::Cluster(named));
    }
    is_due
}

/// Returns the pending write of a Cluster.
fn offer(shared: &Shared, named: &ClusterRef) -> Option<ClusterConditions> {
    let stores = &shared.context.stores;
    let cluster = stores.clusters.get(Some(named.namespace()), named.name())?;
    let class = class_of(&cluster).and_then(|(namespace, name)| stores.classes.get(Some(&namespace), name));
    lock(&shared.offers)
        .as_mut()?
        .of_cluster(&cluster, class.as_deref())
}

/// Sends all Packages to `due`, and deleted Packages whose PackageInstall remains.
async fn all_packages(shared: &Shared, due: &mpsc::UnboundedSender<ReleaseObject>) {
    let Context {
        stores,
        system_namespace,
        ..
    } = shared.context.as_ref();
    let mut names: HashSet<String> = stores.catalogue().keys().cloned().collect();
    for (count, install) in stores.installs.names().into_iter().enumerate() {
        if install.namespace() == system_namespace {
            let found = stores.installs.get(Some(system_namespace), install.name());
            names.extend(found.and_then(|found| package_in(&found.metadata).map(str::to_owned)));
        }
        if count % BATCH == BATCH - 1 {
            yield_now().await;
        }
    }
    for name in names {
        let _ends = due.unbounded_send(ReleaseObject::Package(name));
    }
}

/// Returns `first` and all changes within [`TOGETHER`].
async fn together(
    first: ReleaseEvent,
    changes: &mut (impl Stream<Item = ReleaseEvent> + Unpin),
) -> HashSet<ReleaseEvent> {
    let (mut seen, until) = (HashSet::from([first]), Instant::now() + TOGETHER);
    while let Ok(Some(next)) = timeout_at(until, changes.next()).await {
        seen.insert(next);
    }
    seen
}

/// Evaluates all releases and sends those with pending writes to `due`, with the OSImages. Returns whether Clusters may be affected.
async fn evaluate(shared: &Shared, due: &mpsc::UnboundedSender<ReleaseObject>) -> bool {
    let (stores, now) = (&shared.context.stores, clock().now);
    let images = stores.images();
    let management = lock(&shared.context.management).version();
    let compatibility = shared.sources.compatibility(management);
    let releases = stores.releases();
    let packages = stores.packages.is_filled().then(|| stores.catalogue());
    let are_listed = stores.are_management_packages_listed();
    let management_packages = are_listed.then(|| stores.management_packages());
    let evaluation = Arc::new(Evaluation::of(Facts {
        releases: &releases,
        images: images.as_deref(),
        packages: packages.as_deref(),
        compatibility: compatibility.as_ref(),
        management_packages: management_packages.as_deref(),
    }));
    shared.context.metrics.evaluated(&evaluation);
    let offers = Offers::of(Arc::clone(&evaluation), Arc::clone(&releases), images.clone());
    let are_affected = {
        let mut known = lock(&shared.offers);
        let is_same = known
            .as_ref()
            .is_some_and(|known| offers.is_same_for_clusters(known));
        *known = Some(offers);
        !is_same
    };
    let before = lock(&shared.evaluation).replace(Arc::clone(&evaluation));
    let mut count = 0_usize;
    for (checked, (name, release)) in releases.iter().enumerate() {
        if evaluation.of_release(release, now).is_some() {
            let _ends = due.unbounded_send(ReleaseObject::Release(name.clone()));
            count += 1;
        }
        if checked % BATCH == BATCH - 1 {
            yield_now().await;
        }
    }
    // Deleted releases are queued, so that their state is dropped.
    for name in before.iter().flat_map(|before| before.names()) {
        if !releases.contains_key(name) {
            let _ends = due.unbounded_send(ReleaseObject::Release(name.to_owned()));
        }
    }
    for image in images.iter().flat_map(|images| images.values()) {
        if of_image(image, now).is_some() {
            let _ends = due.unbounded_send(ReleaseObject::Image(image.name_any()));
            count += 1;
        }
    }
    if count > 0 {
        info!(
            objects = count,
            "Updating labels and conditions of releases and OSImages"
        );
    }
    are_affected
}

#[cfg(test)]
mod tests;
