//! Gates that are held for longer than `spec.upgradePolicy.deadline`. Sluice reports them with their cause and releases nothing.

use std::time::Duration;

use jiff::Timestamp;
use sluice_crds::run::{ClusterBootstrapStatus, Condition, HeldCause, HeldGate, Hook, UpgradePolicy};

use crate::{
    explanation::Explanation,
    held_cause::{Cause, of_reason},
    summary::conditions::with,
};

/// Condition type and event reason.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// Time after which the cause of a held gate is reported without a deadline.
const WITHOUT_DEADLINE: Duration = Duration::from_mins(10);

/// Longest message of condition and event, in bytes: the API server refuses longer notes of events.
const LONGEST_MESSAGE: usize = 1000;

/// Time until a held gate has been held for `limit`; zero after it. A deletion has its own limit.
fn left(held: &HeldGate, limit: Duration, now: Timestamp) -> Option<Duration> {
    if held.hook == Hook::BeforeClusterDelete {
        return None;
    }
    // After a backward step of the clock no time has elapsed.
    let lasted = Duration::try_from(now.duration_since(held.since.0)).unwrap_or_default();
    Some(limit.saturating_sub(lasted))
}

/// Time until the deadline of `policy` for a held gate; zero after it.
fn until(held: &HeldGate, policy: Option<&UpgradePolicy>, now: Timestamp) -> Option<Duration> {
    left(held, policy?.deadline()?, now)
}

/// Whether a gate is held for longer than the deadline of `policy`.
fn is_past(held: Option<&HeldGate>, policy: Option<&UpgradePolicy>, now: Timestamp) -> bool {
    held.and_then(|held| until(held, policy, now))
        .is_some_and(|left| left.is_zero())
}

/// Time until the cause of a held gate is reported; zero after it.
fn until_cause_of(held: &HeldGate, policy: Option<&UpgradePolicy>, now: Timestamp) -> Option<Duration> {
    let limit = policy.and_then(UpgradePolicy::deadline);
    left(held, limit.unwrap_or(WITHOUT_DEADLINE), now)
}

/// Causes that are known of a held gate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// Cause that a probe has found for the same wait.
    pub(super) found: Option<&'a HeldCause>,
    /// Cause in the previous status, if it is of the same wait.
    pub(super) kept: Option<&'a HeldCause>,
}

/// Adds the cause of a gate that is held beyond its limit. The hold reason takes precedence over what was known.
pub(super) fn with_cause(
    held: HeldGate,
    wait: Option<&Explanation<'_>>,
    known: Known<'_>,
    policy: Option<&UpgradePolicy>,
    now: Timestamp,
) -> HeldGate {
    let is_beyond = until_cause_of(&held, policy, now).is_some_and(|left| left.is_zero());
    let of_reason = wait.filter(|_| is_beyond).and_then(of_reason);
    let known_cause = known.found.or(known.kept).filter(|_| is_beyond);
    let cause = match (of_reason, known_cause) {
        // A probe may have found how the contact fails.
        (Some(cause), Some(known)) if known.name == cause.name && is_unreachable(known) => {
            Some(known.clone())
        }
        (Some(cause), _) => Some(cause),
        // It has ended with the hold reason.
        (None, Some(known)) if Cause::parse(&known.name).is_some_and(Cause::is_of_reason) => None,
        (None, known) => known.cloned(),
    };
    HeldGate { cause, ..held }
}

fn is_unreachable(cause: &HeldCause) -> bool {
    cause.name == Cause::WorkloadUnreachable.as_str()
}

/// Adds or removes condition `DeadlineExceeded`.
pub(super) fn with_deadline(
    conditions: Vec<Condition>,
    held: Option<&HeldGate>,
    policy: Option<&UpgradePolicy>,
    now: Timestamp,
) -> Vec<Condition> {
    let past = held.filter(|_| is_past(held, policy, now));
    let message = past.map(|held| {
        let deadline = policy
            .and_then(|policy| policy.deadline.as_deref())
            .unwrap_or_default();
        message(held, deadline)
    });
    let said = message.as_deref().map(|message| ("GateHeldTooLong", message));
    with(conditions, DEADLINE_EXCEEDED, said, now)
}

/// Returns the message about a gate that is held beyond a deadline, with its cause.
fn message(held: &HeldGate, deadline: &str) -> String {
    let HeldGate { hook, version, .. } = held;
    let mut message = format!(
        "{hook} to {version} is held for longer than spec.upgradePolicy.deadline ({deadline}); it stays held until the cause \
         in condition Ready is resolved"
    );
    if let Some(HeldCause {
        name,
        object,
        evidence,
    }) = &held.cause
    {
        let parts = [name, object, evidence]
            .into_iter()
            .filter(|part| !part.is_empty());
        let parts: Vec<&str> = parts.map(String::as_str).collect();
        message = format!("{message}. Cause: {}", parts.join(": "));
    }
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    message
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
    let left = until(status.held.as_ref()?, policy, now)?;
    (!left.is_zero()).then_some(left)
}

/// Time until the cause of the held gate of `status` is reported: until its deadline, or for ten minutes without one. Zero after it; `None`
/// without a held gate and for a deletion.
#[must_use]
pub fn until_cause(
    status: &ClusterBootstrapStatus,
    policy: Option<&UpgradePolicy>,
    now: Timestamp,
) -> Option<Duration> {
    until_cause_of(status.held.as_ref()?, policy, now)
}
