//! CustomResourceDefinitions of kinds that the harness and its tests make up.

use serde_json::{Value, json};

/// A namespaced kind with one version, whose spec and status take anything. Its plural is the kind with an `s`.
#[must_use]
pub fn open(group: &str, kind: &str, version: &str, subresources: &Value) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": format!("{singular}s"), "singular": singular},
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}
