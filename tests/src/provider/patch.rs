//! Writes of the provider: merge patches of single fields.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::Error;

/// Kept on everything whose removal means work.
pub(super) const FINALIZER: &str = "harness.test/provider";

/// The API of the namespace of `object`.
pub(super) fn api<K>(client: &Client, object: &K) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &object.namespace().unwrap_or_default())
}

/// Merges `change` into `object`.
pub(super) async fn merge<K>(client: &Client, object: &K, change: &Value) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    api(client, object)
        .patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(change))
        .await?;
    Ok(())
}

/// Merges `status` into the status of `object`.
pub(super) async fn status<K>(client: &Client, object: &K, status: &Value) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    api(client, object)
        .patch_status(
            &object.name_any(),
            &PatchParams::default(),
            &Patch::Merge(json!({"status": status})),
        )
        .await?;
    Ok(())
}

/// Adds the finalizer where it is missing.
pub(super) async fn add_finalizer<K>(client: &Client, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    if object.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(());
    }
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    set_finalizers(client, object, &finalizers).await
}

/// Removes the finalizer where it is.
pub(super) async fn remove_finalizer<K>(client: &Client, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let others: Vec<String> = object
        .finalizers()
        .iter()
        .filter(|finalizer| *finalizer != FINALIZER)
        .cloned()
        .collect();
    if others.len() == object.finalizers().len() {
        return Ok(());
    }
    set_finalizers(client, object, &others).await
}

/// With the resourceVersion: a list is replaced as a whole, and Cluster API writes finalizers too.
async fn set_finalizers<K>(client: &Client, object: &K, finalizers: &[String]) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let change =
        json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    merge(client, object, &change).await
}
