//! A ClusterClass with the templates that it needs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cluster::CLUSTER_API;
use crate::provider::{GROUP, SwapDelay, VERSION};

/// Name of the class and of every template.
const NAME: &str = "harness";

/// What can be chosen of a ClusterClass.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// Artificial pauses around a change of the control plane's version.
    pub swap_delay: SwapDelay,
    /// By version: values of the API server's `--runtime-config`.
    pub runtime_config: BTreeMap<String, Vec<String>>,
    /// Versions of chained upgrades; none leaves the field away.
    pub kubernetes_versions: Vec<String>,
    /// Handler that plans upgrades, `<handler>.<extension>`; none leaves the field away.
    pub upgrade_plan: Option<String>,
}

impl Class {
    /// Name of the ClusterClass.
    #[must_use]
    pub fn name() -> &'static str {
        NAME
    }

    /// Templates and class in `namespace`.
    #[must_use]
    pub fn objects(&self, namespace: &str) -> Vec<Value> {
        let control_plane = json!({
            "swapDelay": self.swap_delay,
            "runtimeConfig": self.runtime_config,
        });
        let mut class = json!({
            "apiVersion": CLUSTER_API,
            "kind": "ClusterClass",
            "metadata": {"name": NAME, "namespace": namespace},
            "spec": {
                "infrastructure": {"templateRef": reference("HarnessCluster")},
                "controlPlane": {"templateRef": reference("HarnessControlPlane")},
                "workers": {"machineDeployments": [{
                    "class": "default",
                    "bootstrap": {"templateRef": reference("HarnessConfig")},
                    "infrastructure": {"templateRef": reference("HarnessMachine")},
                }]},
            },
        });
        if !self.kubernetes_versions.is_empty() {
            class["spec"]["kubernetesVersions"] = json!(self.kubernetes_versions);
        }
        if let Some(handler) = &self.upgrade_plan {
            class["spec"]["upgrade"] = json!({"external": {"generateUpgradePlanExtension": handler}});
        }
        vec![
            template("HarnessCluster", namespace, &json!({})),
            template("HarnessControlPlane", namespace, &control_plane),
            template("HarnessMachine", namespace, &json!({})),
            template("HarnessConfig", namespace, &json!({})),
            class,
        ]
    }
}

fn reference(kind: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": format!("{kind}Template"), "name": NAME})
}

fn template(kind: &str, namespace: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": format!("{kind}Template"),
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"template": {"spec": spec}},
    })
}
