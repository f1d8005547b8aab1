//! HarnessCluster, DockerCluster and VSphereCluster: ready as soon as the control plane can be reached, and not before.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::api::Api;
use kube::core::object::HasStatus;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::error::Error;
use super::kinds::{HarnessControlPlane, Progress};
use super::runtime::{Context, REQUEUE};
use super::{condition, owner, patch};

pub(super) async fn reconcile<K>(object: Arc<K>, context: Arc<Context>) -> Result<Action, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + HasStatus<Status = Progress>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let done = object
        .status()
        .is_some_and(|status| status.initialization.provisioned);
    if done || object.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let Some(cluster) = owner::cluster(object.as_ref()) else {
        return Ok(Action::await_change());
    };
    if !control_plane_reported(&object.namespace().unwrap_or_default(), cluster, &context).await? {
        return Ok(Action::requeue(REQUEUE));
    }
    let status = json!({
        "initialization": {"provisioned": true},
        "conditions": [condition::holds("Ready", "Provisioned")],
    });
    patch::status(&context.client, object.as_ref(), &status).await?;
    Ok(Action::await_change())
}

/// Cluster API connects when the infrastructure is provisioned. If it then finds no kubeconfig, it tries again only 30 s later.
async fn control_plane_reported(namespace: &str, cluster: &str, context: &Context) -> Result<bool, Error> {
    let api: Api<HarnessControlPlane> = Api::namespaced(context.client.clone(), namespace);
    let planes = api.list(&owner::of_cluster(cluster)).await?;
    Ok(planes.items.iter().any(|plane| {
        plane
            .status
            .as_ref()
            .is_some_and(|status| status.version.is_some())
    }))
}
