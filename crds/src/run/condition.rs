//! The condition shape of Cluster API v1beta1, which the kinds of this group have always carried.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One observation about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is observed, PascalCase, or `<Package>-<Condition>` for a mirrored condition of a package.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When `status` last changed.
    pub last_transition_time: Time,
    /// `Error`, `Warning` or `Info`; only beside status `False`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// Why the condition is as it is, PascalCase.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What a person needs to know about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
