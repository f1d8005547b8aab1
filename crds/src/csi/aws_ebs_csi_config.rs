//! AwsEbsCSIConfig: how the driver of EBS volumes is set up in a workload cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CloudCSIDriver;
use crate::config_status::ConfigStatus;

/// How the driver of EBS volumes is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "csi.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "AwsEbsCSIConfig",
    plural = "awsebscsiconfigs",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How the driver of EBS volumes is set up in a workload cluster."
)]
pub struct AwsEbsCSIConfigSpec {
    /// The driver.
    #[serde(rename = "awsEBSCSIDriver")]
    pub driver: CloudCSIDriver<String>,
}
