//! AzureFileCSIConfig: how the driver of Azure file shares is set up in a workload cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CloudCSIDriver;
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
    pub driver: CloudCSIDriver<String>,
}
