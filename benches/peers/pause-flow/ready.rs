//! Readiness of a package, which the addons-manager never checks.

use anyhow::Result;
use serde_json::Value;

use crate::objects::{of_group, text};
use crate::rest::Rest;

/// Whether PackageInstall and App of this name both say that the package is reconciled at `version`, and have seen their latest spec.
pub(crate) async fn is_ready(rest: &Rest, namespace: &str, name: &str, version: &str) -> Result<bool> {
    let path = |group: &str, resource: &str| format!("{}/{name}", of_group(group, namespace, resource));
    let install = rest
        .get(&path("packaging.carvel.dev/v1alpha1", "packageinstalls"))
        .await?
        .unwrap_or_default();
    let app = rest
        .get(&path("kappctrl.k14s.io/v1alpha1", "apps"))
        .await?
        .unwrap_or_default();
    let deployed = text(
        &app,
        "/metadata/annotations/packaging.carvel.dev~1package-version",
    );
    Ok(is_reconciled(&install)
        && is_reconciled(&app)
        && install["status"]["version"] == version
        && deployed == version)
}

fn is_reconciled(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let reconciled = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "ReconcileSucceeded" && condition["status"] == "True");
    reconciled && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}
