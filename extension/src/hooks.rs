//! What hooks are answered from: the stores of this replica, read without waiting for anything.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use prometheus_client::registry::Registry;
use sluice_core::{
    cache::{stored_kind::StoredKind, stores::Stores as _},
    gate::{
        decision::{Decision, Knowledge, decide},
        hook_call::HookCall,
        index::{self, Counting, LogOnChange, Noted, Pace, Uncounted},
        stuck::HeldProgress,
        unsynced::Unsynced,
    },
    reasons::Hold,
};
use sluice_hooks::Gate;
use tokio::time::Instant;
use tracing::{debug, field::display, info, warn};

use crate::{
    cache::stores::Stores, clock::clock, kube_client::server_clock::ServerClock,
    leader::leadership::Leadership, lock::lock, queue::requeues::ClusterRef, telemetry::metrics::HoldMetrics,
};

/// How often held clusters are counted. It only sets how soon Cluster API asks again.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The gate of every hook. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Index(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    system_namespace: String,
    deletion_limit: u32,
    /// From here on the time is measured for which Clusters make no progress.
    began: Instant,
    /// Unset until they are being filled.
    stores: OnceLock<Stores>,
    /// Set where Clusters go on that should have been resolved to a release, and were not.
    unresolved_go: OnceLock<()>,
    /// The time of the management API server, by which deletions are as old as they are.
    server_clock: ServerClock,
    /// Unset where there is no lease.
    leadership: OnceLock<Leadership>,
    noted: Mutex<Noted>,
    /// Whether the stores are too old.
    stale: LogOnChange,
    /// Whether no replica leads.
    leaderless: LogOnChange,
    /// Clusters that have changed since they were counted.
    uncounted: Arc<Mutex<Uncounted>>,
    /// Shows which gates are held.
    holds: HoldMetrics,
}

impl Index {
    /// An index that knows nothing yet and holds every call.
    #[must_use]
    pub fn new(system_namespace: String, deletion_limit: Duration, uncounted: Arc<Mutex<Uncounted>>) -> Self {
        Self(Arc::new(Inner {
            system_namespace,
            deletion_limit: u32::try_from(deletion_limit.as_secs()).unwrap_or(u32::MAX),
            began: Instant::now(),
            stores: OnceLock::new(),
            unresolved_go: OnceLock::new(),
            server_clock: ServerClock::default(),
            leadership: OnceLock::new(),
            noted: Mutex::default(),
            stale: LogOnChange::default(),
            leaderless: LogOnChange::default(),
            uncounted,
            holds: HoldMetrics::default(),
        }))
    }

    /// Makes visible which gates are held.
    pub fn register(&self, registry: &mut Registry) {
        self.0.holds.register(registry);
    }

    /// From now on nothing is released by a record while no replica leads.
    pub fn require_leader(&self, leadership: Leadership) {
        self.0.leadership.get_or_init(|| leadership);
    }

    /// From now on Clusters are let go that should have been resolved to a release, and were not.
    pub fn lets_unresolved_go(&self) {
        self.0.unresolved_go.get_or_init(|| ());
    }

    /// The time of the management API server, to be noted by its clients.
    #[must_use]
    pub fn server_clock(&self) -> &ServerClock {
        &self.0.server_clock
    }

    /// Follows the stores for as long as it is polled. A call is answered from them once those are filled that its answer needs.
    pub async fn follow(&self, stores: Stores) {
        let stores = self.0.stores.get_or_init(|| stores);
        // Before that nothing says which Clusters are held.
        stores.tell_managed().await;
        let (mut standings, mut counting) = (HeldProgress::default(), Counting::default());
        let mut tick = tokio::time::interval(COUNT_EVERY);
        let mut unlisted = stores.unlisted();
        loop {
            tick.tick().await;
            self.say_whether_stale(stores);
            self.is_leaderless();
            let unlisted_before = std::mem::replace(&mut unlisted, stores.unlisted());
            if unlisted != unlisted_before {
                lock(&self.0.uncounted).all();
            }
            let (uncounted, over) = (std::mem::take(&mut *lock(&self.0.uncounted)), self.over(stores));
            counting.count(
                uncounted,
                || stores.clusters.all_names(),
                |cluster| over.hold_snapshot(cluster.namespace(), cluster.name()),
            );
            self.0.holds.show(&counting, clock().now);
            let counted = standings.observe(self.0.began.elapsed(), counting.held());
            // The count before is dropped after the lock is released, so that no hook waits for that.
            let _before = std::mem::replace(&mut lock(&self.0.noted).held, counted);
        }
    }

    /// Forgets a Cluster that is gone, or that is none of ours any more.
    pub fn forget(&self, uid: &str) {
        lock(&self.0.noted).note(uid, None);
    }

    /// Whether the stores were complete once. Their age is no matter of readiness: while the API server is away all replicas
    /// are stale, and a Cluster API that restarts then does not start without an endpoint to discover.
    #[must_use]
    pub fn was_filled(&self) -> bool {
        let stores = self.0.stores.get();
        stores.is_some_and(|stores| stores.unlisted().is_none())
    }

    /// Notes for hooks what keeps a Cluster, which has this UID, from having a record.
    pub fn note(&self, cluster: &ClusterRef, uid: &str, hold: Option<Hold>) {
        if lock(&self.0.noted).note(uid, hold) {
            lock(&self.0.uncounted).one(cluster.clone());
        }
    }

    /// Logs that a store has become too old to be used, or current again.
    fn say_whether_stale(&self, stores: &Stores) {
        let ages = stores.ages();
        let news = self.0.stale.changed(Unsynced::of(ages) == Some(Unsynced::Stale));
        match news {
            Some(true) => warn!(
                ?ages,
                "Stale: the API server does not confirm what is remembered, holding"
            ),
            Some(false) => info!("Current again: the API server has confirmed what is remembered"),
            None => {}
        }
    }

    /// Whether no replica leads; logged when it changes.
    fn is_leaderless(&self) -> bool {
        let missing = self.0.leadership.get().is_some_and(Leadership::is_missing);
        let news = self.0.leaderless.changed(missing);
        match news {
            Some(true) => warn!("No leader: the lease is not renewed, holding what records would release"),
            Some(false) => info!("A replica leads again"),
            None => {}
        }
        missing
    }

    fn judge(&self, call: &HookCall<'_>) -> Decision {
        let call = &HookCall {
            now: call.deleted_at.and_then(|_| self.0.server_clock.now()),
            ..call.clone()
        };
        let now = self.0.began.elapsed();
        let pace = Pace::of(call.uid, &lock(&self.0.noted).held, self.0.deletion_limit, now);
        let Some(stores) = self.0.stores.get() else {
            // As it is said once they are being filled.
            let unsynced = Unsynced::Unlisted(StoredKind::ClusterBootstrap);
            return decide(call, &Knowledge::Unsynced(unsynced), &pace.policy);
        };
        self.over(stores).decide(call, &pace, self.is_leaderless())
    }

    /// The stores, with what is noted.
    fn over<'a>(&'a self, stores: &'a Stores) -> index::Index<'a, Stores, impl Fn(&str) -> Option<Hold>> {
        index::Index {
            stores,
            system_namespace: &self.0.system_namespace,
            hold_unresolved: self.0.unresolved_go.get().is_none(),
            note: |uid: &str| lock(&self.0.noted).noted(uid),
        }
    }
}

impl Gate for Index {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        let decision = self.judge(call);
        let is_new = lock(&self.0.noted).answers.is_new(call, &decision);
        log(call, &decision, is_new);
        decision
    }
}

/// Logs one answered call. Cluster API asks a held Cluster every few seconds, so a call that is answered as before is worth no line.
fn log(call: &HookCall<'_>, decision: &Decision, is_new: bool) {
    let HookCall {
        hook,
        namespace,
        name: cluster,
        ..
    } = call;
    let (answer, reason, retry_after) = match decision {
        Decision::Release => ("release", None, None),
        Decision::Hold {
            retry_after, reason, ..
        } => ("hold", Some(display(reason)), Some(retry_after.seconds())),
    };
    if is_new {
        info!(%hook, namespace, cluster, answer, reason, retry_after, "answered hook");
    } else {
        debug!(%hook, namespace, cluster, answer, reason, retry_after, "answered hook");
    }
}

#[cfg(test)]
mod tests;
