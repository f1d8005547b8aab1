//! Feature gates of Antrea.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which features of Antrea are on. Of the listed gates, those that the installed version does not have are not passed to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a gate of its own")]
pub struct FeatureGates {
    /// Serves Services without kube-proxy.
    pub antrea_proxy: bool,
    /// Reads EndpointSlices; takes effect with `AntreaProxy` only.
    pub endpoint_slice: bool,
    /// Cluster-wide and tiered network policies.
    pub antrea_policy: bool,
    /// Exports network flows.
    pub flow_exporter: bool,
    /// Source addresses for traffic that leaves the cluster.
    pub egress: bool,
    /// Reaches Pods through ports of their node.
    pub node_port_local: bool,
    /// Traces packets on request.
    pub antrea_traceflow: bool,
    /// Counts what network policies match.
    pub network_policy_stats: bool,
    /// Address pools for Pods.
    #[serde(rename = "AntreaIPAM")]
    pub antrea_ipam: bool,
    /// External addresses for Services.
    #[serde(rename = "ServiceExternalIP")]
    pub service_external_ip: bool,
    /// Forwards multicast traffic.
    pub multicast: bool,
    /// Services and policies across clusters (from Antrea 1.7.1 on).
    pub multicluster: bool,
    /// Further network interfaces of Pods (from Antrea 1.7.1 on).
    pub secondary_network: bool,
    /// Mirrors and redirects traffic (from Antrea 1.7.1 on).
    pub traffic_control: bool,
    /// Prefers endpoints that are near (from Antrea 1.9.0 on).
    pub topology_aware_hints: bool,
    /// Gates of other versions, passed on as they are. The API server keeps them without validation, because a structural schema
    /// cannot have `properties` and `additionalProperties`.
    #[serde(flatten)]
    pub unlisted: BTreeMap<String, Value>,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            antrea_proxy: true,
            antrea_policy: true,
            egress: true,
            node_port_local: true,
            antrea_traceflow: true,
            ..Self::none()
        }
    }
}

impl FeatureGates {
    /// Every gate closed: what a configuration that says nothing about gates has always meant.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            antrea_proxy: false,
            endpoint_slice: false,
            antrea_policy: false,
            flow_exporter: false,
            egress: false,
            node_port_local: false,
            antrea_traceflow: false,
            network_policy_stats: false,
            antrea_ipam: false,
            service_external_ip: false,
            multicast: false,
            multicluster: false,
            secondary_network: false,
            traffic_control: false,
            topology_aware_hints: false,
            unlisted: BTreeMap::new(),
        }
    }
}
