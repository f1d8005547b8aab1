//! CalicoConfig: how Calico is set up in a workload cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_status::ConfigStatus;

/// How Calico is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "cni.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "CalicoConfig",
    plural = "calicoconfigs",
    shortname = "calicoconf",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How Calico is set up in a workload cluster.",
    printcolumn = r#"{"name": "VethMTU", "type": "string", "jsonPath": ".spec.calico.config.vethMTU", "description": "MTU of Pod interfaces"}"#,
    printcolumn = r#"{"name": "SecretRef", "type": "string", "jsonPath": ".status.secretRef", "description": "Secret with the values for the calico package"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct CalicoConfigSpec {
    /// Calico itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calico: Option<Calico>,
}

/// Calico itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Calico {
    /// Its settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<CalicoSettings>,
}

/// Settings of Calico.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CalicoSettings {
    /// MTU of Pod interfaces; 0 lets Calico find out.
    #[serde(rename = "vethMTU")]
    #[schemars(range(min = 0))]
    pub veth_mtu: i64,
    /// Whether CNI binaries are on the node already.
    #[serde(rename = "skipCNIBinaries")]
    pub skip_cni_binaries: bool,
}
