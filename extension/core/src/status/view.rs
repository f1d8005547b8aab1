//! What is shown of one Cluster.

use kube::core::ObjectMeta;
use sluice_crds::{
    foreign::Cluster,
    run::{ClusterBootstrap, TanzuKubernetesRelease, UpgradeRecord},
};

use crate::{
    cluster::{ClusterRef, is_managed, release_of},
    record::of_cluster,
    stores::{Found, Stores, is_legacy_release},
};

/// What a client of the status service sees of one Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// Its namespace and its name.
    pub cluster: ClusterRef,
    /// Its UID.
    pub uid: String,
    /// Its release label; empty without one.
    pub tkr_label: String,
    /// Whether hooks of it are decided by its packages.
    pub managed: bool,
    /// Its record, of a known schema and about this very Cluster.
    pub upgrade: Option<UpgradeRecord>,
}

/// What is shown of the Cluster of this name, if there is one. One that cannot be decoded is shown by its metadata, and without a
/// record: hooks are not answered from that either.
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
    let record = match &bootstrap {
        Ok(Some(bootstrap)) if found.is_ok() => bootstrap
            .status
            .as_ref()
            .and_then(|status| status.upgrade.as_ref()),
        _ => None,
    };
    Some(ClusterView {
        cluster: cluster.clone(),
        managed: is_managed(Some(&label), is_legacy_release(&release), has_bootstrap),
        upgrade: of_cluster(record, &uid).cloned(),
        tkr_label: label,
        uid,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_crds::labels::label;

    use super::*;
    use crate::stores::tests::{Given, object, undecodable};

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

    #[test]
    fn what_cannot_be_decoded_is_shown_without_a_record() {
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
