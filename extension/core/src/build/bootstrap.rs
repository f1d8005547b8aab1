//! The ClusterBootstrap of a Cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_crds::labels::annotation;
use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapSpec};

use super::Owner;

/// A reference to the Cluster. Only the ClusterBootstrap names it as its controller.
#[must_use]
pub fn owner(cluster: &Owner, controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: "Cluster".to_owned(),
        name: cluster.name.clone(),
        uid: cluster.uid.clone(),
        controller: controller.then_some(true),
        block_owner_deletion: controller.then_some(true),
    }
}

/// The ClusterBootstrap of `cluster`, of the same name and namespace, with the packages of `release`.
#[must_use]
pub fn bootstrap(cluster: &Owner, spec: ClusterBootstrapSpec, release: &str) -> ClusterBootstrap {
    ClusterBootstrap {
        metadata: ObjectMeta {
            name: Some(cluster.name.clone()),
            namespace: Some(cluster.namespace.clone()),
            owner_references: Some(vec![owner(cluster, true)]),
            annotations: Some([(annotation::RESOLVED_TKR.to_owned(), release.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
