//! Objects as documents, applied server-side.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::wait;

/// Field manager of everything that the harness applies.
pub const FIELD_MANAGER: &str = "sluice-harness";

/// The documents of a YAML text; empty ones are left out.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("parse YAML")?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Applies one object of any kind that the server serves.
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object.clone()).context("read an object to apply")?;
    let types = object.types.clone().context("an object to apply has no kind")?;
    let name = object
        .metadata
        .name
        .clone()
        .context("an object to apply has no name")?;
    let what = format!("apply {} {name}", types.kind);
    let gvk = GroupVersionKind::try_from(&types).with_context(|| what.clone())?;
    let (resource, capabilities) = pinned_kind(client, &gvk).await.with_context(|| what.clone())?;
    let api: Api<DynamicObject> = match (capabilities.scope, object.metadata.namespace.as_deref()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(&object))
        .await
        .context(what)
}

/// Applies objects one after the other.
pub async fn apply_all(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects {
        apply(client, object).await?;
    }
    Ok(())
}

/// Applies CustomResourceDefinitions at once and waits until all are served.
pub async fn apply_crds(client: &Client, definitions: &[Value]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let applied = try_join_all(definitions.iter().map(async |definition| {
        let name = definition["metadata"]["name"]
            .as_str()
            .context("a CustomResourceDefinition has no name")?;
        let patch = Patch::Apply(definition);
        api.patch(name, &parameters, &patch)
            .await
            .with_context(|| format!("apply CustomResourceDefinition {name}"))
    }))
    .await?;
    try_join_all(
        applied
            .iter()
            .map(async |definition| established(&api, &definition.name_any()).await),
    )
    .await?;
    Ok(())
}

async fn established(api: &Api<CustomResourceDefinition>, name: &str) -> Result<()> {
    let what = format!("CustomResourceDefinition {name} to be established");
    wait::until(what, Duration::from_mins(2), || async {
        let conditions = api
            .get(name)
            .await?
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        match conditions
            .iter()
            .find(|condition| condition.type_ == "Established")
        {
            Some(condition) if condition.status == "True" => Ok(()),
            Some(condition) => wait::not_yet(format!("{:?} {:?}", condition.reason, condition.message)),
            None => wait::not_yet("no condition Established"),
        }
    })
    .await?;
    Ok(())
}

/// Creates a namespace, or finds it.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply(client, &namespace).await.map(drop)
}
