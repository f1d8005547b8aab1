//! Status of all configuration kinds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::Condition;

/// What came of a configuration: the contract between it and the ClusterBootstrap that refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
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
