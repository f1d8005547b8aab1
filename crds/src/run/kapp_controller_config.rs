//! KappControllerConfig: how kapp-controller is set up in a workload cluster.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{ProxySettings, config_status::ConfigStatus};

/// How kapp-controller is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "run.tanzu.vmware.com",
    version = "v1alpha3",
    kind = "KappControllerConfig",
    plural = "kappcontrollerconfigs",
    shortname = "kappconf",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How kapp-controller is set up in a workload cluster.",
    printcolumn = r#"{"name": "Namespace", "type": "string", "jsonPath": ".spec.namespace", "description": "Namespace that kapp-controller runs in"}"#,
    printcolumn = r#"{"name": "GlobalNamespace", "type": "string", "jsonPath": ".spec.kappController.globalNamespace", "description": "Namespace whose packages are visible in all namespaces"}"#,
    printcolumn = r#"{"name": "SecretName", "type": "string", "jsonPath": ".status.secretRef", "description": "Secret with the values for the kapp-controller package"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct KappControllerConfigSpec {
    /// Namespace that kapp-controller runs in.
    pub namespace: String,
    /// Settings of kapp-controller itself.
    #[schemars(extend("default" = json!({"deployment": {"hostNetwork": true}})))]
    pub kapp_controller: KappController,
}

/// Settings of kapp-controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KappController {
    /// Whether the package creates the namespace that kapp-controller runs in.
    pub create_namespace: bool,
    /// Namespace whose packages are visible in all namespaces.
    pub global_namespace: String,
    /// The Deployment of kapp-controller.
    #[schemars(extend("default" = json!({"hostNetwork": true})))]
    pub deployment: KappDeployment,
    /// Proxies and certificates; what is absent comes from the Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<KappConfig>,
}

/// The Deployment of kapp-controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KappDeployment {
    /// Whether the pod shares the network of its node, which lets it run before a CNI does.
    pub host_network: bool,
    /// Priority class of the pod.
    pub priority_class_name: String,
    /// How many Apps are reconciled at the same time.
    pub concurrency: i64,
    /// Tolerations of the pod, each as a plain map.
    pub tolerations: Vec<BTreeMap<String, String>>,
    /// Port of the aggregated packaging API.
    pub api_port: i64,
    /// Address of the metrics endpoint; `0` turns it off.
    pub metrics_bind_address: String,
}

/// Proxies and certificates of kapp-controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KappConfig {
    /// CA certificates to trust beyond those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_certs: Option<String>,
    /// Proxies.
    #[serde(flatten)]
    pub proxies: ProxySettings,
    /// Hosts whose certificates are not verified, comma separated.
    #[serde(
        rename = "dangerousSkipTLSVerify",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub dangerous_skip_tls_verify: Option<String>,
}

impl Default for KappControllerConfigSpec {
    fn default() -> Self {
        Self {
            namespace: "tkg-system".to_owned(),
            kapp_controller: KappController::default(),
        }
    }
}

impl Default for KappController {
    fn default() -> Self {
        Self {
            create_namespace: false,
            global_namespace: "tkg-system".to_owned(),
            deployment: KappDeployment::default(),
            config: None,
        }
    }
}

impl Default for KappDeployment {
    fn default() -> Self {
        Self {
            host_network: true,
            priority_class_name: "system-cluster-critical".to_owned(),
            concurrency: 4,
            tolerations: default_tolerations(),
            api_port: 10_100,
            metrics_bind_address: "0".to_owned(),
        }
    }
}

/// kapp-controller has to run on nodes that wait for the very packages it installs.
fn default_tolerations() -> Vec<BTreeMap<String, String>> {
    [
        &[("key", "CriticalAddonsOnly"), ("operator", "Exists")][..],
        &[
            ("effect", "NoSchedule"),
            ("key", "node-role.kubernetes.io/control-plane"),
        ],
        &[
            ("effect", "NoSchedule"),
            ("key", "node-role.kubernetes.io/master"),
        ],
        &[("effect", "NoSchedule"), ("key", "node.kubernetes.io/not-ready")],
        &[
            ("effect", "NoSchedule"),
            ("key", "node.cloudprovider.kubernetes.io/uninitialized"),
            ("value", "true"),
        ],
    ]
    .iter()
    .map(|toleration| {
        toleration
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    })
    .collect()
}
