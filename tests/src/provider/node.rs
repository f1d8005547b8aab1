//! Nodes, as their kubelets would register them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::condition;
use super::error::Error;
use crate::requests::apply::FIELD_MANAGER;

/// Taint that the API server gives each new Node, until its controllers find it ready. None of those runs here.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Label of Nodes of control planes.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Label of every Node, with its name.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Creates the Node of a Machine, which is ready, or updates it.
pub(super) async fn register(
    client: &Client,
    name: &str,
    provider_id: &str,
    labels: &BTreeMap<String, String>,
    version: &str,
) -> Result<(), Error> {
    let spec = json!({
        "providerID": provider_id,
        // Cluster API waits for a Node that had it, and removes it.
        "taints": [{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"}],
    });
    create(client, name, &json!(labels), &spec, version).await
}

/// Creates the Node of a control plane, which has no Machine, and deletes those of its earlier versions.
pub(super) async fn replace_control_plane(
    client: &Client,
    name: &str,
    labels: &BTreeMap<String, String>,
    version: &str,
) -> Result<(), Error> {
    let mut labels = json!(labels);
    labels[CONTROL_PLANE] = json!("");
    create(client, name, &labels, &json!({}), version).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let listed = nodes.list(&ListParams::default().labels(CONTROL_PLANE)).await?;
    for earlier in listed.items.iter().filter(|node| node.name_any() != name) {
        delete(client, &earlier.name_any()).await?;
    }
    Ok(())
}

async fn create(
    client: &Client,
    name: &str,
    labels: &Value,
    spec: &Value,
    version: &str,
) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut labels = labels.clone();
    labels[HOSTNAME] = json!(name);
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
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
    let node = nodes
        .patch_status(name, &parameters, &Patch::Apply(&status))
        .await?;
    remove_taint(&nodes, &node).await
}

/// Lets Pods of DaemonSets run on a Node that is ready.
async fn remove_taint(nodes: &Api<Node>, node: &Node) -> Result<(), Error> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let Some(taints) = taints.filter(|taints| taints.iter().any(|taint| taint.key == NOT_READY)) else {
        return Ok(());
    };
    let others: Vec<_> = taints.iter().filter(|taint| taint.key != NOT_READY).collect();
    // With the resourceVersion: a list is replaced as a whole, and Cluster API writes taints too.
    let change = json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": others},
    });
    let parameters = PatchParams::default();
    nodes
        .patch(&node.name_any(), &parameters, &Patch::Merge(&change))
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
    // Room for the Pods of any scenario: kube-scheduler places none on a Node without it.
    let room = json!({"cpu": "8", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    json!({
        "conditions": conditions,
        "capacity": room,
        "allocatable": room,
        "nodeInfo": {
            "kubeletVersion": version,
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
        },
    })
}
