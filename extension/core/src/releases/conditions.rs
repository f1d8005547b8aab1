//! Conditions of releases and OSImages.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::Condition;

use super::ReleaseReason;

/// The release or OSImage is usable.
pub(super) const VALID: &str = "Valid";
/// The release is compatible with this management cluster.
pub(super) const COMPATIBLE: &str = "Compatible";
/// Nothing excludes the object.
pub(super) const READY: &str = "Ready";

/// Desired content of one condition.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) status: &'static str,
    pub(super) severity: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Said {
    pub(super) fn yes(message: String) -> Self {
        Self {
            status: "True",
            message,
            ..Self::default()
        }
    }

    pub(super) fn no(severity: &'static str, reason: &str, message: String) -> Self {
        Self {
            status: "False",
            severity,
            reason: reason.to_owned(),
            message,
        }
    }

    pub(super) fn unknown(reason: ReleaseReason, message: String) -> Self {
        Self {
            status: "Unknown",
            reason: reason.as_str().to_owned(),
            message,
            ..Self::default()
        }
    }
}

/// Quotes a text of an object and shortens it if it is too long to read.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Sets the condition of this type. Keeps its time while its status is the same, and all other conditions with their order.
pub(super) fn say(conditions: &mut Vec<Condition>, type_: &str, said: Said, now: Timestamp) {
    let found = conditions.iter().position(|condition| condition.type_ == type_);
    let before = found
        .map(|at| &conditions[at])
        .filter(|before| before.status == said.status);
    let next = Condition {
        type_: type_.to_owned(),
        status: said.status.to_owned(),
        last_transition_time: before.map_or(Time(now), |before| before.last_transition_time.clone()),
        severity: said.severity.to_owned(),
        reason: said.reason,
        message: said.message,
    };
    match found {
        Some(at) => conditions[at] = next,
        None => conditions.push(next),
    }
}

/// Whether the condition of this type is false.
pub(super) fn is_false(conditions: &[Condition], type_: &str) -> bool {
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    found.is_some_and(|condition| condition.status == "False")
}
