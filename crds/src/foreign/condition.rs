//! The part of a condition that all dialects share.

use serde::{Deserialize, Deserializer, Serialize};

use super::lenient::{each, or_default, shortened};
use crate::labels::name::CLUSTER_CONDITIONS;

/// A condition of Cluster API (either version) or of kapp-controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The condition type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The generation of the object that it is about (v1beta2).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// The reason, PascalCase.
    #[serde(
        default,
        deserialize_with = "shortened",
        skip_serializing_if = "String::is_empty"
    )]
    pub reason: String,
    /// The message for users.
    #[serde(
        default,
        deserialize_with = "shortened",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
}

impl Condition {
    /// Whether the status is `True`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Reads the conditions of a Cluster that Sluice [reads](CLUSTER_CONDITIONS).
pub(crate) fn of_cluster<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let mut conditions: Vec<Condition> = each(deserializer)?;
    conditions.retain(|condition| CLUSTER_CONDITIONS.contains(&condition.type_.as_str()));
    conditions.shrink_to_fit();
    Ok(conditions)
}

/// The condition of a type, if there is one.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of a type exists and is `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(Condition::is_true)
}
