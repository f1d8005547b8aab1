//! Cached form of an object.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Resource,
    core::{DynamicObject, ObjectMeta},
};
use serde::Serialize;
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use crate::{cache::stores::OfCluster, decode::Decode, upgrade::hop::ControlPlane};

/// Annotation in which kubectl stores a whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Kind whose objects are packed. Unpacking restores the packed object exactly.
pub trait Kept: Resource + Serialize + Decode {
    /// Returns the Cluster, in the namespace of the object, that an object with this metadata is also indexed by.
    #[must_use]
    fn cluster_of(_meta: &ObjectMeta) -> Option<String> {
        None
    }

    /// Returns the Cluster, in the namespace of the object, that the object is also indexed by.
    fn cluster(&self) -> Option<String> {
        Self::cluster_of(self.meta())
    }

    /// Drops unused fields.
    fn prune(&mut self) {
        let meta = self.meta_mut();
        meta.managed_fields = None;
        meta.self_link = None;
        meta.generate_name = None;
        meta.creation_timestamp = None;
        if let Some(annotations) = &mut meta.annotations {
            annotations.remove(LAST_APPLIED);
        }
    }
}

impl Kept for Cluster {}

impl Kept for ClusterBootstrap {}

impl Kept for ClusterBootstrapTemplate {}

impl Kept for TanzuKubernetesRelease {}

impl Kept for OSImage {}

impl Kept for ConfigMap {}

impl Kept for ClusterClass {}

impl Kept for MachineDeployment {
    fn cluster_of(meta: &ObjectMeta) -> Option<String> {
        Self::cluster_in(meta)
    }
}

impl Kept for MachinePool {
    fn cluster_of(meta: &ObjectMeta) -> Option<String> {
        Self::cluster_in(meta)
    }
}

impl Kept for Package {}

impl Kept for PackageInstall {}

impl Kept for App {}

impl Kept for ControlPlane {}

impl Kept for DynamicObject {}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::compact::{Objects, Packer};

    /// Returns the cached form of `object`.
    fn left<K: Kept + Clone>(object: &Value) -> Value {
        let mut object: K = serde_json::from_value(object.clone()).unwrap();
        object.prune();
        let mut objects = Objects::new(std::sync::Arc::new(Packer::<K>::default()));
        // Some copies are compressed, and all are equal.
        let mut left = Vec::new();
        for _ in 0..10 {
            objects.insert(&object);
            left.push(serde_json::to_value(objects.get(Some("team-a"), "one").unwrap()).unwrap());
        }
        assert_eq!(left[0], serde_json::to_value(&object).unwrap());
        assert!(left.iter().all(|each| *each == left[0]));
        left.remove(0)
    }

    /// Returns an object as served by an API server, with the fields of `rest`.
    fn served(rest: &Value) -> Value {
        let mut object = rest.clone();
        object["apiVersion"] = json!("example.com/v1");
        object["kind"] = json!("Kind");
        object["metadata"] = json!({
            "name": "one", "namespace": "team-a", "uid": "uid", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": {"label": "value"}, "annotations": {LAST_APPLIED: "{}", "other": "value"},
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        });
        object
    }

    #[test]
    fn unused_fields_are_dropped() {
        let left = left::<Cluster>(&served(&json!({"spec": {"paused": true}})));
        let expected = json!({
            "name": "one", "namespace": "team-a", "uid": "uid", "resourceVersion": "7", "generation": 3,
            "labels": {"label": "value"}, "annotations": {"other": "value"},
        });
        assert_eq!(left["metadata"], expected);
        assert_eq!(left["spec"]["paused"], true);
    }

    #[test]
    fn used_fields_of_each_kind_stay() {
        let workers = json!({
            "spec": {"template": {"spec": {"version": "v1.36.3"}}},
            "status": {"replicas": 3, "upToDateReplicas": 2, "versions": [{"version": "v1.35.4", "replicas": 1}]},
        });
        left::<MachineDeployment>(&served(&workers));
        left::<MachinePool>(&served(&workers));
        let spec = json!({"refName": "a.example.com", "version": "1.0.0", "template": {"spec": {"fetch": [null, {"a": 1.5}]}}});
        let package = left::<Package>(&served(&json!({"spec": spec})));
        assert_eq!(package["spec"], spec, "it is copied to workload clusters");
        let plane = json!({"spec": {"version": "v1.36.3"}, "status": {"version": "v1.36.3", "versions": [{"version": "v1.35.4"}]}});
        let plane = left::<ControlPlane>(&served(&plane));
        assert_eq!(plane["status"]["versions"][0]["version"], "v1.35.4");
        left::<App>(&served(
            &json!({"spec": {"paused": true}, "status": {"observedGeneration": 3}}),
        ));
        left::<PackageInstall>(&served(
            &json!({"spec": {"serviceAccountName": "sa"}, "status": {"observedGeneration": 3}}),
        ));
        left::<ClusterClass>(&served(&json!({"spec": {"kubernetesVersions": ["v1.35.4"]}})));
        left::<ClusterBootstrapTemplate>(&served(&json!({"spec": {"cni": {"refName": "antrea"}}})));
        let release = json!({"spec": {"version": "v1.36.3", "kubernetes": {"version": "v1.36.3"}, "bootstrapPackages": []}});
        left::<TanzuKubernetesRelease>(&served(&release));
    }
}
