//! Owners of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

/// Label that names the Cluster, on every object of a Cluster.
pub(super) const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

/// The Cluster that an object belongs to; none before Cluster API has set an owner.
pub(super) fn cluster<K: ResourceExt>(object: &K) -> Option<&str> {
    object.owner_references().first()?;
    object.labels().get(CLUSTER_NAME).map(String::as_str)
}

/// The owner of `kind`.
pub(super) fn owner<'a>(metadata: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind == kind)
}

/// A reference to `object` as the owner of something else.
pub(super) fn reference<K: Resource<DynamicType = ()>>(object: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": object.name_any(),
        "uid": object.uid().unwrap_or_default(),
        "controller": true,
    })
}

/// Selects the objects of one Cluster.
pub(super) fn of_cluster(cluster: &str) -> ListParams {
    ListParams::default().labels(&format!("{CLUSTER_NAME}={cluster}"))
}
