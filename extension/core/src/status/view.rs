//! View of one Cluster in the status service.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use sluice_crds::{
    foreign::{Cluster, cluster::Topology},
    run::{ClusterBootstrap, Outcome, TanzuKubernetesRelease, UpgradeRecord},
};

use crate::{
    cache::stores::{Found, Stores, is_legacy_release},
    cluster::{ClusterRef, is_managed, release_of},
    upgrade::{record::of_cluster, tkr::pinned},
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
/// `TKR_DATA` takes precedence over the label in the choice of a release (decision 33): then a change of the label alone requests nothing.
/// A cancelled upgrade keeps its release independent of the label.
fn is_pending(record: &UpgradeRecord, topology: &Topology, label: &str) -> bool {
    let another_version = record.to != topology.version;
    match record.outcome {
        None => false,
        Some(Outcome::Cancelled) => another_version,
        Some(Outcome::Completed) => {
            let pinned = pinned(topology, &topology.version);
            let release = pinned.as_deref().unwrap_or(label);
            another_version || (!release.is_empty() && record.tkr.as_deref() != Some(release))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_crds::labels::label;

    use super::*;
    use crate::cache::stores::tests::{Given, object, undecodable};

    fn record(schema: i64, uid: &str) -> Value {
        json!({"spec": {}, "status": {"upgrade": {
            "schema": schema, "clusterUID": uid, "observedClusterGeneration": 1, "observedBootstrapGeneration": 1,
            "label": "v1", "to": "v1.36.3",
        }}})
    }

    fn given(label: Option<&str>, bootstrap: Option<&Value>) -> Given {
        let labels = label.map_or(json!({}), |label| json!({label::TKR: label}));
        let bootstrap = bootstrap.map(|rest| object(Some("ns"), "one", &json!({}), rest));
        Given {
            clusters: vec![object(Some("ns"), "one", &labels, &json!({"spec": {}}))],
            bootstraps: bootstrap.into_iter().collect(),
            releases: vec![object(
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
        given.clusters = vec![object(Some("ns"), "one", &json!({label::TKR: label}), &spec)];
        let view = seen(&given).unwrap();
        assert_eq!(view.topology_version, version);
        view.pending
    }

    #[test]
    fn a_difference_from_the_ended_upgrade_is_pending() {
        let (open, completed) = (json!({}), json!({"outcome": "Completed"}));
        let cancelled = json!({"outcome": "Cancelled"});
        for (record, version, label, pinned, wanted) in [
            (&completed, "v2", "v2---1", None, false),
            (&completed, "v2", "v2---2", None, true),
            (&completed, "v3", "v2---1", None, true),
            (&completed, "v2", "", None, false),
            // Packages follow the pinned release.
            (&completed, "v2", "v2---2", Some("v2---1"), false),
            (&completed, "v2", "v2---1", Some("v2---2"), true),
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
        given.undecodable = vec![undecodable("ClusterBootstrap", Some("ns"), "one", &labels)];
        let shown = seen(&given).unwrap();
        assert_eq!((shown.managed, shown.upgrade.is_none()), (true, true));

        given.undecodable = vec![undecodable("Cluster", Some("ns"), "one", &labels)];
        let shown = seen(&given).unwrap();
        assert_eq!((shown.tkr_label.as_str(), shown.upgrade.is_none()), ("v1", true));
        assert_eq!(shown.uid, "uid");
    }
}
