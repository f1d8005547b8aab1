//! Evictions that a PodDisruptionBudget permits.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;

use super::{list::Names, place};
use crate::upgrade_plan::WarningReason;

/// PodDisruptionBudget.
#[derive(Debug, Deserialize)]
pub(super) struct Budget {
    metadata: Names,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    max_unavailable: Option<IntOrString>,
    min_available: Option<IntOrString>,
}

/// Status, as the disruption controller computes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    observed_generation: Option<i64>,
    #[serde(default)]
    current_healthy: i64,
    #[serde(default)]
    desired_healthy: i64,
    #[serde(default)]
    expected_pods: i64,
    #[serde(default)]
    disruptions_allowed: i64,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    reason: Option<String>,
}

impl Spec {
    /// Whether no number of Pods permits an eviction.
    fn forbids_all(&self) -> bool {
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        self.max_unavailable == Some(IntOrString::Int(0))
            || self.max_unavailable == text("0%")
            || self.min_available == text("100%")
    }
}

impl Status {
    /// Whether the controller could not compute the status. Then no eviction is permitted.
    fn is_unknown(&self) -> bool {
        let mut conditions = self.conditions.iter().flatten();
        conditions.any(|condition| condition.reason.as_deref() == Some("SyncFailed"))
    }
}

impl Budget {
    /// Returns the warning about a budget that permits no eviction.
    pub(super) fn warning(&self) -> Option<(WarningReason, String)> {
        use WarningReason::{EvictionNeverAllowed, EvictionNotAllowedNow};
        let Names {
            name,
            namespace,
            generation,
        } = &self.metadata;
        let is_current = |status: &&Status| {
            let observed = status.observed_generation.unwrap_or_default();
            observed >= generation.unwrap_or_default()
        };
        let (reason, what) = match self.status.as_ref().filter(is_current) {
            None if self.spec.as_ref().is_some_and(Spec::forbids_all) => {
                (EvictionNeverAllowed, "its spec permits no eviction".to_owned())
            }
            None => return None,
            Some(status) if status.is_unknown() => (
                EvictionNotAllowedNow,
                "its Pods cannot be counted (SyncFailed)".to_owned(),
            ),
            Some(status) if status.expected_pods <= 0 || status.disruptions_allowed > 0 => return None,
            Some(status) => {
                let (must_stay, all) = (status.desired_healthy, status.expected_pods);
                if must_stay >= all {
                    (
                        EvictionNeverAllowed,
                        format!("{must_stay} of {all} Pods must stay"),
                    )
                } else {
                    let healthy = status.current_healthy;
                    (
                        EvictionNotAllowedNow,
                        format!("{healthy} of {all} Pods are healthy, and {must_stay} must stay"),
                    )
                }
            }
        };
        let name = name.as_deref().unwrap_or_default();
        let place = place(namespace.as_deref().unwrap_or_default(), name);
        Some((reason, format!("PodDisruptionBudget {place}: {what}")))
    }
}
