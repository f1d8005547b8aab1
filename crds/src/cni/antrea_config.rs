//! AntreaConfig: how Antrea is set up in a workload cluster.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{AntreaNsx, FeatureGates};
use crate::run::Condition;

/// How Antrea is set up.
// Strings are compared without optional chaining, which would hide their maximum length from the API server. The rules are those of the
// former admission webhook of these objects. Updates skip the rules for creation, because accepted objects must stay editable. An immutable
// field counts as its default if its parent is absent. So an object with an empty spec can get its settings later: the API server adds the
// defaults with the parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "cni.tanzu.vmware.com",
    version = "v1alpha1",
    kind = "AntreaConfig",
    plural = "antreaconfigs",
    shortname = "antreaconf",
    namespaced,
    status = "AntreaConfigStatus",
    derive = "PartialEq",
    doc = "How Antrea is set up in a workload cluster.",
    printcolumn = r#"{"name": "TrafficEncapMode", "type": "string", "jsonPath": ".spec.antrea.config.trafficEncapMode", "description": "How traffic between nodes is encapsulated"}"#,
    printcolumn = r#"{"name": "DefaultMTU", "type": "string", "jsonPath": ".spec.antrea.config.defaultMTU", "description": "MTU of Pod interfaces"}"#,
    printcolumn = r#"{"name": "AntreaProxy", "type": "string", "jsonPath": ".spec.antrea.config.featureGates.AntreaProxy", "description": "Whether Antrea serves Services"}"#,
    printcolumn = r#"{"name": "AntreaPolicy", "type": "string", "jsonPath": ".spec.antrea.config.featureGates.AntreaPolicy", "description": "Whether Antrea's own policies are on"}"#,
    printcolumn = r#"{"name": "SecretRef", "type": "string", "jsonPath": ".status.secretRef", "description": "Secret with the values for the antrea package"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "oldSelf.hasValue() || !self.?antrea.?config.?featureGates.?EndpointSlice.orValue(false) \
                 || self.?antrea.?config.?featureGates.?AntreaProxy.orValue(false)",
        "optionalOldSelf": true,
        "fieldPath": ".antrea.config.featureGates.EndpointSlice",
        "message": "field cannot be enabled if AntreaProxy is disabled",
    },
    {
        "rule": "oldSelf.hasValue() || !self.?antrea.?config.?noSNAT.orValue(false) \
                 || !(self.?antrea.?config.?trafficEncapMode.orValue('') in ['encap', 'hybrid'])",
        "optionalOldSelf": true,
        "fieldPath": ".antrea.config.noSNAT",
        "message": "field must be disabled for encap and hybrid mode",
    },
    {
        "rule": "self.?antrea.?config.?noSNAT.orValue(false) == oldSelf.?antrea.?config.?noSNAT.orValue(false)",
        "fieldPath": ".antrea.config.noSNAT",
        "message": "field is immutable",
    },
    {
        "rule": "self.?antrea.?config.?disableUdpTunnelOffload.orValue(false) \
                 == oldSelf.?antrea.?config.?disableUdpTunnelOffload.orValue(false)",
        "fieldPath": ".antrea.config.disableUdpTunnelOffload",
        "message": "field is immutable",
    },
    {
        "rule": stays("tlsCipherSuites", &default_cipher_suites()),
        "fieldPath": ".antrea.config.tlsCipherSuites",
        "message": "field is immutable",
    },
    {
        "rule": stays("trafficEncapMode", "encap"),
        "fieldPath": ".antrea.config.trafficEncapMode",
        "message": "field is immutable",
    },
    {
        "rule": "self.?antreaNsx.?enable.orValue(false) == oldSelf.?antreaNsx.?enable.orValue(false)",
        "fieldPath": ".antreaNsx.enable",
        "message": "field is immutable",
    },
]))]
pub struct AntreaConfigSpec {
    /// Antrea itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub antrea: Option<Antrea>,
    /// Its connection to NSX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub antrea_nsx: Option<AntreaNsx>,
}

/// Antrea itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Antrea {
    /// Its settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AntreaSettings>,
}

/// Settings of Antrea.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct AntreaSettings {
    /// Traffic that leaves the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    /// Ports of nodes that lead to Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port_local: Option<NodePortLocal>,
    /// How Services are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub antrea_proxy: Option<AntreaProxy>,
    /// Export of flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_exporter: Option<FlowExporter>,
    /// Multicast traffic (from Antrea 1.7.1 on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<Multicast>,
    /// Several clusters (from Antrea 1.7.1 on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicluster: Option<Multicluster>,
    /// Address of the API server, instead of the one of Service `kubernetes`.
    #[serde(
        rename = "kubeAPIServerOverride",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub kube_api_server_override: Option<String>,
    /// Interface of the node for tunnels and routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport_interface: Option<String>,
    /// Networks of the interface of the node for tunnels and routes.
    #[serde(
        rename = "transportInterfaceCIDRs",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub transport_interface_cidrs: Vec<String>,
    /// Interfaces of the node that forward multicast traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multicast_interfaces: Vec<String>,
    /// Protocol of tunnels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_type: Option<String>,
    /// Port of tunnels (from Antrea 1.9.0 on); 0 is the protocol's own.
    #[serde(default)]
    pub tunnel_port: i64,
    /// Whether tunnels compute checksums (from Antrea 1.9.0 on).
    #[serde(default)]
    pub tunnel_csum: bool,
    /// How traffic between nodes is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_encryption_mode: Option<String>,
    /// Whether Antrea reports its usage.
    #[serde(default)]
    pub enable_usage_reporting: bool,
    /// WireGuard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_guard: Option<WireGuard>,
    /// Not used: the addresses of Services are those of the Cluster.
    #[serde(rename = "serviceCIDR", default, skip_serializing_if = "Option::is_none")]
    pub service_cidr: Option<String>,
    /// How traffic between nodes is encapsulated.
    // The length is for the API server, which estimates what the rules above cost.
    #[serde(default)]
    #[schemars(extend("maxLength" = 17))]
    pub traffic_encap_mode: TrafficEncapMode,
    /// Keeps the addresses of Pods in traffic that leaves the cluster.
    #[serde(rename = "noSNAT", default)]
    pub no_snat: bool,
    /// Turns off the offloading of UDP tunnels.
    #[serde(default)]
    pub disable_udp_tunnel_offload: bool,
    /// MTU of Pod interfaces, as a number or a text; empty lets Antrea find out.
    #[serde(rename = "defaultMTU", default = "empty")]
    #[schemars(extend("minimum" = 0, "maximum" = i32::MAX))]
    pub default_mtu: IntOrString,
    /// Cipher suites, comma separated.
    #[serde(default = "default_cipher_suites")]
    #[schemars(extend("default" = json!(default_cipher_suites()), "maxLength" = 4096))]
    pub tls_cipher_suites: String,
    /// Bridges Pods to the network of the node (from Antrea 1.7.1 on).
    #[serde(default)]
    pub enable_bridging_mode: bool,
    /// Turns off the offloading of checksums (from Antrea 1.7.1 on).
    #[serde(rename = "disableTXChecksumOffload", default)]
    pub disable_tx_checksum_offload: bool,
    /// Address of a DNS server (from Antrea 1.7.1 on).
    #[serde(default)]
    pub dns_server_override: String,
    /// Features. Absent, all are off. Unlisted gates reach the package as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_gates: Option<FeatureGates>,
}

impl Default for AntreaSettings {
    fn default() -> Self {
        Self {
            egress: None,
            node_port_local: None,
            antrea_proxy: None,
            flow_exporter: None,
            multicast: None,
            multicluster: None,
            kube_api_server_override: None,
            transport_interface: None,
            transport_interface_cidrs: Vec::new(),
            multicast_interfaces: Vec::new(),
            tunnel_type: None,
            tunnel_port: 0,
            tunnel_csum: false,
            traffic_encryption_mode: None,
            enable_usage_reporting: false,
            wire_guard: None,
            service_cidr: None,
            traffic_encap_mode: TrafficEncapMode::default(),
            no_snat: false,
            disable_udp_tunnel_offload: false,
            default_mtu: empty(),
            tls_cipher_suites: default_cipher_suites(),
            enable_bridging_mode: false,
            disable_tx_checksum_offload: false,
            dns_server_override: String::new(),
            feature_gates: None,
        }
    }
}

const fn empty() -> IntOrString {
    IntOrString::String(String::new())
}

/// The rule that a text of the settings stays what it is, or was filled in.
fn stays(field: &str, default: &str) -> String {
    let of = |object: &str| {
        format!(
            "(has({object}.antrea) && has({object}.antrea.config) && has({object}.antrea.config.{field}) \
             ? {object}.antrea.config.{field} : '{default}')"
        )
    };
    format!("{} == {}", of("self"), of("oldSelf"))
}

fn default_cipher_suites() -> String {
    [
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
    ]
    .join(",")
}

/// How traffic between nodes is encapsulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TrafficEncapMode {
    /// All of it.
    #[default]
    Encap,
    /// None of it.
    NoEncap,
    /// Between networks only.
    Hybrid,
    /// Antrea enforces policies and leaves traffic to another CNI.
    NetworkPolicyOnly,
}

/// Traffic that leaves the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Egress {
    /// Destinations whose traffic keeps its source address.
    #[serde(rename = "exceptCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    pub except_cidrs: Vec<String>,
}

/// Ports of nodes that lead to Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePortLocal {
    /// Whether there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Which ports, as `first-last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_range: Option<String>,
}

/// How Services are served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AntreaProxy {
    /// Serves all Services, so that kube-proxy is not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_all: Option<bool>,
    /// Addresses of nodes that NodePorts listen on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_port_addresses: Vec<String>,
    /// Services that are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skip_services: Vec<String>,
    /// Serves the addresses of load balancers inside the cluster.
    #[serde(
        rename = "proxyLoadBalancerIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub proxy_load_balancer_ips: Option<bool>,
}

/// Export of flows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowExporter {
    /// Address of the collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector_address: Option<String>,
    /// How often connections are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<String>,
    /// After how long an active flow is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_flow_timeout: Option<String>,
    /// After how long an idle flow is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_flow_timeout: Option<String>,
}

/// Multicast traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Multicast {
    /// How often members of groups are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub igmp_query_interval: Option<String>,
}

/// Several clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Multicluster {
    /// Whether there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// Namespace of the resources that connect them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// WireGuard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireGuard {
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
}

/// What came of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AntreaConfigStatus {
    /// What is wrong, as `Ready` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the Secret beside this object with the values for the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Generation of this object that the status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: whether the Secret holds the values that follow from this object and its cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
