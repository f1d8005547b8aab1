//! `csi.tanzu.vmware.com/v1alpha1`: configuration of storage drivers.

pub mod aws_ebs_csi_config;
pub mod azure_disk_csi_config;
pub mod azure_file_csi_config;
pub mod vsphere_csi_config;

pub use aws_ebs_csi_config::{AwsEbsCSIConfig, AwsEbsCSIConfigSpec, AwsEbsCSIDriver};
pub use azure_disk_csi_config::{AzureDiskCSIConfig, AzureDiskCSIConfigSpec, AzureDiskCSIDriver};
pub use azure_file_csi_config::{AzureFileCSIConfig, AzureFileCSIConfigSpec, AzureFileCSIDriver};
pub use vsphere_csi_config::{
    NetPermission, VSphereCSI, VSphereCSIConfig, VSphereCSIConfigSpec, VSphereCSIMode, VSphereCSISettings,
};
