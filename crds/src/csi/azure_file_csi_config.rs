//! AzureFileCSIConfig: how the driver of Azure file shares is set up in a workload cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_status::ConfigStatus;

/// How the driver of Azure file shares is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "csi.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "AzureFileCSIConfig",
    plural = "azurefilecsiconfigs",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How the driver of Azure file shares is set up in a workload cluster."
)]
pub struct AzureFileCSIConfigSpec {
    /// The driver.
    #[serde(rename = "azureFileCSIDriver")]
    pub driver: AzureFileCSIDriver,
}

/// The driver of Azure file shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureFileCSIDriver {
    /// Namespace of the driver.
    pub namespace: String,
    /// Proxy for plain connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// Proxy for TLS connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts that are reached directly, comma separated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Replicas of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_replicas: Option<i32>,
}
