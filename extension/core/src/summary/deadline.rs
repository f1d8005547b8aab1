//! Gates that are held for longer than `spec.upgradePolicy.deadline` allows. It is said, and nothing is released.

use std::time::Duration;

use jiff::Timestamp;
use sluice_crds::run::{ClusterBootstrapStatus, Condition, HeldGate, Hook, UpgradePolicy};

use crate::summary::conditions::with;

/// Type of the condition, and reason of the event.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// How long until the deadline of `policy` for a held gate; zero once it has passed. A deletion has a limit of its own.
fn left(held: &HeldGate, policy: Option<&UpgradePolicy>, now: Timestamp) -> Option<Duration> {
    let deadline = policy?
        .deadline()
        .filter(|_| held.hook != Hook::BeforeClusterDelete)?;
    // A clock that was set back has not let any time go by.
    let lasted = Duration::try_from(now.duration_since(held.since.0)).unwrap_or_default();
    Some(deadline.saturating_sub(lasted))
}

/// Whether a gate is held for longer than `policy` allows.
fn is_past(held: Option<&HeldGate>, policy: Option<&UpgradePolicy>, now: Timestamp) -> bool {
    held.and_then(|held| left(held, policy, now))
        .is_some_and(|left| left.is_zero())
}

/// The conditions with or without the one that says that the deadline has passed.
pub(super) fn with_deadline(
    conditions: Vec<Condition>,
    held: Option<&HeldGate>,
    policy: Option<&UpgradePolicy>,
    now: Timestamp,
) -> Vec<Condition> {
    let past = held.filter(|_| is_past(held, policy, now));
    let message = past.map(|HeldGate { hook, version, .. }| {
        let deadline = policy.and_then(|policy| policy.deadline.as_deref()).unwrap_or_default();
        format!(
            "{hook} to {version} is held for longer than spec.upgradePolicy.deadline ({deadline}); it stays held until what \
             condition Ready names is done"
        )
    });
    let said = message.as_deref().map(|message| ("GateHeldTooLong", message));
    with(conditions, DEADLINE_EXCEEDED, said, now)
}

/// What `status` says of its deadline, if it has passed.
#[must_use]
pub fn exceeded(status: &ClusterBootstrapStatus) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == DEADLINE_EXCEEDED)
}

/// How long until the deadline of the gate that holds `status`; `None` where nothing is held, there is none, or it has passed.
#[must_use]
pub fn until_deadline(
    status: &ClusterBootstrapStatus,
    policy: Option<&UpgradePolicy>,
    now: Timestamp,
) -> Option<Duration> {
    let left = left(status.held.as_ref()?, policy, now)?;
    (!left.is_zero()).then_some(left)
}
