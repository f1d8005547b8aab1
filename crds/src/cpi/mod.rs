//! `cpi.tanzu.vmware.com/v1alpha1`: configuration of cloud providers.

pub mod kubevip_cpi_config;
pub mod oracle_cpi_config;
pub mod proxy;
pub mod vsphere_cpi_config;

pub use kubevip_cpi_config::{KubevipCPIConfig, KubevipCPIConfigSpec};
pub use oracle_cpi_config::{
    OracleCPIConfig, OracleCPIConfigSpec, OracleLoadBalancer, SecurityListManagementMode, SecurityListSubnet,
};
pub use proxy::Proxy;
pub use vsphere_cpi_config::{
    IpFamily, Nsxt, NsxtRoute, VSphereCPI, VSphereCPIConfig, VSphereCPIConfigSpec, VSphereCPIMode, VmNetwork,
};
