//! VSphereCSIConfig: how the storage driver of vSphere is set up in a workload cluster.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ProxySettings, config_status::ConfigStatus, run::TypedLocalObjectReference, schema::is_false};

/// How the storage driver of vSphere is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "csi.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "VSphereCSIConfig",
    plural = "vspherecsiconfigs",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How the storage driver of vSphere is set up in a workload cluster."
)]
pub struct VSphereCSIConfigSpec {
    /// The driver.
    #[serde(rename = "vsphereCSI")]
    pub vsphere_csi: VSphereCSI,
}

/// The storage driver of vSphere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VSphereCSI {
    /// Whether it speaks to vCenter or to a Supervisor.
    pub mode: VSphereCSIMode,
    /// Its settings towards vCenter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<VSphereCSISettings>,
}

/// Whom the driver speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VSphereCSIMode {
    /// vCenter.
    #[serde(rename = "vsphereCSI")]
    VCenter,
    /// A Supervisor.
    #[serde(rename = "vsphereParavirtualCSI")]
    Paravirtual,
}

/// Settings towards vCenter. What is absent comes from the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VSphereCSISettings {
    /// Thumbprint of vCenter's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_thumbprint: Option<String>,
    /// Namespace of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the cluster in vCenter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Address of vCenter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Datacenter of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// Network that file volumes are reached through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_network: Option<String>,
    /// Secret with `username` and `password` for vCenter.
    #[serde(
        rename = "vSphereCredentialLocalObjRef",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub credential: Option<TypedLocalObjectReference>,
    /// Tag category of regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Tag category of zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Trusts vCenter without looking at its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_flag: Option<bool>,
    /// Whether region and zone are topology categories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_topology_categories: Option<bool>,
    /// How long a volume may take to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision_timeout: Option<String>,
    /// How long a volume may take to be attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_timeout: Option<String>,
    /// How long a volume may take to be resized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resizer_timeout: Option<String>,
    /// Version of vSphere.
    #[serde(rename = "vSphereVersion", default, skip_serializing_if = "Option::is_none")]
    pub vsphere_version: Option<String>,
    /// Proxies.
    #[serde(flatten)]
    pub proxies: ProxySettings,
    /// Replicas of the controller, between 1 and 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_replicas: Option<i32>,
    /// Whether there are Windows nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_support: Option<bool>,
    /// Who may use file volumes, by a name that only tells them apart.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub net_permissions: BTreeMap<String, NetPermission>,
}

/// Who may use file volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetPermission {
    /// Address, range or network; everybody when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ips: Option<String>,
    /// `READ_WRITE`, `READ_ONLY` or `NO_ACCESS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Whether root is mapped to nobody.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rootsquash: bool,
}
