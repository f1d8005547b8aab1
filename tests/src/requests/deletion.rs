//! CustomResourceDefinitions that are being deleted.

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

/// Makes the API server retry the deletion of definitions after a failure.
///
/// Its finalizer first tries again after milliseconds, with the definition of its cache. Where that does not have the finalizer's own last
/// write of the status yet, the next write conflicts, and the finalizer leaves the definition until it changes in more than condition
/// Terminating, or until the resync of five minutes (`crd_finalizer.go` of apiextensions-apiserver 0.36.3).
pub async fn look_again(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions
        .list(&ListParams::default())
        .await
        .context("list CustomResourceDefinitions")?
    {
        let status = definition.status.as_ref();
        let has_failed = |reason: &str| ["InstanceDeletionFailed", "InstanceDeletionCheck"].contains(&reason);
        let failed = status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten()
            .any(|condition| condition.reason.as_deref().is_some_and(has_failed));
        if !failed {
            continue;
        }
        let name = definition.name_any();
        let change =
            json!({"metadata": {"annotations": {"sluice.dev/looked-at": definition.resource_version()}}});
        let touched = definitions
            .patch(&name, &PatchParams::default(), &Patch::Merge(change))
            .await;
        match touched {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            touched => drop(touched.with_context(|| format!("annotate CustomResourceDefinition {name}"))?),
        }
    }
    Ok(())
}
