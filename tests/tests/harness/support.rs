//! One package, its install and the rights that it needs.

use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};
use sluice_tests::requests::apply;

/// Namespace of everything here.
pub(crate) const NAMESPACE: &str = "packages";

/// Creates a package that deploys `object`, and installs it; does not wait for it.
pub(crate) async fn install(client: &Client, object: &Value) -> Result<()> {
    apply::namespace(client, NAMESPACE).await?;
    apply::apply_all(
        client,
        &[service_account(), binding(), package(object), package_install()],
    )
    .await
}

fn package(object: &Value) -> Value {
    json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1",
        "kind": "Package",
        "metadata": {"name": "words.harness.test.1.0.0", "namespace": NAMESPACE},
        "spec": {
            "refName": "words.harness.test",
            "version": "1.0.0",
            "template": {"spec": {
                "fetch": [{"inline": {"paths": {"config.yml": object.to_string()}}}],
                "template": [{"ytt": {"paths": ["config.yml"]}}],
                "deploy": [{"kapp": {}}],
            }},
        },
    })
}

fn package_install() -> Value {
    json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1",
        "kind": "PackageInstall",
        "metadata": {"name": "words", "namespace": NAMESPACE},
        "spec": {
            "serviceAccountName": "installer",
            "packageRef": {"refName": "words.harness.test", "versionSelection": {"constraints": "1.0.0"}},
        },
    })
}

fn service_account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": NAMESPACE}})
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "installer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": NAMESPACE}],
    })
}
