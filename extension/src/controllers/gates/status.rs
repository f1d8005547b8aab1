//! Status of UpgradeGates: one pass computes that of all gates of a namespace, at most once a second.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt as _, stream};
use kube::Client;
use sluice_core::{
    cache::stores::{GateKinds, Stored, Stores as _},
    error_chain::error_chain,
    gates::{
        MAX_GATES,
        gate_status::{self, GatedCluster},
    },
    limits::{Again, Retries},
    packages::build::FIELD_MANAGER,
    protocol::{Failure, Write},
};
use tokio::{task::yield_now, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    cache::stores::Stores,
    clock::{clock, now},
    controllers::{
        executor::{Error, counted, isolated, writes},
        registration::HookScope,
    },
    lock::lock,
    queue::work_queue,
    telemetry::metrics::ReconcileMetrics,
};

/// Shortest time between two passes over a namespace, and so between two writes of one status.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time that the first passes wait for the ExtensionConfigs. Without them, condition `InForce` would change twice for each new leader.
const FIRST_SCOPE: Duration = Duration::from_secs(5);

/// Concurrent passes. Each holds the Clusters of its namespace.
const AT_ONCE: u16 = 2;

/// Clusters that are looked up before the task yields.
const BATCH: usize = 16;

/// Label selectors that are compared before the task yields.
const COMPARED: usize = 1_000;

/// Time after which every replica lists UpgradeGates that this one lists. A replica repeats a list of a missing kind after at most 2 s.
/// Condition `InForce` must not be `True` before, because a replica without gates releases.
const EVERYWHERE: Duration = Duration::from_secs(5);

/// State that all passes share.
pub struct GateStatuses {
    client: Client,
    stores: Stores,
    scope: HookScope,
    metrics: ReconcileMetrics,
    namespaces: Mutex<HashMap<String, Namespace>>,
    /// Backoff of namespaces whose last pass failed.
    retries: Mutex<Retries<String>>,
}

/// Last pass over a namespace.
struct Namespace {
    at: Instant,
    /// Number of its Clusters that gates hold.
    held: usize,
}

impl GateStatuses {
    /// Returns a controller that writes with `client`. `scope` has the namespaces for which Cluster API calls hooks.
    pub(crate) fn new(client: Client, stores: Stores, scope: HookScope, metrics: ReconcileMetrics) -> Self {
        Self {
            client,
            stores,
            scope,
            metrics,
            namespaces: Mutex::default(),
            retries: Mutex::default(),
        }
    }

    /// Returns the time until the next pass over a namespace may begin.
    fn until_due(&self, namespace: &str, now: Instant) -> Option<Duration> {
        let namespaces = lock(&self.namespaces);
        let since = now.saturating_duration_since(namespaces.get(namespace)?.at);
        Some(INTERVAL.saturating_sub(since)).filter(|left| !left.is_zero())
    }

    /// Notes a pass over a namespace; without gates nothing is kept of it.
    fn passed(&self, namespace: &str, passed: Option<Namespace>) {
        let mut namespaces = lock(&self.namespaces);
        match passed {
            Some(passed) => drop(namespaces.insert(namespace.to_owned(), passed)),
            None => drop(namespaces.remove(namespace)),
        }
        let held = namespaces.values().map(|namespace| namespace.held).sum();
        drop(namespaces);
        self.metrics.upgrades.held_by_gates(held);
    }
}

/// Keeps the status of all UpgradeGates up to date until `stop`, starting with all of them. `changed` are the namespaces of changed
/// UpgradeGates, Clusters and ClusterUpgrades.
pub async fn run(statuses: Arc<GateStatuses>, changed: impl Stream<Item = String>, stop: CancellationToken) {
    let _late = timeout(FIRST_SCOPE, statuses.scope.read()).await;
    let of_all = |statuses: Arc<GateStatuses>| stream::iter(statuses.stores.gate_namespaces());
    let shared = Arc::clone(&statuses);
    let rescoped = statuses
        .scope
        .changes()
        .flat_map(move |()| of_all(Arc::clone(&shared)));
    let all = of_all(Arc::clone(&statuses));
    let namespaces = stream::select(all.chain(changed), rescoped);
    let metrics = &statuses.metrics.controllers.upgrade_gate;
    metrics.started(AT_ONCE.into());
    work_queue::run(namespaces, AT_ONCE, &stop, &metrics.queue, |namespace| {
        let statuses = Arc::clone(&statuses);
        async move { turn(&statuses, &namespace).await }
    })
    .await;
}

/// Passes over a queued namespace. Returns the delay until it is requeued without an event.
async fn turn(statuses: &GateStatuses, namespace: &str) -> Option<Duration> {
    let stores = &statuses.stores;
    // Before the stores are filled, the counts would be wrong.
    if !matches!(stores.gate_kinds(), GateKinds::Listed) {
        return None;
    }
    if stores.gates_of(namespace).is_empty() {
        statuses.passed(namespace, None);
        return None;
    }
    let (now, listed) = (now(), stores.gates_listed_since());
    let until_everywhere = listed.map(|listed| EVERYWHERE.saturating_sub(now.duration_since(listed)));
    if let Some(left) = until_everywhere.filter(|left| !left.is_zero()) {
        return Some(left);
    }
    if let Some(left) = statuses.until_due(namespace, now) {
        return Some(left);
    }
    let metrics = &statuses.metrics.controllers.upgrade_gate;
    let pass = async {
        isolated(metrics, Box::pin(pass(statuses, namespace)))
            .await
            .map(|()| None)
    };
    match counted(metrics, pass).await {
        Ok(again) => {
            lock(&statuses.retries).forget(&namespace.to_owned());
            again
        }
        Err(error) => Some(failed(statuses, namespace, &error)),
    }
}

/// Returns the backoff after a failed pass.
fn failed(statuses: &GateStatuses, namespace: &str, error: &Error) -> Duration {
    let again = lock(&statuses.retries).failed(namespace.to_owned(), error.is_conflict(), now());
    if let Again::Later(_) = again {
        warn!(namespace, error = %error_chain(error), "Failed to write status of UpgradeGates");
    }
    again.wait().max(INTERVAL)
}

/// Writes the status of each UpgradeGate of a namespace that differs.
async fn pass(statuses: &GateStatuses, namespace: &str) -> Result<(), Error> {
    let clusters = clusters(&statuses.stores, namespace).await;
    let unasked = statuses.scope.unasked(namespace);
    let held = clusters.iter().filter(|cluster| is_held(cluster)).count();
    let all_held = gate_status::held(&clusters);
    let passed = Namespace { at: now(), held };
    statuses.passed(namespace, Some(passed));
    let (mut failure, mut compared) = (None, 0);
    for (count, gate) in statuses.stores.gates_of(namespace).into_iter().enumerate() {
        // An UpgradeGate that cannot be decoded has no status that Sluice could write. Its Clusters name it.
        let Ok(gate) = gate else { continue };
        let is_counted = count < MAX_GATES;
        let write = if is_counted {
            gate_status::write(&gate, &clusters, unasked.as_deref(), clock().now)
        } else {
            gate_status::write_uncounted(&gate, all_held, clock().now)
        };
        if let Some(write) = write
            && let Err(refused) = made(statuses, &write).await
        {
            // The others do not wait for it.
            failure = failure.or(Some(refused));
        }
        compared += if is_counted { clusters.len() + 1 } else { 1 };
        if compared >= COMPARED {
            compared = 0;
            yield_now().await;
        }
    }
    failure.map_or(Ok(()), |failure| Err(Error::Refused(failure)))
}

/// Whether the ClusterUpgrade of a Cluster names a gate that holds it.
fn is_held(found: &GatedCluster) -> bool {
    let status = found.upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref());
    status.is_some_and(|status| {
        let mut conditions = status.conditions.iter();
        status.held_by.is_some()
            && conditions.any(|condition| condition.type_ == "Held" && condition.status == "True")
    })
}

/// Makes one write. A status of a gate that was deleted meanwhile needs none.
async fn made(statuses: &GateStatuses, write: &Write) -> Result<(), Failure> {
    match writes::make(&statuses.client, FIELD_MANAGER, write).await {
        Err(failure) if failure.code != Some(404) => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the Clusters of a namespace, with their ClusterUpgrades.
async fn clusters(stores: &Stores, namespace: &str) -> Vec<GatedCluster> {
    let mut found = Vec::new();
    let names = stores.clusters.names();
    let of_namespace = names.iter().filter(|named| named.namespace() == namespace);
    for (count, named) in of_namespace.enumerate() {
        if let Some(cluster) = stores.clusters.get(Some(namespace), named.name()) {
            let upgrade = stores.get(Some(namespace), named.name());
            found.push(GatedCluster { cluster, upgrade });
        }
        if count % BATCH == BATCH - 1 {
            yield_now().await;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::sleep;

    use super::*;
    use crate::controllers::{
        bootstrap::{object_server::ObjectServer, world::World},
        gates::tests::{gate, leader},
    };

    const GATES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/team-a/upgradegates";

    /// Returns a controller of a new leader, whose stores have listed everything 2 s ago.
    async fn statuses(management: &ObjectServer) -> GateStatuses {
        let leader = leader(management).await;
        let (client, stores) = (leader.client.clone(), leader.stores.clone());
        GateStatuses::new(client, stores, HookScope::default(), leader.metrics.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn no_status_is_written_before_other_replicas_list_the_gates() {
        let world = World::new();
        world.management.put(&format!("{GATES}/backup"), gate(&json!({})));
        let statuses = statuses(&world.management).await;
        let left = turn(&statuses, "team-a").await.unwrap();
        assert!(!left.is_zero() && left <= EVERYWHERE, "{left:?}");
        let written = || world.management.get(&format!("{GATES}/backup")).unwrap()["status"].is_object();
        assert!(!written());
        sleep(left).await;
        turn(&statuses, "team-a").await;
        assert!(written());
    }

    #[tokio::test(start_paused = true)]
    async fn gates_beyond_the_limit_are_refused_without_selected_clusters() {
        let world = World::new();
        for number in 0..=MAX_GATES {
            let path = format!("{GATES}/gate-{number:03}");
            world.management.put(&path, gate(&json!({})));
        }
        let statuses = statuses(&world.management).await;
        sleep(EVERYWHERE).await;
        turn(&statuses, "team-a").await;
        let status_of = |number: usize| {
            let path = format!("{GATES}/gate-{number:03}");
            world.management.get(&path).unwrap()["status"].clone()
        };
        let (last, beyond) = (status_of(MAX_GATES - 1), status_of(MAX_GATES));
        assert_eq!(last["selected"], 1, "{last}");
        assert_eq!(beyond["conditions"][0]["reason"], "ChecksTooMany", "{beyond}");
        assert!(beyond["selected"].is_null(), "{beyond}");
        assert_eq!(beyond["holding"], 0, "{beyond}");
    }
}
