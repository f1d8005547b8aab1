//! Kinds whose objects are cached.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Resource,
    core::{DynamicObject, ObjectMeta},
};
use serde::Serialize;
use sluice_crds::{
    foreign::{
        App, Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall,
    },
    lifecycle::{ClusterUpgrade, UpgradeGate, UpgradeOverride},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use crate::{cache::stores::OfCluster, decode::Decode};

/// Annotation in which kubectl stores a whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Kind whose objects are cached.
pub trait Cached: Resource + Serialize + Decode {
    /// Whether a store keeps recently parsed objects for repeated hook calls. Kinds of which each workload cluster has a store do not.
    const IS_KEPT_PARSED: bool = true;

    /// Returns the Cluster, in the namespace of the object, that an object with this metadata is also indexed by.
    #[must_use]
    fn cluster_of(_meta: &ObjectMeta) -> Option<String> {
        None
    }

    /// Drops unused fields.
    fn prune(&mut self) {
        let meta = self.meta_mut();
        meta.creation_timestamp = None;
        prune(meta);
    }
}

fn prune(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.self_link = None;
    meta.generate_name = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

impl Cached for UpgradeOverride {
    /// The time of its creation limits its expiry.
    fn prune(&mut self) {
        prune(&mut self.metadata);
    }
}

impl Cached for MachineDeployment {
    fn cluster_of(meta: &ObjectMeta) -> Option<String> {
        Self::cluster_in(meta)
    }
}

impl Cached for MachinePool {
    fn cluster_of(meta: &ObjectMeta) -> Option<String> {
        Self::cluster_in(meta)
    }
}

impl Cached for PackageInstall {
    const IS_KEPT_PARSED: bool = false;
}

impl Cached for App {
    const IS_KEPT_PARSED: bool = false;
}

macro_rules! cached {
    ($($Kind:ty),+ $(,)?) => {
        $(impl Cached for $Kind {})+
    };
}
cached! {
    Cluster, ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease, OSImage, ConfigMap, ClusterClass, Package, ControlPlane,
    DynamicObject, UpgradeGate, ClusterUpgrade,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unused_metadata_is_dropped() {
        let object = json!({
            "metadata": {
                "name": "one", "namespace": "team-a", "uid": "uid", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": "2026-11-01T00:00:00Z", "generateName": "on",
                "labels": {"label": "value"}, "annotations": {LAST_APPLIED: "{}", "other": "value"},
                "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {"paused": true},
        });
        let mut cluster: Cluster = serde_json::from_value(object).unwrap();
        cluster.prune();
        let expected = json!({
            "name": "one", "namespace": "team-a", "uid": "uid", "resourceVersion": "7", "generation": 3,
            "labels": {"label": "value"}, "annotations": {"other": "value"},
        });
        assert_eq!(serde_json::to_value(&cluster.metadata).unwrap(), expected);
    }
}
