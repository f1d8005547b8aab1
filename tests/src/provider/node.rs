//! Nodes, as their kubelets would register them.

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::condition;
use super::error::Error;
use crate::requests::apply::FIELD_MANAGER;

/// Creates a Node that is ready, or updates it.
pub(super) async fn register(
    client: &Client,
    name: &str,
    provider_id: &str,
    version: &str,
) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {
            "providerID": provider_id,
            // Cluster API waits for a Node that had it, and removes it.
            "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
        },
    });
    match nodes
        .create(
            &PostParams::default(),
            &serde_json::from_value(node).map_err(anyhow::Error::from)?,
        )
        .await
    {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    let status = json!({"apiVersion": "v1", "kind": "Node", "status": status(version)});
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    nodes
        .patch_status(name, &parameters, &Patch::Apply(&status))
        .await?;
    Ok(())
}

/// Deletes a Node, if it is there.
pub(super) async fn delete(client: &Client, name: &str) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

fn status(version: &str) -> Value {
    let mut conditions = vec![condition::holds("Ready", "KubeletReady")];
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        let mut condition = condition::holds(kind, "KubeletHasEnough");
        condition["status"] = "False".into();
        conditions.push(condition);
    }
    json!({
        "conditions": conditions,
        "nodeInfo": {
            "kubeletVersion": version,
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
        },
    })
}
