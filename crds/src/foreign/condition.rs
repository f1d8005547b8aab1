//! The part of a condition that all dialects share.

use serde::{Deserialize, Deserializer, Serialize};

use super::lenient::{each, or_default, shortened};
use crate::labels::name::{CLUSTER_CONDITIONS, HEALTH_CONDITIONS};

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

/// Reads the conditions of a Cluster that Sluice [reads](CLUSTER_CONDITIONS), and the type and status of each
/// [health condition](HEALTH_CONDITIONS) that is not `True`. The texts of the latter change often, and nothing depends on them.
pub(crate) fn of_cluster<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let conditions: Vec<Condition> = each(deserializer)?;
    let kept = conditions.into_iter().filter_map(|condition| {
        let type_ = condition.type_.as_str();
        if CLUSTER_CONDITIONS.contains(&type_) {
            return Some(condition);
        }
        let is_unhealthy = HEALTH_CONDITIONS.contains(&type_) && !condition.is_true();
        is_unhealthy.then(|| Condition {
            type_: condition.type_,
            status: condition.status,
            ..Condition::default()
        })
    });
    let mut kept: Vec<Condition> = kept.collect();
    kept.shrink_to_fit();
    Ok(kept)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::foreign::Cluster;

    #[test]
    fn health_conditions_are_kept_without_texts_and_only_while_they_are_not_true() {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "Why", "message": "why", "observedGeneration": 3});
        let conditions = [
            condition("TopologyReconciled", "True"),
            condition("Available", "False"),
            condition("ControlPlaneMachinesReady", "True"),
            condition("WorkerMachinesReady", "Unknown"),
            condition("RemoteConnectionProbe", "False"),
        ];
        let cluster: Cluster = serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap();
        let kept = cluster.status.unwrap().conditions;
        let kept: Vec<_> = kept
            .iter()
            .map(|kept| (kept.type_.as_str(), kept.status.as_str(), kept.reason.as_str()))
            .collect();
        let expected = [
            ("TopologyReconciled", "True", "Why"),
            ("WorkerMachinesReady", "Unknown", ""),
            ("RemoteConnectionProbe", "False", ""),
        ];
        assert_eq!(kept, expected);
    }
}
