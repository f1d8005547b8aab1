//! KubevipCPIConfig: addresses that kube-vip gives to load balancers.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config_status::ConfigStatus;

/// Addresses that kube-vip gives to load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "cpi.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "KubevipCPIConfig",
    plural = "kubevipcpiconfigs",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "Addresses that kube-vip gives to load balancers in a workload cluster."
)]
pub struct KubevipCPIConfigSpec {
    /// Networks in CIDR notation, comma separated.
    #[serde(
        rename = "loadbalancerCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub loadbalancer_cidrs: Option<String>,
    /// Ranges as `first-last`, comma separated.
    #[serde(
        rename = "loadbalancerIPRanges",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub loadbalancer_ip_ranges: Option<String>,
}
