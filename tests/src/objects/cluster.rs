//! Clusters.

use serde_json::{Value, json};

use super::class::Class;

/// API group and version of Cluster API's own kinds.
pub const CLUSTER_API: &str = "cluster.x-k8s.io/v1beta2";

/// Label that names the release of a Cluster.
pub const TKR: &str = "run.tanzu.vmware.com/tkr";

/// A Cluster of the harness's class. Without `tkr` it is none of Sluice's business.
#[must_use]
pub fn cluster(namespace: &str, name: &str, version: &str, tkr: Option<&str>, workers: u32) -> Value {
    let mut cluster = json!({
        "apiVersion": CLUSTER_API,
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "clusterNetwork": {
                "services": {"cidrBlocks": ["10.0.0.0/24"]},
                "pods": {"cidrBlocks": ["10.1.0.0/16"]},
            },
            "topology": {
                "classRef": {"name": Class::name()},
                "version": version,
                "controlPlane": {"replicas": 1},
            },
        },
    });
    if let Some(tkr) = tkr {
        cluster["metadata"]["labels"] = json!({TKR: tkr});
    }
    if workers > 0 {
        cluster["spec"]["topology"]["workers"] =
            json!({"machineDeployments": [{"class": "default", "name": "md", "replicas": workers}]});
    }
    cluster
}

/// The merge patch that upgrades a Cluster: label and version in one write.
#[must_use]
pub fn upgrade(version: &str, tkr: Option<&str>) -> Value {
    let mut patch = json!({"spec": {"topology": {"version": version}}});
    if let Some(tkr) = tkr {
        patch["metadata"] = json!({"labels": {TKR: tkr}});
    }
    patch
}
