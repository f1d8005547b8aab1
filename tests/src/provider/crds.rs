//! The provider's CustomResourceDefinitions.

use serde_json::{Value, json};

use crate::objects::definition;

/// API group of the provider's kinds.
pub const GROUP: &str = "harness.test";

/// The one version of that group.
pub const VERSION: &str = "v1beta1";

/// API group of infrastructure that packages know by its kind.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

const KINDS: [(&str, &str); 7] = [
    (GROUP, "HarnessCluster"),
    (GROUP, "HarnessControlPlane"),
    (GROUP, "HarnessMachine"),
    (GROUP, "HarnessConfig"),
    (INFRASTRUCTURE_GROUP, "DockerCluster"),
    (INFRASTRUCTURE_GROUP, "VSphereCluster"),
    (INFRASTRUCTURE_GROUP, "VSphereMachine"),
];

/// The kinds and a template of each.
#[must_use]
pub fn definitions() -> Vec<Value> {
    KINDS
        .iter()
        .flat_map(|(group, kind)| {
            [
                definition(group, kind, &subresources(kind)),
                definition(group, &format!("{kind}Template"), &json!({})),
            ]
        })
        .collect()
}

/// What an operator of a control plane provider with a group of its own applies beside Sluice, so that it may be read.
#[must_use]
pub fn reader_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "sluice-reads-harness-control-planes",
            "labels": {"sluice.dev/aggregate-to-extension": "true"},
        },
        "rules": [{
            "apiGroups": [GROUP],
            "resources": ["harnesscontrolplanes"],
            "verbs": ["get", "list", "watch"],
        }],
    })
}

fn subresources(kind: &str) -> Value {
    match kind {
        "HarnessControlPlane" => json!({
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        }),
        _ => json!({"status": {}}),
    }
}

fn definition(group: &str, kind: &str, subresources: &Value) -> Value {
    let mut definition = definition::open(group, kind, VERSION, subresources);
    // Tells Cluster API which version of the kind speaks which version of its contract.
    definition["metadata"]["labels"] = json!({"cluster.x-k8s.io/v1beta2": VERSION});
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_every_template_is_defined_once() {
        let names: Vec<String> = definitions()
            .iter()
            .map(|definition| definition["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names.len(), 14);
        assert!(
            names.contains(&"harnesscontrolplanetemplates.harness.test".to_owned()),
            "{names:?}"
        );
    }
}
