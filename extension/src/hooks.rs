//! Hook decisions: holds from the caches of this replica without any wait, releases after reads from the API server.

pub(crate) mod confirmer;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures::future::{try_join_all, try_join3};
use prometheus_client::registry::Registry;
use sluice_core::{
    cache::{
        is_earlier,
        stored_kind::StoredKind,
        stores::{Releases, Stores as _},
    },
    gate::{
        confirmation::{Confirmation, ConfirmationResult, NotConfirmed, ObjectRead, Reads, ReleaseObject},
        decision::{Decision, Knowledge, decide},
        hook_call::{HookCall, OwnedHookCall},
        index::{self, Counting, LogOnChange, Noted, Pace, Uncounted},
        plan_call::{NoPlan, PlanCall},
    },
    reasons::Hold,
    upgrade_plan::{knows_steps, steps_by, steps_of},
};
use sluice_hooks::Gate;
use tokio::time::Instant;
use tracing::{debug, field::display, info, warn};

use self::confirmer::{CONFIRM_WITHIN, Confirmer};
use crate::{
    cache::{rollbacks::Rollbacks, stores::Stores},
    clock::clock,
    kube_client::server_clock::ServerClock,
    leader::leadership::Leadership,
    lock::lock,
    queue::requeues::ClusterRef,
    telemetry::metrics::{ConfirmationMetrics, HoldMetrics},
};

/// Interval of the count of held Clusters. It only sets how soon Cluster API retries.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Gate of every hook. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Index(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    system_namespace: String,
    deletion_limit: u32,
    /// Start of the measurement of Clusters without progress.
    began: Instant,
    /// Stores; unset until their watches start.
    stores: OnceLock<Stores>,
    /// Set when unresolved Clusters are released that should have been resolved to a release.
    unresolved_released: OnceLock<()>,
    /// Clock of the management API server, which determines the age of deletions.
    server_clock: ServerClock,
    /// Observation of the lease; unset without leader election.
    leadership: OnceLock<Leadership>,
    /// Reads that confirm releases, and the rollbacks that they show; unset before there is a client.
    confirmer: OnceLock<(Confirmer, Rollbacks)>,
    noted: Mutex<Noted>,
    /// Absence of a leader, logged on change.
    leaderless: LogOnChange,
    /// Clusters that changed since the last count.
    uncounted: Arc<Mutex<Uncounted>>,
    /// Metrics of held gates.
    holds: HoldMetrics,
    confirmations: ConfirmationMetrics,
}

impl Index {
    /// Creates an index without stores, which holds every call.
    #[must_use]
    pub fn new(system_namespace: String, deletion_limit: Duration, uncounted: Arc<Mutex<Uncounted>>) -> Self {
        Self(Arc::new(Inner {
            system_namespace,
            deletion_limit: u32::try_from(deletion_limit.as_secs()).unwrap_or(u32::MAX),
            began: Instant::now(),
            stores: OnceLock::new(),
            unresolved_released: OnceLock::new(),
            server_clock: ServerClock::default(),
            leadership: OnceLock::new(),
            confirmer: OnceLock::new(),
            noted: Mutex::default(),
            leaderless: LogOnChange::default(),
            uncounted,
            holds: HoldMetrics::default(),
            confirmations: ConfirmationMetrics::default(),
        }))
    }

    /// Registers the metrics of held gates and of confirmations.
    pub fn register(&self, registry: &mut Registry) {
        self.0.holds.register(registry);
        self.0.confirmations.register(registry);
    }

    /// Confirms releases by reads through this confirmer from now on. Without one, releases that need a read are held.
    pub(crate) fn confirm_by(&self, confirmer: Confirmer, rollbacks: Rollbacks) {
        self.0.confirmer.get_or_init(|| (confirmer, rollbacks));
    }

    /// Requires a leader from now on: no record releases a hook while no replica leads.
    pub fn require_leader(&self, leadership: Leadership) {
        self.0.leadership.get_or_init(|| leadership);
    }

    /// Releases unresolved Clusters from now on, although they should have been resolved to a release.
    pub fn release_unresolved(&self) {
        self.0.unresolved_released.get_or_init(|| ());
    }

    /// Returns the clock of the management API server, for its clients to update.
    #[must_use]
    pub fn server_clock(&self) -> &ServerClock {
        &self.0.server_clock
    }

    /// Follows the stores for as long as it is polled. A call is decided once the stores that it needs are filled.
    pub async fn follow(&self, stores: Stores) {
        let stores = self.0.stores.get_or_init(|| stores);
        // Before that, the held Clusters are unknown.
        stores.filled_for_managed().await;
        let mut counting = Counting::default();
        let mut tick = tokio::time::interval(COUNT_EVERY);
        let mut unlisted = stores.unlisted();
        loop {
            tick.tick().await;
            self.is_leaderless();
            let unlisted_before = std::mem::replace(&mut unlisted, stores.unlisted());
            if unlisted != unlisted_before {
                lock(&self.0.uncounted).all();
            }
            let (uncounted, over) = (std::mem::take(&mut *lock(&self.0.uncounted)), self.over(stores));
            let elapsed = self.0.began.elapsed();
            counting.count(
                elapsed,
                uncounted,
                || stores.clusters.all_names(),
                |cluster| over.hold_snapshot(cluster.namespace(), cluster.name()),
            );
            self.0.holds.show(&counting, clock().now);
            let counted = counting.counted(elapsed);
            // The previous count is dropped after the lock is released, so that no hook waits for it.
            let _before = std::mem::replace(&mut lock(&self.0.noted).held, counted);
        }
    }

    /// Drops the state of a Cluster that was deleted or is not managed any more.
    pub fn forget(&self, uid: &str) {
        lock(&self.0.noted).note(uid, None);
    }

    /// Returns whether the stores were filled once. An outage of the API server does not affect readiness: a restarting Cluster API does not
    /// start without an endpoint to discover.
    #[must_use]
    pub fn was_filled(&self) -> bool {
        let stores = self.0.stores.get();
        stores.is_some_and(|stores| stores.unlisted().is_none())
    }

    /// Records for hooks the reason why the Cluster with this UID has no record.
    pub fn note(&self, cluster: &ClusterRef, uid: &str, hold: Option<Hold>) {
        if lock(&self.0.noted).note(uid, hold) {
            lock(&self.0.uncounted).one(cluster.clone());
        }
    }

    /// Returns whether no replica leads; logs each change.
    fn is_leaderless(&self) -> bool {
        let missing = self.0.leadership.get().is_some_and(Leadership::is_missing);
        let changed = self.0.leaderless.changed(missing);
        match changed {
            Some(true) => {
                warn!("No leader: lease is not renewed, holding hook calls that records would release");
            }
            Some(false) => info!("A replica leads again"),
            None => {}
        }
        missing
    }

    /// Decides a call from the cache and these reads.
    fn judge(&self, call: &HookCall<'_>, reads: &Reads) -> Confirmation {
        let call = &HookCall {
            now: call.deleted_at.and_then(|_| self.0.server_clock.now()),
            clock: Some(clock().now),
            ..call.clone()
        };
        let now = self.0.began.elapsed();
        let pace = Pace::of(call.uid, &lock(&self.0.noted).held, self.0.deletion_limit, now);
        let Some(stores) = self.0.stores.get() else {
            // Same reason as while the stores fill.
            let unsynced = Knowledge::Unsynced(StoredKind::ClusterBootstrap);
            let decision = decide(call, &unsynced, &pace.policy);
            return Confirmation::Decided(decision);
        };
        self.over(stores)
            .confirm(call, &pace, self.is_leaderless(), reads)
    }

    /// Reads what a release depends on until the call is decided.
    async fn confirmed(&self, call: &HookCall<'_>, peer: IpAddr) -> ConfirmedDecision {
        let deadline = Instant::now() + CONFIRM_WITHIN;
        let mut reads = Reads::default();
        let mut admitted = None;
        let mut has_read = false;
        loop {
            let objects = match self.judge(call, &reads) {
                Confirmation::Decided(decision) => {
                    let result = has_read.then(|| ConfirmationResult::of(&decision));
                    return ConfirmedDecision { decision, result };
                }
                Confirmation::Needs(objects) => objects,
            };
            has_read = true;
            admitted = admitted.or_else(|| self.0.confirmer.get()?.0.admit(peer));
            let found = if admitted.is_some() || self.0.confirmer.get().is_none() {
                try_join_all(objects.iter().map(|object| self.read(object, peer, deadline))).await
            } else {
                Err(NotConfirmed::Limited)
            };
            match found {
                Ok(found) => {
                    for (object, read) in objects.into_iter().zip(found) {
                        reads.add(object, read);
                    }
                }
                Err(why) => {
                    // The message does not depend on which read fails first.
                    let of_call = || ReleaseObject::cluster_bootstrap(call.namespace, call.name);
                    let first = objects.into_iter().next().unwrap_or_else(of_call);
                    return ConfirmedDecision {
                        decision: first.not_confirmed(),
                        result: Some(ConfirmationResult::NotConfirmed(why)),
                    };
                }
            }
        }
    }

    /// Plans an upgrade by the caches, on the runtime of the reads: a Cluster of any tenant may need many comparisons, and no other hook call
    /// waits for them.
    async fn planned_by_caches(&self, call: &PlanCall, peer: IpAddr) -> Result<Vec<String>, NoPlan> {
        let planned = |index: &Self, call: &PlanCall| {
            let stores = index.0.stores.get().ok_or(NoPlan::NotListed)?;
            steps_of(call, stores, &index.0.system_namespace)
        };
        let Some((confirmer, _)) = self.0.confirmer.get() else {
            return planned(self, call);
        };
        let _admitted = confirmer.admit(peer).ok_or(NoPlan::NotListed)?;
        let (index, call) = (self.clone(), call.clone());
        let computed = confirmer.compute(move || planned(&index, &call));
        computed.await.unwrap_or(Err(NoPlan::NotListed))
    }

    /// Plans an upgrade before the caches are filled: by the releases, and the ClusterBootstrap with the hop that is under way. A resolution
    /// of the Cluster or its class selects releases by more than their labels.
    async fn planned_by_reads(&self, call: &PlanCall, peer: IpAddr) -> Result<Vec<String>, NoPlan> {
        let deadline = Instant::now() + CONFIRM_WITHIN;
        let (confirmer, _) = self.0.confirmer.get().ok_or(NoPlan::NotListed)?;
        let _admitted = confirmer.admit(peer).ok_or(NoPlan::NotListed)?;
        let (bootstrap, cluster) = (
            ReleaseObject::cluster_bootstrap(&call.namespace, &call.name),
            ReleaseObject::cluster(&call.namespace, &call.name),
        );
        let is_resolved = async {
            let cluster = confirmer.read(&cluster, peer, deadline).await?;
            let class = cluster.class().ok_or(NotConfirmed::Invalid)?;
            let class = confirmer.read(&class, peer, deadline).await?;
            Ok(cluster.is_resolved(&class))
        };
        let read = try_join3(
            confirmer.releases(deadline),
            confirmer.read(&bootstrap, peer, deadline),
            is_resolved,
        );
        let (releases, bootstrap, is_resolved) = read.await.map_err(|_| NoPlan::NotListed)?;
        if is_resolved {
            return Err(NoPlan::NotListed);
        }
        Ok(steps_by(call, &releases, bootstrap.cluster_bootstrap())?)
    }

    /// Reads an object that a release depends on.
    async fn read(
        &self,
        object: &ReleaseObject,
        peer: IpAddr,
        deadline: Instant,
    ) -> Result<ObjectRead, NotConfirmed> {
        let (confirmer, rollbacks) = self.0.confirmer.get().ok_or(NotConfirmed::Failed)?;
        let cached = self
            .0
            .stores
            .get()
            .and_then(|stores| object.cached_version(stores));
        let read = confirmer.read(object, peer, deadline).await?;
        if is_earlier(read.resource_version(), cached.as_deref()) {
            rollbacks.saw_earlier(object);
        }
        Ok(read)
    }

    fn answered(&self, call: &HookCall<'_>, decision: &Decision) {
        let is_new = lock(&self.0.noted).answers.is_new(call, decision);
        log(call, decision, is_new);
    }

    /// Combines the stores with the recorded holds.
    fn over<'a>(&'a self, stores: &'a Stores) -> index::Index<'a, Stores, impl Fn(&str) -> Option<Hold>> {
        index::Index {
            stores,
            system_namespace: &self.0.system_namespace,
            hold_unresolved: self.0.unresolved_released.get().is_none(),
            note: |uid: &str| lock(&self.0.noted).noted(uid),
        }
    }
}

/// Decision of a call that the cache would release.
struct ConfirmedDecision {
    decision: Decision,
    /// None if nothing was read.
    result: Option<ConfirmationResult>,
}

impl Gate for Index {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        let decision = match self.judge(call, &Reads::default()) {
            Confirmation::Decided(decision) => decision,
            Confirmation::Needs(_) => Decision::Release,
        };
        if decision != Decision::Release {
            self.answered(call, &decision);
        }
        decision
    }

    async fn confirm(&self, call: OwnedHookCall, peer: IpAddr) -> Decision {
        let (call, began) = (call.as_call(), Instant::now());
        let ConfirmedDecision { decision, result } = self.confirmed(&call, peer).await;
        if let Some(result) = result {
            self.0.confirmations.count(result, began.elapsed());
        }
        self.answered(&call, &decision);
        decision
    }

    async fn plan(&self, call: PlanCall, peer: IpAddr) -> Result<Vec<String>, NoPlan> {
        let is_known = self.0.stores.get().is_some_and(knows_steps);
        let steps = if !call.passes_minors() {
            steps_by(&call, &Releases::new(), None)?
        } else if is_known {
            self.planned_by_caches(&call, peer).await?
        } else {
            self.planned_by_reads(&call, peer).await?
        };
        let PlanCall {
            namespace,
            name: cluster,
            from,
            to,
            ..
        } = &call;
        debug!(namespace, cluster, from, to, ?steps, "Planned upgrade");
        Ok(steps)
    }
}

/// Logs one hook call. Cluster API retries a held Cluster every few seconds, so a repeated decision is logged at debug level only.
fn log(call: &HookCall<'_>, decision: &Decision, is_new: bool) {
    let HookCall {
        hook,
        namespace,
        name: cluster,
        ..
    } = call;
    let (answer, held) = match decision {
        Decision::Release => ("release", None),
        Decision::Hold {
            retry_after, reason, ..
        } => ("hold", Some((reason, retry_after.seconds()))),
    };
    let (reason, text) = (
        held.map(|(reason, _)| display(reason)),
        held.map(|(reason, _)| reason.text()),
    );
    let retry_after = held.map(|(_, retry_after)| retry_after);
    if is_new {
        info!(%hook, namespace, cluster, answer, reason, text, retry_after, "Answered hook call");
    } else {
        debug!(%hook, namespace, cluster, answer, reason, text, retry_after, "Answered hook call");
    }
}

#[cfg(test)]
mod tests;
