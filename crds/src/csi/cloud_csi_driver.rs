//! The storage driver of a cloud.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ProxySettings;

/// The storage driver of a cloud; `N` is its namespace, which some kinds require.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudCSIDriver<N> {
    /// Namespace of the driver.
    pub namespace: N,
    /// Its proxies.
    #[serde(flatten)]
    pub proxies: ProxySettings,
    /// Replicas of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_replicas: Option<i32>,
}
