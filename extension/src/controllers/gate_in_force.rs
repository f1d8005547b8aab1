//! Reports of gates that are not in force, see [`sluice_core::installation::gate_in_force`]. Nothing is decided from them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex},
};

use kube::Client;
use sluice_core::{
    cluster::{ClusterRef, is_stopped},
    installation::gate_in_force::{
        GateInForce, GateReports, NotInForce, NotInForceReason, ReadConfig, not_in_force, write,
    },
    packages::build::FIELD_MANAGER,
    reconcile::shared_dependency::Classes,
};

use crate::{
    cache::stores::Stores,
    clock::{clock, now},
    controllers::executor::writes,
    lock::lock,
    queue::requeues::Requeues,
};

/// Reports of one leader. Clones share them.
#[derive(Clone)]
pub struct GatesInForce(Arc<Inner>);

struct Inner {
    client: Client,
    stores: Stores,
    /// Clusters with a topology.
    classes: Arc<Mutex<Classes>>,
    /// Requeues for the Cluster controller, which writes the condition of a Cluster with a topology.
    triggers: Requeues,
    reports: Mutex<GateReports>,
}

impl fmt::Debug for GatesInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatesInForce").finish_non_exhaustive()
    }
}

impl GatesInForce {
    /// Returns reports about the Clusters of `stores`. `client` writes the conditions of Clusters without a topology.
    pub(crate) fn new(
        client: Client,
        stores: Stores,
        classes: Arc<Mutex<Classes>>,
        triggers: Requeues,
    ) -> Self {
        Self(Arc::new(Inner {
            client,
            stores,
            classes,
            triggers,
            reports: Mutex::default(),
        }))
    }

    /// Returns the report about a Cluster; `None` while it is not known.
    pub(crate) fn report(&self, cluster: &ClusterRef) -> Option<GateInForce> {
        lock(&self.0.reports).report(cluster)
    }

    /// Notes whether a Cluster has a version that was written without an open gate.
    pub(crate) fn ungated(&self, cluster: &ClusterRef, is_ungated: bool) {
        lock(&self.0.reports).ungated(cluster, is_ungated);
    }

    /// Observes the gates of these Clusters. `selects` tells whether an ExtensionConfig selects a namespace.
    pub(super) fn saw(
        &self,
        configs: &[ReadConfig],
        clusters: Vec<ClusterRef>,
        selects: impl Fn(&ReadConfig, &str) -> Result<bool, String>,
    ) {
        let existing: HashSet<ClusterRef> = self.0.stores.clusters.all_names().into_iter().collect();
        let mut of_namespaces: HashMap<String, Option<NotInForce>> = HashMap::new();
        let mut found = Vec::new();
        {
            let classes = lock(&self.0.classes);
            for cluster in clusters.into_iter().filter(|cluster| existing.contains(cluster)) {
                let namespace = cluster.namespace();
                if !of_namespaces.contains_key(namespace) {
                    let not = not_in_force(configs, namespace, |config| selects(config, namespace));
                    of_namespaces.insert(namespace.to_owned(), not);
                }
                let of_namespace = of_namespaces.get(namespace).cloned().flatten();
                let has_topology = classes.has_topology(&cluster);
                let not = if has_topology {
                    of_namespace
                } else {
                    Some(NotInForce::no_topology())
                };
                found.push((cluster, not));
            }
        }
        lock(&self.0.reports).saw(found, now());
    }

    /// Whether a report is due.
    pub(super) fn has_due(&self) -> bool {
        lock(&self.0.reports).has_due()
    }

    /// Returns the number of reported Clusters by reason.
    pub(super) fn counts(&self) -> BTreeMap<NotInForceReason, usize> {
        lock(&self.0.reports).counts()
    }

    /// Reports the next Cluster that is due.
    pub(super) async fn report_next(&self) {
        let due = lock(&self.0.reports).next_due();
        match due {
            Some((cluster, not)) if not.reason == NotInForceReason::NoTopology => {
                self.write(&cluster, not).await;
            }
            Some((cluster, _)) => self.0.triggers.enqueue(cluster),
            None => {}
        }
    }

    /// Writes the condition of a Cluster without a topology. A refused write is repeated after the next check.
    async fn write(&self, cluster: &ClusterRef, not: NotInForce) {
        let (namespace, name) = (cluster.namespace(), cluster.name());
        let stores = &self.0.stores;
        let object = stores.clusters.get(Some(namespace), name);
        let bootstrap = stores.bootstraps.get(Some(namespace), name);
        let (Some(object), Some(bootstrap)) = (object, bootstrap) else {
            return;
        };
        // `clusterctl move` may be moving the ClusterBootstrap of a paused Cluster.
        if is_stopped(&object) || object.metadata.deletion_timestamp.is_some() {
            lock(&self.0.reports).not_reported(cluster);
            return;
        }
        let Some(write) = write(&bootstrap, not, clock().now) else {
            return;
        };
        if writes::make(&self.0.client, FIELD_MANAGER, &write).await.is_err() {
            lock(&self.0.reports).not_reported(cluster);
        }
    }
}
