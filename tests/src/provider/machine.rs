//! HarnessMachine: a Node in the workload cluster.

use std::sync::Arc;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::error::Error;
use super::kinds::HarnessMachine;
use super::runtime::{Context, REQUEUE};
use super::{condition, node, owner, patch};

pub(super) async fn reconcile(object: Arc<HarnessMachine>, context: Arc<Context>) -> Result<Action, Error> {
    let (Some(cluster), Some(machine)) = (
        owner::cluster(object.as_ref()),
        owner::owner(object.meta(), "Machine"),
    ) else {
        return Ok(Action::await_change());
    };
    let namespace = object.namespace().unwrap_or_default();
    let workload = context.workloads.of_cluster(&namespace, cluster);
    let name = object.name_any();
    if object.meta().deletion_timestamp.is_some() {
        // Where the control plane is gone already, the Node went with it.
        if let Some(workload) = workload {
            node::delete(&workload.api.admin_client(), &name).await?;
        }
        patch::remove_finalizer(&context.client, object.as_ref()).await?;
        return Ok(Action::await_change());
    }
    if object
        .status
        .as_ref()
        .is_some_and(|status| status.initialization.provisioned)
    {
        return Ok(Action::await_change());
    }
    let Some(workload) = workload else {
        return Ok(Action::requeue(REQUEUE));
    };
    let machine = machines(&context, &namespace).get(&machine.name).await?;
    if machine.data["spec"]["bootstrap"]["dataSecretName"].is_null() {
        return Ok(Action::requeue(REQUEUE));
    }
    let version = machine.data["spec"]["version"].as_str().unwrap_or_default();
    patch::add_finalizer(&context.client, object.as_ref()).await?;
    let provider_id = format!("harness:////{namespace}/{name}");
    let labels = &object.spec.node_labels;
    node::register(&workload.api.admin_client(), &name, &provider_id, labels, version).await?;
    let change = json!({"spec": {"providerID": provider_id}});
    patch::merge(&context.client, object.as_ref(), &change).await?;
    let status = json!({
        "initialization": {"provisioned": true},
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "conditions": [condition::holds("Ready", "Provisioned")],
    });
    patch::status(&context.client, object.as_ref(), &status).await?;
    Ok(Action::await_change())
}

fn machines(context: &Context, namespace: &str) -> Api<DynamicObject> {
    let machine = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine");
    Api::namespaced_with(
        context.client.clone(),
        namespace,
        &ApiResource::from_gvk(&machine),
    )
}
