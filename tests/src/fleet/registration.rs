//! An ExtensionConfig whose hooks count as discovered, as in an installation where the gate of each Cluster is in force. No Cluster API
//! runs beside a fleet, so nothing calls the hooks.

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::{Value, json};

use crate::requests::{apply, edit};

/// Name that Sluice expects.
const NAME: &str = "sluice";

/// Hooks that Sluice offers.
const HOOKS: [&str; 9] = [
    "BeforeClusterCreate",
    "AfterControlPlaneInitialized",
    "BeforeClusterUpgrade",
    "BeforeControlPlaneUpgrade",
    "AfterControlPlaneUpgrade",
    "BeforeWorkersUpgrade",
    "AfterWorkersUpgrade",
    "AfterClusterUpgrade",
    "BeforeClusterDelete",
];

/// Registers Sluice for all namespaces.
pub(super) async fn register(client: &Client) -> Result<()> {
    let config = json!({
        "apiVersion": "runtime.cluster.x-k8s.io/v1beta2",
        "kind": "ExtensionConfig",
        "metadata": {"name": NAME},
        "spec": {"clientConfig": {"url": "https://127.0.0.1"}, "namespaceSelector": {}},
    });
    let created = apply::apply(client, &config).await?;
    let generation = created.metadata.generation.unwrap_or_default();
    let path = format!("/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs/{NAME}/status");
    edit::merge(client, &path, &status(generation))
        .await?
        .context("the ExtensionConfig has vanished")?;
    Ok(())
}

/// Status that Cluster API writes after a discovery.
fn status(generation: i64) -> Value {
    let handlers = HOOKS.map(|hook| {
        json!({
            "name": format!("{}.{NAME}", hook.to_lowercase()),
            "requestHook": {"apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": hook},
            "timeoutSeconds": 10,
            "failurePolicy": "Fail",
        })
    });
    let discovered = json!({
        "type": "Discovered", "status": "True", "reason": "Discovered", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
    });
    json!({"status": {"conditions": [discovered], "handlers": handlers}})
}
