//! AzureDiskCSIConfig: how the driver of Azure disks is set up in a workload cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CloudCSIDriver;
use crate::config_status::ConfigStatus;

/// How the driver of Azure disks is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "csi.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "AzureDiskCSIConfig",
    plural = "azurediskcsiconfigs",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How the driver of Azure disks is set up in a workload cluster."
)]
pub struct AzureDiskCSIConfigSpec {
    /// The driver.
    #[serde(rename = "azureDiskCSIDriver")]
    pub driver: CloudCSIDriver<Option<String>>,
}
