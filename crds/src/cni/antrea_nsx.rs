//! Antrea's connection to NSX.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether and how Antrea connects to NSX.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AntreaNsx {
    /// Whether it connects at all.
    #[serde(default)]
    pub enable: bool,
    /// Where its identity comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_from: Option<NsxBootstrap>,
    /// Further settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<NsxSettings>,
}

/// Where the identity towards NSX comes from: one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NsxBootstrap {
    /// An NSXServiceAccount on a Supervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<NsxProvider>,
    /// Given here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<NsxInline>,
}

/// Names an NSXServiceAccount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NsxProvider {
    /// `nsx.vmware.com`. Spelled without a capital G since it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apigroup: Option<String>,
    /// `NSXServiceAccount`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An identity that was made by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NsxInline {
    /// Addresses of NSX managers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nsx_managers: Vec<String>,
    /// Name of the cluster in NSX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Name of the Secret beside this object with `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsx_cert_name: Option<String>,
}

/// Further settings of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NsxSettings {
    /// Kind of infrastructure, as NSX is given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_type: Option<String>,
}
