//! VSphereCPIConfig: how the cloud provider of vSphere is set up in a workload cluster.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Proxy;
use crate::{config_status::ConfigStatus, run::TypedLocalObjectReference};

/// How the cloud provider of vSphere is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "cpi.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "VSphereCPIConfig",
    plural = "vspherecpiconfigs",
    shortname = "vcpic",
    namespaced,
    status = "ConfigStatus",
    derive = "PartialEq",
    doc = "How the cloud provider of vSphere is set up in a workload cluster.",
    printcolumn = r#"{"name": "Name", "type": "string", "jsonPath": ".metadata.name", "description": "Name of the configuration"}"#,
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.vsphereCPI.mode", "description": "Whether it speaks to vCenter or to a Supervisor"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
pub struct VSphereCPIConfigSpec {
    /// The cloud provider.
    #[serde(rename = "vsphereCPI")]
    pub vsphere_cpi: VSphereCPI,
}

/// The cloud provider of vSphere. What is absent comes from the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VSphereCPI {
    /// Whether it speaks to vCenter or to a Supervisor. Without it nothing is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<VSphereCPIMode>,
    /// Address of vCenter.
    #[serde(
        rename = "vCenterAPIEndpoint",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub vcenter_api_endpoint: Option<String>,
    /// Datacenter of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    /// Secret with `username` and `password` for vCenter.
    #[serde(
        rename = "vSphereCredentialLocalObjRef",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub credential: Option<TypedLocalObjectReference>,
    /// Thumbprint of vCenter's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_thumbprint: Option<String>,
    /// Tag category of regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Tag category of zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Trusts vCenter without looking at its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    /// Address families of nodes, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_family: Option<IpFamily>,
    /// Networks of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_network: Option<VmNetwork>,
    /// Cipher suites, comma separated.
    #[serde(default = "default_cipher_suites")]
    #[schemars(extend("default" = json!(default_cipher_suites())))]
    pub tls_cipher_suites: String,
    /// NSX-T.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsxt: Option<Nsxt>,
    /// Proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// Routes Pods through Antrea and NSX; with a Supervisor only.
    #[serde(rename = "antreaNSXPodRoutingEnabled", default)]
    pub antrea_nsx_pod_routing_enabled: bool,
}

fn default_cipher_suites() -> String {
    [
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ]
    .join(",")
}

/// Whom the cloud provider speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VSphereCPIMode {
    /// vCenter.
    #[serde(rename = "vsphereCPI")]
    VCenter,
    /// A Supervisor.
    #[serde(rename = "vsphereParavirtualCPI")]
    Paravirtual,
}

/// Address families of nodes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IpFamily {
    /// IPv4 alone.
    #[serde(rename = "ipv4")]
    V4,
    /// IPv6 alone.
    #[serde(rename = "ipv6")]
    V6,
    /// IPv4 first.
    #[serde(rename = "ipv4,ipv6")]
    V4V6,
    /// IPv6 first.
    #[serde(rename = "ipv6,ipv4")]
    V6V4,
}

impl IpFamily {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
            Self::V4V6 => "ipv4,ipv6",
            Self::V6V4 => "ipv6,ipv4",
        }
    }
}

/// Networks of the machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmNetwork {
    /// Network of internal addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal: Option<String>,
    /// Network of external addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// Range whose addresses are never internal ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_internal_subnet_cidr: Option<String>,
    /// Range whose addresses are never external ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_external_subnet_cidr: Option<String>,
}

/// How NSX-T is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nsxt {
    /// Whether NSX-T routes Pods.
    #[serde(default)]
    pub pod_routing_enabled: bool,
    /// Where to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<NsxtRoute>,
    /// Secret with `username` and `password` for NSX-T.
    #[serde(
        rename = "credentialLocalObjRef",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub credential: Option<TypedLocalObjectReference>,
    /// Address of NSX-T.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_host: Option<String>,
    /// Trusts NSX-T without looking at its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    /// Whether vIDM authenticates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_auth: Option<bool>,
    /// Token of VMware Cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmc_access_token: Option<String>,
    /// Host that checks the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmc_auth_host: Option<String>,
    /// Key of the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_key_data: Option<String>,
    /// Client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_data: Option<String>,
    /// CA certificate of NSX-T.
    #[serde(rename = "rootCAData", default, skip_serializing_if = "Option::is_none")]
    pub root_ca_data: Option<String>,
}

/// Where NSX-T routes Pods to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NsxtRoute {
    /// Path of the logical router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_path: Option<String>,
}
