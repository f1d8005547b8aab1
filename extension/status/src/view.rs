//! View of one Cluster in the status service.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use sluice_core::{
    cache::stores::{Found, Stores, is_legacy_release},
    cluster::{ClusterRef, is_managed, release_of},
    upgrade::{
        record::of_cluster,
        swap::{is_cancelled_swap, is_requested},
        tkr::pinned,
    },
};
use sluice_crds::{
    foreign::{Cluster, cluster::Topology},
    run::{ClusterBootstrap, Outcome, TanzuKubernetesRelease, UpgradeRecord},
};

/// View of one Cluster for clients of the status service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// Its namespace and its name.
    pub cluster: ClusterRef,
    /// Its UID.
    pub uid: String,
    /// Its release label; empty without one.
    pub tkr_label: String,
    /// Whether Sluice decides its hooks by its packages.
    pub managed: bool,
    /// Its record, if the schema is known and the UID is that of this Cluster.
    pub upgrade: Option<UpgradeRecord>,
    /// Start of its wait; none if it was not recorded.
    pub since: Option<Time>,
    /// `spec.topology.version`; empty without a topology.
    pub topology_version: String,
    /// Whether the spec requests another upgrade than the ended one of the record.
    pub pending: bool,
}

/// Returns the view of a Cluster, if it exists. The view of an undecodable Cluster has its metadata and no record, because the gate does
/// not use that record either.
#[must_use]
pub fn view(stores: &impl Stores, cluster: &ClusterRef) -> Option<ClusterView> {
    let (namespace, name) = (cluster.namespace(), cluster.name());
    let found: Found<Cluster> = stores.found(Some(namespace), name);
    let meta: &ObjectMeta = match &found {
        Ok(found) => &found.as_deref()?.metadata,
        Err(undecodable) => &undecodable.metadata,
    };
    let uid = meta.uid.clone().unwrap_or_default();
    let label = release_of(meta);
    let bootstrap: Found<ClusterBootstrap> = stores.found(Some(namespace), name);
    let release: Found<TanzuKubernetesRelease> = if label.is_empty() {
        Ok(None)
    } else {
        stores.found(None, &label)
    };
    let has_bootstrap = !matches!(bootstrap, Ok(None));
    let status = match &bootstrap {
        Ok(Some(bootstrap)) if found.is_ok() => bootstrap.status.as_ref(),
        _ => None,
    };
    let record = status.and_then(|status| status.upgrade.as_ref());
    let managed = is_managed(Some(&label), is_legacy_release(&release), has_bootstrap);
    let upgrade = of_cluster(record, &uid).cloned();
    let topology = found
        .ok()
        .flatten()
        .and_then(|cluster| cluster.spec.topology.clone());
    let asks_for_more =
        |(record, topology): (&UpgradeRecord, &Topology)| is_pending(record, topology, &label);
    Some(ClusterView {
        cluster: cluster.clone(),
        managed,
        pending: managed && upgrade.as_ref().zip(topology.as_ref()).is_some_and(asks_for_more),
        topology_version: topology.map(|topology| topology.version).unwrap_or_default(),
        since: status.and_then(|status| status.since.clone()),
        upgrade,
        tkr_label: label,
        uid,
    })
}

/// Whether a Cluster requests another version or release than those of an ended record. An open record follows the request of the Cluster,
/// or soon will.
///
/// A label requests nothing while `TKR_DATA` pins a release (decision 33), unless it names a newer one than the machines are made of
/// (decision 49). A cancelled upgrade keeps its release until then.
fn is_pending(record: &UpgradeRecord, topology: &Topology, label: &str) -> bool {
    let another_version = record.to != topology.version;
    let is_newer = is_requested(topology, &topology.version, label);
    match record.outcome {
        None => false,
        Some(Outcome::Cancelled) => another_version || (is_newer && is_cancelled_swap(record)),
        Some(Outcome::Completed | Outcome::RolledBack) => {
            let pinned = pinned(topology, &topology.version).filter(|_| !is_newer);
            let release = pinned.as_deref().unwrap_or(label);
            another_version || (!release.is_empty() && record.tkr.as_deref() != Some(release))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::Resource;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use sluice_core::{
        cache::{
            stored_kind::StoredKind,
            stores::{FoundGate, GateKinds, Images, Releases, Stored},
        },
        decode::Undecodable,
        packages::{bootstrap::Catalogue, requirements::ManagementPackages},
    };
    use sluice_crds::{labels::label, lifecycle::UpgradeOverride};

    use super::*;

    /// Stores with fixed content.
    #[derive(Default)]
    struct Given {
        clusters: Vec<Value>,
        bootstraps: Vec<Value>,
        releases: Vec<Value>,
        /// Undecodable objects of any kind.
        undecodable: Vec<Arc<Undecodable>>,
    }

    impl<K: DeserializeOwned + Resource<DynamicType = ()>> Stored<K> for Given {
        fn found(&self, namespace: Option<&str>, name: &str) -> Found<K> {
            if let Some(object) = Stored::<K>::undecodable(self, namespace, name) {
                return Err(object);
            }
            let mut objects = [&self.clusters, &self.bootstraps, &self.releases]
                .into_iter()
                .flatten();
            let found = objects.find(|object| {
                let meta = &object["metadata"];
                object["kind"] == *K::kind(&())
                    && meta["namespace"].as_str() == namespace
                    && meta["name"] == name
            });
            Ok(found.map(|object| Arc::new(serde_json::from_value(object.clone()).unwrap())))
        }

        fn of_cluster(&self, _: &str, _: &str) -> Vec<Arc<K>> {
            Vec::new()
        }

        fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
            let is_it = |object: &&Arc<Undecodable>| {
                let meta = &object.metadata;
                object.kind == K::kind(&())
                    && meta.namespace.as_deref() == namespace
                    && meta.name.as_deref() == Some(name)
            };
            self.undecodable.iter().find(is_it).cloned()
        }

        fn undecodable_of(&self, _: &str, _: &str) -> Option<Arc<Undecodable>> {
            None
        }
    }

    impl Stores for Given {
        fn overrides_of(&self, _: &str, _: &str) -> Option<Vec<Arc<UpgradeOverride>>> {
            None
        }

        fn releases(&self) -> Arc<Releases> {
            Arc::default()
        }

        fn images(&self) -> Option<Arc<Images>> {
            None
        }

        fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
            None
        }

        fn catalogue(&self) -> Arc<Catalogue> {
            Arc::default()
        }

        fn management_packages(&self) -> Arc<ManagementPackages> {
            Arc::default()
        }

        fn is_listed(&self, _: StoredKind) -> bool {
            true
        }

        fn gates_of(&self, _: &str) -> Vec<FoundGate> {
            Vec::new()
        }

        fn gate_kinds(&self) -> GateKinds {
            GateKinds::Off
        }

        fn packages_enabled(&self) -> bool {
            true
        }
    }

    /// Returns an object of this name in `namespace`, with these labels and with the fields of `rest`.
    fn object<K: Resource<DynamicType = ()>>(
        namespace: Option<&str>,
        name: &str,
        labels: &Value,
        rest: &Value,
    ) -> Value {
        let mut object = rest.clone();
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"] = json!({
            "name": name, "namespace": namespace, "labels": labels, "uid": "uid", "generation": 1,
        });
        object
    }

    /// Returns an object that cannot be decoded.
    fn undecodable(kind: &str, name: &str, labels: &Value) -> Arc<Undecodable> {
        let metadata = json!({"name": name, "namespace": "ns", "labels": labels, "uid": "uid"});
        Arc::new(Undecodable {
            kind: kind.to_owned(),
            metadata: serde_json::from_value(metadata).unwrap(),
            class: None,
            why: "field spec: it is nested deeper than 127 levels".to_owned(),
        })
    }

    fn record(schema: i64, uid: &str) -> Value {
        json!({"spec": {}, "status": {"upgrade": {
            "schema": schema, "clusterUID": uid, "observedClusterGeneration": 1, "observedBootstrapGeneration": 1,
            "label": "v1", "to": "v1.36.3",
        }}})
    }

    fn given(label: Option<&str>, bootstrap: Option<&Value>) -> Given {
        let labels = label.map_or(json!({}), |label| json!({label::TKR: label}));
        let bootstrap = bootstrap.map(|rest| object::<ClusterBootstrap>(Some("ns"), "one", &json!({}), rest));
        Given {
            clusters: vec![object::<Cluster>(
                Some("ns"),
                "one",
                &labels,
                &json!({"spec": {}}),
            )],
            bootstraps: bootstrap.into_iter().collect(),
            releases: vec![object::<TanzuKubernetesRelease>(
                None,
                "old",
                &json!({label::LEGACY_TKR: ""}),
                &json!({"spec": {"version": "old", "kubernetes": {"version": "v1"}}}),
            )],
            ..Given::default()
        }
    }

    fn seen(given: &Given) -> Option<ClusterView> {
        view(given, &ClusterRef::new("ns", "one"))
    }

    #[test]
    fn a_record_is_shown_that_is_about_this_cluster_and_understood() {
        let to = |given: &Given| seen(given).and_then(|view| view.upgrade).map(|record| record.to);
        assert_eq!(
            to(&given(Some("v1"), Some(&record(1, "uid")))).as_deref(),
            Some("v1.36.3")
        );
        assert_eq!(to(&given(Some("v1"), Some(&record(1, "earlier")))), None);
        assert_eq!(to(&given(Some("v1"), Some(&record(2, "uid")))), None);
        assert_eq!(to(&given(Some("v1"), Some(&json!({"spec": {}})))), None);
        assert_eq!(to(&given(Some("v1"), None)), None);
    }

    #[test]
    fn a_cluster_is_managed_as_hooks_take_it() {
        let managed = |given: &Given| seen(given).map(|view| view.managed);
        assert_eq!(managed(&given(Some("v1"), None)), Some(true));
        assert_eq!(managed(&given(Some("old"), None)), Some(false), "legacy");
        assert_eq!(managed(&given(None, None)), Some(false));
        assert_eq!(managed(&given(None, Some(&json!({"spec": {}})))), Some(true));
        assert_eq!(managed(&Given::default()), None, "there is none");
    }

    /// Whether an upgrade is pending for a Cluster with this record, version, label and entry of `TKR_DATA`.
    fn pending(record: &Value, version: &str, label: &str, pinned: Option<&str>) -> bool {
        let mut upgrade = json!({
            "schema": 1, "clusterUID": "uid", "observedClusterGeneration": 1, "observedBootstrapGeneration": 1,
            "label": label, "to": "v2", "hop": "v2", "tkr": "v2---1",
        });
        let fields = upgrade.as_object_mut().unwrap();
        fields.extend(record.as_object().unwrap().clone());
        let bootstrap = json!({"spec": {}, "status": {"upgrade": upgrade}});
        let data = pinned.map(
            |release| json!({"name": "TKR_DATA", "value": {version: {"labels": {label::TKR: release}}}}),
        );
        let variables: Vec<_> = data.into_iter().collect();
        let spec = json!({"spec": {"topology": {"classRef": {"name": "c"}, "version": version, "variables": variables}}});
        let mut given = given(Some(label), Some(&bootstrap));
        let labels = json!({label::TKR: label});
        given.clusters = vec![object::<Cluster>(Some("ns"), "one", &labels, &spec)];
        let view = seen(&given).unwrap();
        assert_eq!(view.topology_version, version);
        view.pending
    }

    #[test]
    fn a_difference_from_the_ended_upgrade_is_pending() {
        let (open, completed) = (json!({}), json!({"outcome": "Completed"}));
        let (cancelled, rolled_back) = (json!({"outcome": "Cancelled"}), json!({"outcome": "RolledBack"}));
        for (record, version, label, pinned, wanted) in [
            (&completed, "v2", "v2---1", None, false),
            (&completed, "v2", "v2---2", None, true),
            (&completed, "v3", "v2---1", None, true),
            (&completed, "v2", "", None, false),
            // Packages follow the pinned release.
            (&completed, "v2", "v2---2", Some("v2---1"), false),
            (&completed, "v2", "v2---1", Some("v2---2"), true),
            (&rolled_back, "v2", "v2---1", None, false),
            (&rolled_back, "v3", "v3---1", None, true),
            (&cancelled, "v2", "v3---1", None, false),
            (&cancelled, "v3", "v3---1", None, true),
            (&open, "v3", "v3---1", None, false),
        ] {
            let seen = pending(record, version, label, pinned);
            assert_eq!(seen, wanted, "{record} {version} {label} {pinned:?}");
        }
    }

    #[test]
    fn nothing_is_pending_where_no_record_will_follow() {
        let mut legacy = given(Some("old"), None);
        assert_eq!(seen(&legacy).map(|view| view.pending), Some(false));
        legacy.clusters.clear();
        assert!(seen(&legacy).is_none());
    }

    #[test]
    fn an_undecodable_cluster_is_shown_without_a_record() {
        let labels = json!({label::TKR: "v1"});
        let mut given = given(Some("v1"), Some(&record(1, "uid")));
        given.undecodable = vec![undecodable("ClusterBootstrap", "one", &labels)];
        let shown = seen(&given).unwrap();
        assert_eq!((shown.managed, shown.upgrade.is_none()), (true, true));

        given.undecodable = vec![undecodable("Cluster", "one", &labels)];
        let shown = seen(&given).unwrap();
        assert_eq!((shown.tkr_label.as_str(), shown.upgrade.is_none()), ("v1", true));
        assert_eq!(shown.uid, "uid");
    }
}
