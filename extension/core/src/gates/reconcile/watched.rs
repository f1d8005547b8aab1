//! Objects that are watched while a check holds the Cluster. Their changes requeue it before its next poll.

use std::time::Duration;

use sluice_crds::{
    lifecycle::{CheckRecord, ClusterUpgradeStatus, GateMode},
    run::Phase,
};

use super::{
    Context,
    checks::{Judged, Judging, key_of},
    pace::SLOW,
};
use crate::{
    gates::{
        compiled::CompiledCheck,
        record::CheckJudgement,
        selected::Selected,
        status::{HELD, condition},
    },
    protocol::{Key, ReadPhase},
    reasons::GateReason,
};

/// Maximum number of watched objects of one Cluster. Each watch is a connection to its workload API server.
const MAX_WATCHED: usize = 8;

/// Returns the objects to watch of a Cluster with this next status: those of the first unproven checks that hold it, in the workload
/// cluster. Sluice may only read those of the management cluster, so they are polled.
///
/// `next` is the requeue delay. The client of a Cluster that is reconciled rarely is not kept.
pub(super) fn watched(
    context: &Context<'_>,
    judging: Judging<'_>,
    (status, judged): (&ClusterUpgradeStatus, Option<&Judged>),
    next: Duration,
) -> Vec<Key> {
    let responding = judged.filter(|judged| judged.reach.silence().is_none());
    let Some(judged) = responding.filter(|_| is_held_by_checks(status) && next < SLOW) else {
        return Vec::new();
    };
    let mut keys: Vec<Key> = Vec::new();
    for check in judged.checks.iter().filter(|check| holds(judging, check)) {
        let check = compiled(judging.selected, &check.record);
        let key = check.and_then(|check| readable(context, check, &judging.progress.hop));
        keys.extend(key.filter(|key| !keys.contains(key)));
    }
    keys.truncate(MAX_WATCHED);
    keys
}

/// Whether checks hold the Cluster. A change of their objects ends no other hold.
fn is_held_by_checks(status: &ClusterUpgradeStatus) -> bool {
    let is_held = condition(status, HELD).is_some_and(|held| held.status == "True");
    let reason = status.reason.as_deref().and_then(GateReason::parse);
    // The reason is usually that of a check.
    is_held
        && matches!(
            reason,
            None | Some(GateReason::ChecksNotReady | GateReason::CheckFailed)
        )
}

/// Whether the Cluster waits for the check of an object in the workload cluster.
fn holds(judging: Judging<'_>, check: &CheckJudgement) -> bool {
    let is_due = judging.progress.settled_at_hop() || check.phase == Phase::BeforeControlPlane;
    let is_judged = check.hold.is_none() && !check.is_proven();
    check.on_workload && check.mode == GateMode::Enforce && is_due && is_judged
}

/// Returns the check of an entry.
fn compiled<'a>(selected: &'a Selected, entry: &CheckRecord) -> Option<&'a CompiledCheck> {
    let mut gates = selected.gates.iter();
    let applied = gates.find(|applied| applied.gate.name == entry.gate)?;
    let mut checks = applied.gate.checks.iter();
    checks.find(|check| check.name == entry.name)
}

/// Returns the key of the object of a check that this reconcile could read. It may not exist yet.
fn readable(context: &Context<'_>, check: &CompiledCheck, hop: &str) -> Option<Key> {
    let key = key_of(context, check, hop).ok()?.ok()?;
    let is_read = context.object(key.clone(), ReadPhase::Plan).is_ok();
    is_read.then_some(key)
}
