//! HarnessConfig: bootstrap data of a Machine, a Secret that is never read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::error::Error;
use super::kinds::HarnessConfig;
use super::runtime::Context;
use super::{condition, owner, patch};
use crate::requests::apply::FIELD_MANAGER;

pub(super) async fn reconcile(object: Arc<HarnessConfig>, context: Arc<Context>) -> Result<Action, Error> {
    let done = object
        .status
        .as_ref()
        .is_some_and(|status| status.initialization.data_secret_created);
    if done || object.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let (Some(cluster), Some(_)) = (
        owner::cluster(object.as_ref()),
        owner::owner(object.meta(), "Machine"),
    ) else {
        return Ok(Action::await_change());
    };
    let name = object.name_any();
    let secrets: Api<Secret> =
        Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": name,
            "labels": {owner::CLUSTER_NAME: cluster},
            "ownerReferences": [owner::reference(object.as_ref())],
        },
        "stringData": {"value": "#!/bin/true\n"},
    });
    secrets
        .patch(
            &name,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&secret),
        )
        .await?;
    let status = json!({
        "dataSecretName": name,
        "initialization": {"dataSecretCreated": true},
        "conditions": [condition::holds("Ready", "DataSecretCreated")],
    });
    patch::status(&context.client, object.as_ref(), &status).await?;
    Ok(Action::await_change())
}
