//! Condition `Rollback` of a ClusterBootstrap: whether the packages of a cancelled upgrade go back, or why they stay.

use jiff::Timestamp;
use sluice_crds::run::{ClusterBootstrapStatus, Condition, Rollback, UpgradeRecord};

use super::conditions::with_status;
use crate::{events::Event, packages::bootstrap::Stays, text::one_line, version::same};

/// Condition type.
const ROLLBACK: &str = "Rollback";

/// Reason of a rollback under way.
const ROLLING_BACK: &str = "RollingBack";

/// Reason of a completed rollback.
const ROLLED_BACK: &str = "RolledBack";

/// Reason of a rollback that the policy asks for and that is not possible.
const REFUSED: &str = "RollbackRefused";

/// Longest message of the condition and of its event, in characters.
const LONGEST: usize = 1000;

/// Adds or removes condition `Rollback`. `refused` is why packages stay that should go back, and `staying` are those that a completed
/// rollback has left as they were.
///
/// The condition of a completed rollback does not change until the next upgrade removes it.
#[must_use]
pub fn with_rollback(
    conditions: Vec<Condition>,
    record: &UpgradeRecord,
    refused: Option<&str>,
    staying: &[(String, Stays)],
    now: Timestamp,
) -> Vec<Condition> {
    let (status, reason, message) = match (refused, &record.rollback) {
        (Some(why), _) => ("False", REFUSED, why.to_owned()),
        (None, None) => return with_status(conditions, ROLLBACK, None, now),
        (None, Some(rollback)) => {
            let cancelled = cancelled(record, rollback);
            let release = &rollback.release;
            if record.outcome.is_none() {
                let text = format!("packages go back to those of {release}: {cancelled}");
                ("True", ROLLING_BACK, text)
            } else if condition(&conditions).is_some_and(|found| found.reason == ROLLED_BACK) {
                return conditions;
            } else {
                let text = format!("packages are those of {release} again: {cancelled}");
                ("True", ROLLED_BACK, text + &listed(staying))
            }
        }
    };
    let message = one_line(&message, LONGEST);
    with_status(conditions, ROLLBACK, Some((status, reason, &message)), now)
}

/// Names the upgrade that was cancelled.
fn cancelled(record: &UpgradeRecord, rollback: &Rollback) -> String {
    let hop = &rollback.hop;
    if same(hop, &record.to) {
        format!("the upgrade to another release of {hop} was cancelled")
    } else {
        format!("the upgrade to {hop} was cancelled")
    }
}

/// Lists the packages that stay, each with its reason.
fn listed(staying: &[(String, Stays)]) -> String {
    if staying.is_empty() {
        return String::new();
    }
    let named = staying.iter().map(|(name, why)| {
        let why = match why {
            Stays::Policy => "spec.upgradePolicy",
            Stays::Package => "annotation of its Package",
            Stays::Added => "not there before",
        };
        format!("{name} ({why})")
    });
    format!("; these stay: {}", named.collect::<Vec<_>>().join(", "))
}

/// Returns condition `Rollback`, if there is one.
fn condition(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == ROLLBACK)
}

/// Returns the event of a change of condition `Rollback` between two statuses.
#[must_use]
pub fn rollback_event(before: &ClusterBootstrapStatus, now: &ClusterBootstrapStatus) -> Option<Event> {
    let said = |condition: &Condition| (condition.reason.clone(), condition.message.clone());
    let shown = condition(&now.conditions)?;
    if condition(&before.conditions).map(said) == Some(said(shown)) {
        return None;
    }
    let message = shown.message.clone();
    match shown.reason.as_str() {
        ROLLING_BACK => Some(Event::Said(ROLLING_BACK, message)),
        ROLLED_BACK => Some(Event::Said(ROLLED_BACK, message)),
        _ => Some(Event::Warned(REFUSED, message)),
    }
}

#[cfg(test)]
mod tests;
