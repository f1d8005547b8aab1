//! Which Clusters are held, and how far each of them is.

use kube::{ResourceExt, runtime::reflector::ObjectRef};
use sluice_core::{
    cluster::{is_legacy, is_managed},
    record::of_cluster,
    stuck::{Held, Standing},
};
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, label},
};

use super::Index;
use crate::stores::Stores;

impl Index {
    /// Every Cluster that is held, from memory.
    pub(super) fn held_clusters(&self, stores: &Stores) -> Vec<Held> {
        let clusters = stores.clusters.state();
        clusters
            .iter()
            .filter_map(|cluster| self.held(stores, cluster))
            .collect()
    }

    fn held(&self, stores: &Stores, cluster: &Cluster) -> Option<Held> {
        let uid = cluster.uid()?;
        let bootstrap = stores.bootstraps.get(
            &ObjectRef::new(cluster.metadata.name.as_deref()?).within(cluster.metadata.namespace.as_deref()?),
        );
        let record = bootstrap
            .as_ref()
            .and_then(|bootstrap| bootstrap.status.as_ref()?.upgrade.as_ref());
        if let Some(record) = of_cluster(record, &uid) {
            return record.outcome.is_none().then(|| Held {
                standing: Standing::of_record(record),
                recorded: true,
                uid,
            });
        }
        let label = cluster.labels().get(label::TKR).map(String::as_str);
        let release = label.and_then(|label| stores.releases.get(&ObjectRef::new(label)));
        let legacy = release.as_deref().is_some_and(is_legacy);
        let custom = cluster
            .annotations()
            .contains_key(annotation::CUSTOM_CLUSTER_BOOTSTRAP);
        if custom || !is_managed(label, legacy, bootstrap.is_some()) {
            return None;
        }
        let hold = self.missing(stores, label, &uid, release.is_some())?;
        Some(Held {
            standing: Standing::of_hold(label.unwrap_or_default(), &hold),
            recorded: false,
            uid,
        })
    }
}
