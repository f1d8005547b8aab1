//! `csi.tanzu.vmware.com/v1alpha1`: configuration of storage drivers.

pub mod aws_ebs_csi_config;
pub mod azure_disk_csi_config;
pub mod azure_file_csi_config;
pub mod cloud_csi_driver;
pub mod vsphere_csi_config;

pub use aws_ebs_csi_config::{AwsEbsCSIConfig, AwsEbsCSIConfigSpec};
pub use azure_disk_csi_config::{AzureDiskCSIConfig, AzureDiskCSIConfigSpec};
pub use azure_file_csi_config::{AzureFileCSIConfig, AzureFileCSIConfigSpec};
pub use cloud_csi_driver::CloudCSIDriver;
pub use vsphere_csi_config::{
    NetPermission, VSphereCSI, VSphereCSIConfig, VSphereCSIConfigSpec, VSphereCSIMode, VSphereCSISettings,
};
