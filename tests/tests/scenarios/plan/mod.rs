//! Plans of upgrades: the verb, admission of changed versions, and the record.

mod agreement;
mod gitops;

use anyhow::Result;
use serde_json::Value;
use sluice_tests::install::{Said, Shell};
use sluice_tests::scenario::Scene;

pub(crate) use agreement::scenario as agreement;
pub(crate) use gitops::scenario as gitops;

const DRY_RUN: &str = "--dry-run=server";

/// Has the API server ask Sluice about upgrades in the namespace of the scenario. Returns the path of the registration.
async fn admit(scene: &Scene) -> Result<String> {
    let name = format!("sluice-upgrades-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit_upgrades(&name, &[scene.namespace()]).await?;
    Ok(format!(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}"
    ))
}

/// Merges a change into Cluster `one` with kubectl.
async fn patch(shell: &Shell, change: &Value, flags: &str) -> Result<Said> {
    let command =
        format!("kubectl patch clusters.cluster.x-k8s.io one --type merge --patch \"$CHANGE\" {flags}");
    let change = change.to_string();
    shell.run(&command, &[("CHANGE", change.as_str())]).await
}
