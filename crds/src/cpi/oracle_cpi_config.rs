//! OracleCPIConfig: how the cloud provider of Oracle is set up in a workload cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Proxy;
use crate::config_status::ConfigStatus;

/// How the cloud provider of Oracle is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "cpi.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "OracleCPIConfig",
    plural = "oraclecpiconfigs",
    shortname = "ocicpicfgs",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How the cloud provider of Oracle is set up in a workload cluster.",
    printcolumn = r#"{"name": "Name", "type": "string", "jsonPath": ".metadata.name", "description": "Name of the configuration"}"#,
    printcolumn = r#"{"name": "Secret", "type": "string", "jsonPath": ".status.secretRef", "description": "Secret with the values for the package"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct OracleCPIConfigSpec {
    /// Compartment of the cluster.
    pub compartment: String,
    /// Virtual cloud network of the cluster.
    pub vcn: String,
    /// Load balancers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<OracleLoadBalancer>,
    /// Proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
}

/// How load balancers are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OracleLoadBalancer {
    /// First subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = SUBNET))]
    pub subnet1: Option<String>,
    /// Second subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = SUBNET))]
    pub subnet2: Option<String>,
    /// Which rules of security lists the cloud provider manages.
    #[serde(default)]
    pub security_list_management_mode: SecurityListManagementMode,
    /// Security lists that are changed, by subnet; those of the subnets when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_list_subnet_mapping: Vec<SecurityListSubnet>,
}

const SUBNET: &str = r"^ocid1\.subnet\.oc[0-9]+\.[a-z0-9]*\.[a-z0-9]+$";
const SECURITY_LIST: &str = r"^ocid1\.securitylist\.oc[0-9]+\.[a-z0-9]*\.[a-z0-9]+$";

/// Which rules of security lists the cloud provider manages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SecurityListManagementMode {
    /// All that load balancers need.
    #[default]
    All,
    /// Those into load balancers.
    Frontend,
    /// None.
    None,
}

/// The security list of a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityListSubnet {
    /// The subnet.
    #[schemars(extend("pattern" = SUBNET))]
    pub subnet: String,
    /// Its security list.
    #[schemars(extend("pattern" = SECURITY_LIST))]
    pub security_list: String,
}
