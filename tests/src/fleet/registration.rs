//! An ExtensionConfig whose hooks count as discovered, as in an installation where the gate of each Cluster is in force. No Cluster API
//! runs beside a fleet, so nothing calls the hooks.

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::{Value, json};

use crate::extension::registration::{Scope, extension_config, path};
use crate::requests::{apply, edit};

/// Name that Sluice expects.
const NAME: &str = "sluice";

/// Any text in base64: the schema requires one.
const CA_BUNDLE: &str = "Cg==";

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
    let config = extension_config(NAME, "https://127.0.0.1", CA_BUNDLE, &Scope::Everywhere);
    let created = apply::apply(client, &config).await?;
    let generation = created.metadata.generation.unwrap_or_default();
    edit::merge(client, &format!("{}/status", path(NAME)), &status(generation))
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
