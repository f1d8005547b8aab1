//! Status of a ClusterUpgrade: its record, and a summary of it for users. No decision depends on the summary.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sluice_crds::{
    lifecycle::{CheckRecord, CheckState, ClusterUpgradeStatus, GateMode, GateRecord},
    run::{KEPT_UPGRADES, Outcome, PastUpgrade},
};

use super::selected::{Applied, Selected, is_in_progress, is_upgrade};
use crate::{
    reasons::{Class, GateReason},
    summary::DEADLINE_EXCEEDED,
    text::one_line,
    upgrade::record::class_of,
};

/// Type of the condition that tells whether a gate holds the upgrade.
pub(super) const HELD: &str = "Held";

/// Reason of condition `Held` while nothing is held.
const NOT_HELD: &str = "NotHeld";

/// Text after the gate and check of a wait that holds nothing.
const AUDIT: &str = " (audit)";

/// Longest version, in characters.
const LONGEST_VERSION: usize = 32;

/// Limit for all texts of the checks of a status together, in bytes. It keeps a ClusterUpgrade below the
/// [limit](crate::decode::CACHED) of its cached size.
const TEXTS: usize = 32 * 1024;

/// First thing that a Cluster waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    /// Gate and check, `cni/agent`, or the gate alone; none if the Cluster waits for another reason.
    pub(super) by: Option<String>,
    /// Reason, PascalCase.
    pub(super) reason: String,
    /// Object that it waits for.
    pub(super) message: String,
    /// Whether it holds the upgrade.
    pub(super) holds: bool,
}

/// Returns what the Cluster of a record waits for. A Cluster at rest is held by nothing: Cluster API waits for no hook.
pub(super) fn wait(record: &GateRecord, selected: &Selected, is_at_rest: bool) -> Option<Wait> {
    let holds = is_in_progress(record, is_at_rest);
    let is_held = |gate: &&sluice_crds::run::Gate| !gate.open && class_of(gate) != Some(Class::ClusterApi);
    if holds && let Some(gate) = record.gates.iter().find(is_held) {
        return Some(of_gate(record, selected, &gate.reason, &gate.message));
    }
    // During an upgrade that is not held, checks of Enforce gates may be judged for a later step.
    let is_shown = |gate: &str| !holds || mode_of(record, gate) == Some(GateMode::Audit);
    let mut problems = selected.problems.iter();
    let problem = problems.find(|problem| !holds || problem.mode == GateMode::Audit);
    if let Some(problem) = problem {
        return Some(Wait {
            by: problem.gate.as_ref().map(|gate| format!("{gate}{AUDIT}")),
            reason: problem.hold.reason.as_str().to_owned(),
            message: problem.hold.message.clone(),
            holds: false,
        });
    }
    let mut checks = record.checks.iter();
    let check = checks.find(|check| check.state != CheckState::Proven && is_shown(&check.gate))?;
    Some(Wait {
        by: Some(format!("{}{AUDIT}", named(check))),
        reason: check.reason.clone(),
        message: check.message.clone(),
        holds: false,
    })
}

/// Returns the wait of a closed gate of the record. Its text is that of a check, or of an UpgradeGate.
fn of_gate(record: &GateRecord, selected: &Selected, reason: &str, message: &str) -> Wait {
    let says = |check: &&CheckRecord| {
        let named = format!("{}/{}: {}", check.gate, check.name, check.message);
        check.state != CheckState::Proven && named == message
    };
    if let Some(check) = record.checks.iter().find(says) {
        return Wait {
            by: Some(named(check)),
            reason: check.reason.clone(),
            message: check.message.clone(),
            holds: true,
        };
    }
    let of_applied = selected.gates.iter().find_map(|applied| {
        let hold = applied.hold.as_ref()?;
        (hold.message == message).then(|| applied.gate.name.clone())
    });
    let of_problem = || {
        let mut problems = selected.problems.iter();
        problems
            .find(|problem| problem.hold.message == message)
            .and_then(|problem| problem.gate.clone())
    };
    Wait {
        by: of_applied.or_else(of_problem),
        reason: reason.to_owned(),
        message: message.to_owned(),
        holds: true,
    }
}

/// Returns gate and check, or the gate alone if no check of it can be judged.
fn named(check: &CheckRecord) -> String {
    if GateReason::parse(&check.reason).is_some() {
        check.gate.clone()
    } else {
        format!("{}/{}", check.gate, check.name)
    }
}

fn mode_of(record: &GateRecord, gate: &str) -> Option<GateMode> {
    let mut selected = record.selected.iter();
    Some(selected.find(|selected| selected.name == gate)?.mode)
}

/// Returns the next status with `record`. `current` is the current one; it is ignored if it is of an earlier Cluster of the same name.
pub(super) fn status(
    current: &ClusterUpgradeStatus,
    record: GateRecord,
    selected: &Selected,
    is_at_rest: bool,
    now: Timestamp,
) -> ClusterUpgradeStatus {
    let is_its = |before: &GateRecord| before.cluster_uid == record.cluster_uid;
    let nothing = ClusterUpgradeStatus::default();
    let current = if current.upgrade.as_ref().is_some_and(is_its) {
        current
    } else {
        &nothing
    };
    let wait = wait(&record, selected, is_at_rest);
    let (held_by, reason) = match &wait {
        Some(wait) => (wait.by.clone(), Some(wait.reason.clone())),
        None => (None, None),
    };
    // The reason of a check changes with its progress.
    let is_same = if held_by.is_some() {
        held_by == current.held_by
    } else {
        current.held_by.is_none() && reason == current.reason
    };
    let since = current.since.clone().filter(|_| is_same);
    let held = held(current, wait.as_ref(), now);
    let late = late(&record, selected, &held, now);
    let conditions = [Some(held), late.map(|message| exceeded(current, message, now))];
    let history = history(current, &record, since.is_none(), now);
    ClusterUpgradeStatus {
        checks: proven(&record),
        held_by,
        reason,
        message: wait.map(|wait| wait.message),
        since: since.or(Some(Time(now))),
        conditions: conditions.into_iter().flatten().collect(),
        upgrade: Some(fitted(record)),
        history,
    }
}

/// Returns how many checks of how many are proven.
fn proven(record: &GateRecord) -> Option<String> {
    let all = record.checks.len();
    let is_proven = |check: &&CheckRecord| check.state == CheckState::Proven;
    let proven = record.checks.iter().filter(is_proven).count();
    (all > 0).then(|| format!("{proven}/{all}"))
}

/// Returns the condition of this type.
pub(super) fn condition<'a>(status: &'a ClusterUpgradeStatus, type_: &str) -> Option<&'a Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == type_)
}

/// Returns a condition, with the time of its last change of status.
fn since_changed(
    before: Option<&Condition>,
    type_: &str,
    (status, reason, message): (&str, &str, String),
    now: Timestamp,
) -> Condition {
    let before = before.filter(|before| before.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        observed_generation: None,
        last_transition_time: before.map_or(Time(now), |before| before.last_transition_time.clone()),
        reason: reason.to_owned(),
        message,
    }
}

/// Returns condition `Held`.
fn held(current: &ClusterUpgradeStatus, wait: Option<&Wait>, now: Timestamp) -> Condition {
    let said = match wait.filter(|wait| wait.holds) {
        Some(wait) => {
            let message = match &wait.by {
                Some(by) => format!("{by}: {}", wait.message),
                None => wait.message.clone(),
            };
            ("True", wait.reason.as_str(), message)
        }
        None => ("False", NOT_HELD, String::new()),
    };
    since_changed(condition(current, HELD), HELD, said, now)
}

/// Returns condition `DeadlineExceeded`.
fn exceeded(current: &ClusterUpgradeStatus, message: String, now: Timestamp) -> Condition {
    let before = condition(current, DEADLINE_EXCEEDED);
    since_changed(
        before,
        DEADLINE_EXCEEDED,
        ("True", "GateHeldTooLong", message),
        now,
    )
}

/// Returns the time until the deadline of each gate that holds the Cluster; zero after it. It counts from the time since which the
/// Cluster is held without a break.
fn deadlines<'a>(
    record: &'a GateRecord,
    selected: &'a Selected,
    held: &Condition,
    now: Timestamp,
) -> impl Iterator<Item = (&'a str, Duration)> {
    let is_held = held.status == "True";
    // After a backward step of the clock no time has elapsed.
    let lasted = Duration::try_from(now.duration_since(held.last_transition_time.0)).unwrap_or_default();
    let holds = move |applied: &Applied| {
        let gate = &applied.gate;
        let is_unproven = |check: &CheckRecord| check.gate == gate.name && check.state != CheckState::Proven;
        gate.mode == GateMode::Enforce && record.checks.iter().any(is_unproven)
    };
    let gates = selected
        .gates
        .iter()
        .filter(move |applied| is_held && holds(applied));
    gates.filter_map(move |applied| {
        let deadline = applied.gate.deadline?;
        Some((applied.gate.name.as_str(), deadline.saturating_sub(lasted)))
    })
}

/// Returns the message of condition `DeadlineExceeded`, if a gate holds the Cluster for longer than its deadline.
fn late(record: &GateRecord, selected: &Selected, held: &Condition, now: Timestamp) -> Option<String> {
    let mut deadlines = deadlines(record, selected, held, now);
    let (gate, _) = deadlines.find(|(_, left)| left.is_zero())?;
    Some(format!(
        "UpgradeGate {gate} holds the Cluster for longer than its deadline; it stays held until the cause in condition {HELD} is resolved"
    ))
}

/// Returns the time until the next deadline of a gate that holds the Cluster of `status`.
pub(super) fn until_deadline(
    status: &ClusterUpgradeStatus,
    selected: &Selected,
    now: Timestamp,
) -> Option<Duration> {
    let (record, held) = (status.upgrade.as_ref()?, condition(status, HELD)?);
    let left = deadlines(record, selected, held, now).map(|(_, left)| left);
    left.filter(|left| !left.is_zero()).min()
}

/// Returns the history with the upgrade of `record`. `wait_ends` tells that the current wait is another one than before.
///
/// The first installation is no upgrade. The entry of a closed upgrade does not change.
fn history(
    current: &ClusterUpgradeStatus,
    record: &GateRecord,
    wait_ends: bool,
    now: Timestamp,
) -> Vec<PastUpgrade> {
    let mut history = current.history.clone();
    let (Some(from), Some(began)) = (&record.from, &record.started_at) else {
        return history;
    };
    // The API server stores whole seconds.
    let is_its = |past: &PastUpgrade| past.began.0.as_second() == began.0.as_second();
    let begins = !history.first().is_some_and(is_its);
    // A record that begins at its target is about a Cluster at rest.
    if begins && !is_upgrade(record) {
        return history;
    }
    if begins {
        history.insert(
            0,
            PastUpgrade {
                from: one_line(from, LONGEST_VERSION),
                to: one_line(&record.to, LONGEST_VERSION),
                from_release: None,
                to_release: None,
                began: began.clone(),
                released: None,
                ended: None,
                outcome: None,
                longest_wait: None,
                longest_wait_seconds: None,
                overrides: Vec::new(),
            },
        );
        history.truncate(KEPT_UPGRADES);
    }
    let upgrade = &mut history[0];
    if upgrade.ended.is_some() && record.outcome.is_some() {
        return history;
    }
    // After a cancellation the target of the record is not the target of the upgrade.
    if record.outcome != Some(Outcome::Cancelled) {
        upgrade.to = one_line(&record.to, LONGEST_VERSION);
    }
    upgrade.released = upgrade.released.take().or_else(|| record.released_at.clone());
    let was_held = condition(current, HELD).is_some_and(|held| held.status == "True");
    let ended = current.held_by.as_ref().or(current.reason.as_ref());
    // A wait that ended at the beginning is not of this upgrade, and an earlier wait counts from the beginning.
    if wait_ends
        && was_held
        && !begins
        && let Some((ended, since)) = ended.zip(current.since.as_ref())
    {
        let seconds = now.duration_since(since.0.max(began.0)).as_secs().max(0);
        if upgrade
            .longest_wait_seconds
            .is_none_or(|longest| longest < seconds)
        {
            upgrade.longest_wait = Some(ended.clone());
            upgrade.longest_wait_seconds = Some(seconds);
        }
    }
    upgrade.ended.clone_from(&record.completed_at);
    upgrade.outcome = record.outcome;
    history
}

/// Truncates the texts of the checks to equal shares of [`TEXTS`] if their sum exceeds it.
fn fitted(mut record: GateRecord) -> GateRecord {
    let texts = record
        .checks
        .iter_mut()
        .flat_map(|check| [&mut check.message, &mut check.detail]);
    let mut texts: Vec<&mut String> = texts.filter(|text| !text.is_empty()).collect();
    let all: usize = texts.iter().map(|text| text.len()).sum();
    if all > TEXTS {
        let each = TEXTS / texts.len();
        for text in &mut texts {
            text.truncate(text.floor_char_boundary(each));
        }
    }
    record
}
