//! Summary of a Cluster for users: columns of `kubectl get`, condition `Ready`, deadline and earlier upgrades.
//!
//! The summary follows from the record and the previous status, so it is part of the same status write. No decision depends on it.

mod deadline;
mod history;
pub mod rollback;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{
    ClusterBootstrapStatus, ClusterPhase, Gate, HeldCause, HeldGate, Hook, Outcome, Swap, UpgradePolicy,
    UpgradeRecord,
};

pub use self::deadline::{DEADLINE_EXCEEDED, exceeded, until_cause, until_deadline};
use self::deadline::{Known, with_cause, with_deadline};
use crate::{
    explanation::{Explanation, closed_gate, explain},
    reasons::{Class, GateReason},
    summary::conditions::with_ready,
    upgrade::record::{class_of, is_ready},
    version::same,
};

/// Longest `status.waitingFor`, in characters. With it, the default columns of `kubectl get clusterbootstraps` fit into 120 characters.
/// `status.upgrade` has the whole text, of gates and of packages.
const LONGEST_WAITING_FOR: usize = 46;

/// Adds the summary to `status`, which already has its record and the conditions of its packages.
///
/// `current` is the current status; it is ignored if it is of an earlier Cluster of the same name. `found` is the cause that a probe has
/// found for the wait in the record.
#[must_use]
pub fn summarize(
    current: &ClusterBootstrapStatus,
    status: ClusterBootstrapStatus,
    policy: Option<&UpgradePolicy>,
    found: Option<&HeldCause>,
    now: Timestamp,
) -> ClusterBootstrapStatus {
    let Some(record) = &status.upgrade else {
        return status;
    };
    let of_cluster = |before: &&UpgradeRecord| before.cluster_uid == record.cluster_uid;
    let before = current.upgrade.as_ref().filter(of_cluster);
    let nothing = ClusterBootstrapStatus::default();
    let current = if before.is_some() { current } else { &nothing };
    let waited = before.and_then(|before| explain(before, current.since.clone()));
    let wait = explain(record, Some(Time(now))).map(|wait| wait.after(waited.as_ref()));
    let since = match (&wait, &waited) {
        (Some(wait), _) => wait.since.clone(),
        (None, Some(_)) => None,
        // `current` is empty without a previous record.
        (None, None) => current.since.clone(),
    };
    let ended = waited.as_ref().filter(|waited| {
        wait.as_ref()
            .is_none_or(|wait| wait.subject() != waited.subject())
    });
    let kept = current.held.as_ref().filter(|_| ended.is_none());
    let kept = kept.and_then(|held| held.cause.as_ref());
    let held = held(record, wait.as_ref(), current, now)
        .map(|held| with_cause(held, wait.as_ref(), Known { found, kept }, policy, now));
    let unready = wait.clone().and_then(|wait| wait.of_readiness(record));
    let conditions = with_ready(status.conditions, unready.as_ref(), now);
    let conditions = with_deadline(conditions, held.as_ref(), policy, now);
    ClusterBootstrapStatus {
        phase: Some(phase(record)),
        packages_ready: packages_ready(record),
        waiting_for: wait.as_ref().map(|wait| wait.in_column(LONGEST_WAITING_FOR)),
        since: since.or(Some(Time(now))),
        history: history::with(&current.history, (before, record), ended, now),
        held,
        conditions,
        ..status
    }
}

fn packages_ready(record: &UpgradeRecord) -> Option<String> {
    let all = record.packages.len();
    let ready = record.packages.iter().filter(|package| is_ready(package)).count();
    (all > 0).then(|| format!("{ready}/{all}"))
}

/// Phase of the Cluster of a record.
fn phase(record: &UpgradeRecord) -> ClusterPhase {
    if record
        .gates
        .iter()
        .any(|gate| gate.hook == Hook::BeforeClusterDelete)
    {
        return ClusterPhase::Deleting;
    }
    match record.outcome {
        Some(Outcome::Completed) => return ClusterPhase::Completed,
        Some(Outcome::Cancelled) => return ClusterPhase::Cancelled,
        Some(Outcome::RolledBack) => return ClusterPhase::RolledBack,
        None => {}
    }
    let closed = closed_gate(record);
    let reason = closed.and_then(|gate| GateReason::parse(&gate.reason));
    if closed.and_then(class_of).is_some_and(Class::is_pause) {
        return ClusterPhase::Paused;
    }
    if record.rollback.is_some() {
        return ClusterPhase::RollingBack;
    }
    let Some(from) = &record.from else {
        return ClusterPhase::Creating;
    };
    if let Some(swap) = record.swap.as_ref().filter(|_| same(from, &record.to)) {
        return of_swap(swap);
    }
    match closed.map(|gate| gate.hook) {
        Some(Hook::AfterControlPlaneUpgrade) if reason == Some(GateReason::ControlPlaneUpgrading) => {
            ClusterPhase::UpgradingControlPlane
        }
        Some(Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade) if same(from, &record.to) => {
            ClusterPhase::UpgradingPackages
        }
        Some(Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade) => ClusterPhase::ProvingPackages,
        Some(Hook::AfterWorkersUpgrade) | None => ClusterPhase::UpgradingWorkers,
        // The next step waits for the workers of this one.
        Some(_) if reason == Some(GateReason::WorkersUpgrading) => ClusterPhase::UpgradingWorkers,
        Some(Hook::AfterClusterUpgrade) => ClusterPhase::Settling,
        Some(_) => ClusterPhase::UpgradingPackages,
    }
}

/// Phase of a Cluster whose machines are replaced by those of another release. No hook is called for it.
fn of_swap(swap: &Swap) -> ClusterPhase {
    let reason = GateReason::parse(&swap.reason);
    if reason.is_some_and(|reason| reason.class().is_pause()) {
        ClusterPhase::Paused
    } else if !swap.open {
        ClusterPhase::UpgradingPackages
    } else if swap.written_at.is_none() || reason == Some(GateReason::ReplacingMachines) {
        ClusterPhase::ReplacingMachines
    } else {
        ClusterPhase::Settling
    }
}

/// The held gate of a record, with the start of its hold.
fn held(
    record: &UpgradeRecord,
    wait: Option<&Explanation<'_>>,
    current: &ClusterBootstrapStatus,
    now: Timestamp,
) -> Option<HeldGate> {
    let gate = wait.filter(|wait| !wait.is_on_cluster_api())?.gate?;
    // Cluster API calls no other hook for a Cluster that is being created.
    let is_called = match gate.hook {
        Hook::BeforeClusterCreate | Hook::BeforeClusterDelete => true,
        // It calls no hook for another release of the same version. Packages that go back may hold workers.
        _ => record.rollback.is_some() || record.from.as_ref().is_some_and(|from| !same(from, &record.to)),
    };
    if !is_called {
        return None;
    }
    let hook = called_hook(record, gate);
    let before = current.held.as_ref();
    let before = before.filter(|before| before.hook == hook && before.version == gate.version);
    Some(HeldGate {
        hook,
        version: gate.version.clone(),
        since: before.map_or(Time(now), |before| before.since.clone()),
        cause: None,
    })
}

/// The hook that Cluster API calls for a closed gate. It calls BeforeClusterUpgrade once per upgrade, before the first step.
fn called_hook(record: &UpgradeRecord, gate: &Gate) -> Hook {
    let from = record.from.as_deref().unwrap_or_default();
    let passed = |passed: &Gate| {
        passed.open
            && passed.hook == Hook::AfterControlPlaneUpgrade
            && !same(&passed.version, from)
            && !same(&passed.version, &gate.version)
    };
    if gate.hook == Hook::BeforeClusterUpgrade && record.gates.iter().any(passed) {
        Hook::BeforeControlPlaneUpgrade
    } else {
        gate.hook
    }
}

pub mod conditions;
#[cfg(test)]
mod tests;
