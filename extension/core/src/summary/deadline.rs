//! Gates that are held for longer than `spec.upgradePolicy.deadline`. Sluice reports them and releases nothing.

use std::time::Duration;

use jiff::Timestamp;
use sluice_crds::run::{ClusterBootstrapStatus, Condition, HeldGate, Hook, UpgradePolicy};

use crate::summary::conditions::with;

/// Condition type and event reason.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// Time until the deadline of `policy` for a held gate; zero after it. A deletion has its own limit.
fn left(held: &HeldGate, policy: Option<&UpgradePolicy>, now: Timestamp) -> Option<Duration> {
    let deadline = policy?
        .deadline()
        .filter(|_| held.hook != Hook::BeforeClusterDelete)?;
    // After a backward step of the clock no time has elapsed.
    let lasted = Duration::try_from(now.duration_since(held.since.0)).unwrap_or_default();
    Some(deadline.saturating_sub(lasted))
}

/// Whether a gate is held for longer than the deadline of `policy`.
fn is_past(held: Option<&HeldGate>, policy: Option<&UpgradePolicy>, now: Timestamp) -> bool {
    held.and_then(|held| left(held, policy, now))
        .is_some_and(|left| left.is_zero())
}

/// Adds or removes condition `DeadlineExceeded`.
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
            "{hook} to {version} is held for longer than spec.upgradePolicy.deadline ({deadline}); it stays held until the cause \
             in condition Ready is resolved"
        )
    });
    let said = message.as_deref().map(|message| ("GateHeldTooLong", message));
    with(conditions, DEADLINE_EXCEEDED, said, now)
}

/// Returns the message of condition `DeadlineExceeded` in `status`, if it is true.
#[must_use]
pub fn exceeded(status: &ClusterBootstrapStatus) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == DEADLINE_EXCEEDED)
}

/// Time until the deadline of the held gate of `status`; `None` without a held gate, without a deadline, or after it.
#[must_use]
pub fn until_deadline(
    status: &ClusterBootstrapStatus,
    policy: Option<&UpgradePolicy>,
    now: Timestamp,
) -> Option<Duration> {
    let left = left(status.held.as_ref()?, policy, now)?;
    (!left.is_zero()).then_some(left)
}
