//! Plans of upgrades: the verb, admission of changed versions, and the record.

mod agreement;
mod gitops;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice_tests::extension::binary;
use sluice_tests::install::{Said, Shell};
use sluice_tests::scenario::Scene;

pub(crate) use agreement::scenario as agreement;
pub(crate) use gitops::scenario as gitops;

const DRY_RUN: &str = "--dry-run=server";

/// Annotation that has admission skip its checks for one version.
const EXEMPTION: &str = "lifecycle.sluice.dev/skip-upgrade-checks";

/// Has the API server ask Sluice about upgrades in the namespace of the scenario. Returns the path of the registration.
pub(crate) async fn admit(scene: &Scene) -> Result<String> {
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

/// Exit code and JSON of the verb.
pub(crate) async fn planned(shell: &Shell, scene: &Scene, arguments: &str) -> Result<(Option<i32>, Value)> {
    let said = verb(shell, scene, &format!("-o json {arguments}")).await?;
    let plan = serde_json::from_str::<Value>(&said.output);
    let plan = plan.with_context(|| format!("plan {arguments}: {said:?}"))?;
    Ok((said.code, plan))
}

/// Runs the verb of the binary under test in the namespace of the scenario.
async fn verb(shell: &Shell, scene: &Scene, arguments: &str) -> Result<Said> {
    let program = binary()?.canonicalize()?.display().to_string();
    let command = format!("\"$SLUICE\" plan -n {} {arguments}", scene.namespace());
    shell.run(&command, &[("SLUICE", program.as_str())]).await
}
