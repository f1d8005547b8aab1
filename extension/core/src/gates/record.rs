//! Evidence record of the UpgradeGates of a Cluster: basis of hook decisions, computed from observed objects only.
//!
//! It follows the same [course] as the record of packages. Only its judged objects differ: checks of the gates that
//! select the Cluster.

use jiff::Timestamp;
use sluice_crds::{
    lifecycle::{CheckRecord, CheckState, GATE_SCHEMA, GateMode, GateRecord, SelectedGate},
    run::{Hook, Phase},
};

use crate::reasons::{GateReason, Hold};
use crate::upgrade::course::{
    self, ClusterFacts, Course, Draft, End, Judged, Situation, View, Workload, holds,
};
use crate::upgrade::hop::{ControlPlaneFacts, Plan, Progress, UpgradeDirection, WorkerFacts, progress_after};
use crate::upgrade::overrides::Passed;
use crate::upgrade::tkr::plan_unknown;
use crate::version::same;

/// Judgement of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckJudgement {
    /// Entry for the record.
    pub record: CheckRecord,
    /// Step of the upgrade that the gate of the check holds first.
    pub phase: Phase,
    /// Mode of the gate of the check. A check of an Audit gate holds nothing.
    pub mode: GateMode,
    /// Whether the object of the check is in the workload cluster.
    pub on_workload: bool,
    /// Hold of the gate of the check, where no check of it can be judged.
    pub hold: Option<Hold>,
    /// Whether all objects of the check were read to confirm an opening gate.
    pub confirmed: bool,
}

impl CheckJudgement {
    /// Whether the check has its proof.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.record.state == CheckState::Proven && self.hold.is_none()
    }

    /// Returns the hold of a check without a proof.
    #[must_use]
    pub fn objection(&self) -> Option<Hold> {
        if self.is_proven() {
            return None;
        }
        Some(self.hold.clone().unwrap_or_else(|| {
            let CheckRecord {
                gate,
                name,
                state,
                message,
                ..
            } = &self.record;
            let reason = match state {
                CheckState::Failed => GateReason::CheckFailed,
                CheckState::Waiting | CheckState::Proven => GateReason::ChecksNotReady,
            };
            Hold::new(reason, format!("{gate}/{name}: {message}"))
        }))
    }
}

/// Judged checks of a hop, by gate and in the order of each gate.
///
/// It names hop, set and stage of the judgement, so that checks of others are not mistaken for these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedChecks<'a> {
    /// Digest of the selected gates.
    pub set: &'a str,
    /// Hop whose rows were expected.
    pub hop: &'a str,
    /// API server version on which the checks were judged; see [`Progress::stage`].
    pub stage: Option<&'a str>,
    /// Every check of every selected gate.
    pub judged: &'a [CheckJudgement],
}

/// All inputs of a record.
#[derive(Clone, Debug)]
pub struct GateObserved<'a> {
    /// Cluster.
    pub cluster: ClusterFacts<'a>,
    /// Control plane object, if there is one.
    pub control_plane: Option<&'a ControlPlaneFacts>,
    /// MachineDeployments and MachinePools of the topology.
    pub workers: &'a [WorkerFacts],
    /// Steps of the upgrade.
    pub plan: &'a Plan,
    /// Gates that select the Cluster, and those of an open record that did.
    pub selected: &'a [SelectedGate],
    /// Digest of UID and generation of `selected`.
    pub set: &'a str,
    /// Reachability of the workload cluster. One that no check needs counts as reached, with an empty UID.
    pub workload: Workload<'a>,
    /// Checks of the hop, as soon as they are judged.
    pub checks: Option<JudgedChecks<'a>>,
    /// Hold from invalid gates or an error of the controller, if any.
    pub problem: Option<&'a Hold>,
    /// Whether the API server has this generation of the Cluster, though the record has a higher one: it was restored from a backup.
    pub restored: bool,
    /// Current time.
    pub now: Timestamp,
}

impl<'a> GateObserved<'a> {
    fn situation(&'a self) -> Situation<'a> {
        Situation {
            cluster: &self.cluster,
            workers: self.workers,
            plan: self.plan,
            workload: &self.workload,
            now: self.now,
        }
    }

    /// Whether an Enforce gate is selected. Without one, nothing is held.
    fn enforces(&self) -> bool {
        self.selected.iter().any(|gate| gate.mode == GateMode::Enforce)
    }
}

/// Returns the record if this build can read it and it belongs to the Cluster with this UID.
#[must_use]
pub fn of_cluster<'a>(record: Option<&'a GateRecord>, uid: &str) -> Option<&'a GateRecord> {
    record.filter(|record| record.schema == GATE_SCHEMA && record.cluster_uid == uid)
}

/// Returns the recorded entry of a check for [`judge`](crate::gates::judge::judge). For an object of a workload cluster, `workload_uid` is
/// that of the cluster that was read, and a record of another one has no entry; it is empty for an object of the management cluster.
#[must_use]
pub fn latch<'a>(
    previous: Option<&'a GateRecord>,
    workload_uid: &str,
    gate: &str,
    check: &str,
) -> Option<&'a CheckRecord> {
    previous
        .filter(|record| workload_uid.is_empty() || record.workload_uid.as_deref() == Some(workload_uid))?
        .checks
        .iter()
        .find(|judged| judged.gate == gate && judged.name == check)
}

/// Computes the upgrade progress from one observation, ignoring the record of another Cluster.
#[must_use]
pub fn progress_of(previous: Option<&GateRecord>, seen: &GateObserved<'_>) -> Progress {
    progress_after(
        seen.control_plane,
        seen.workers,
        seen.cluster.topology_version,
        seen.plan,
        of_cluster(previous, seen.cluster.uid).map(Into::into),
    )
}

/// Computes the next record from the observed state: a pure, total and idempotent function.
///
/// A state from before the latest recorded edit of the Cluster changes nothing, unless it was restored.
#[must_use]
pub fn advance(previous: Option<&GateRecord>, seen: &GateObserved<'_>) -> GateRecord {
    let previous = of_cluster(previous, seen.cluster.uid);
    let is_older = |previous: &&GateRecord| seen.cluster.generation < previous.observed_cluster_generation;
    if let Some(previous) = previous.filter(|previous| !seen.restored && is_older(previous)) {
        return previous.clone();
    }
    // A hop that was just proven is left in the same step: consequences of a record are part of it.
    step(Some(&step(previous, seen)), seen)
}

fn step(previous: Option<&GateRecord>, seen: &GateObserved<'_>) -> GateRecord {
    let progress = progress_of(previous, seen);
    let course: Option<Course<'_>> = previous.map(Into::into);
    let situation = seen.situation();
    // Edited gates at the version of the control plane are no upgrade.
    let begins = course::begins(course, seen.cluster.topology_version, false, || false, false);
    let mut draft = Draft::of(course, situation, &progress, begins, false);
    let judged = fitting(seen, &progress);
    let checks = Checks { seen, judged };
    let view = View::new(course, situation, &checks, &progress, begins);
    if draft.outcome.is_none() {
        draft.gates = view.gates(&draft);
    }
    draft.begin(seen.now);
    let of_hop = previous.filter(|previous| previous.hop.as_deref() == Some(draft.hop.as_str()));
    let of_set = of_hop.filter(|previous| previous.set.as_deref() == Some(seen.set));
    let entries: Vec<CheckRecord> = match judged {
        Some(judged) => judged.iter().map(|judged| judged.record.clone()).collect(),
        None => of_set.map(|previous| previous.checks.clone()).unwrap_or_default(),
    };
    // Not by the checks alone: those of an invalid gate are not judged, and a pause holds proven ones.
    let is_released = [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade]
        .iter()
        .all(|hook| draft.has_open(*hook, seen.cluster.topology_version));
    let end = End {
        is_complete: draft.outcome.is_none()
            && draft.is_at_target(situation, &progress)
            && seen.workers.iter().all(|worker| worker.has_reached(&draft.to))
            && (is_released || began_at_target(&draft, seen)),
        is_withdrawn: false,
        is_ready: !entries.is_empty() && entries.iter().all(|check| check.state == CheckState::Proven),
        has_same_targets: of_set.is_some_and(|previous| versions(&previous.checks).eq(versions(&entries))),
    };
    draft.close(course, &progress, end, seen.now);
    let uid = match seen.workload {
        Workload::Reached { uid } if !uid.is_empty() => Some(uid.to_owned()),
        _ => previous.and_then(|record| record.workload_uid.clone()),
    };
    GateRecord {
        schema: GATE_SCHEMA,
        cluster_uid: seen.cluster.uid.to_owned(),
        observed_cluster_generation: seen.cluster.generation,
        workload_uid: uid,
        from: draft.from,
        to: draft.to,
        hop: Some(draft.hop),
        set: Some(seen.set.to_owned()),
        gates: draft.gates,
        selected: seen.selected.to_vec(),
        checks: entries,
        started_at: draft.started_at,
        begun_at: draft.begun_at,
        ready_at: draft.ready_at,
        released_at: draft.released_at,
        completed_at: draft.completed_at,
        outcome: draft.outcome,
    }
}

/// Whether the record is of no upgrade: it began at its target, or with the creation of the Cluster, and Cluster API waits for no hook. Checks
/// are then judged, and hold nothing.
fn began_at_target(draft: &Draft, seen: &GateObserved<'_>) -> bool {
    draft.from.as_deref().is_none_or(|from| same(from, &draft.to)) && !seen.cluster.awaits_hooks
}

/// Returns the checks if they were judged for this hop, set and stage.
fn fitting<'a>(seen: &GateObserved<'a>, progress: &Progress) -> Option<&'a [CheckJudgement]> {
    seen.checks
        .filter(|checks| {
            checks.hop == progress.hop && checks.stage == progress.stage() && checks.set == seen.set
        })
        .map(|checks| checks.judged)
}

fn versions(checks: &[CheckRecord]) -> impl Iterator<Item = (&str, &str, &str)> {
    checks
        .iter()
        .map(|check| (check.gate.as_str(), check.name.as_str(), check.version.as_str()))
}

/// Judged checks of a Cluster, as the gates of the record need them.
struct Checks<'a> {
    seen: &'a GateObserved<'a>,
    judged: Option<&'a [CheckJudgement]>,
}

/// Returns the checks of Enforce gates that hold a step of these phases.
fn enforced<'a>(judged: &'a [CheckJudgement], phases: &[Phase]) -> impl Iterator<Item = &'a CheckJudgement> {
    judged
        .iter()
        .filter(|check| check.mode == GateMode::Enforce && phases.contains(&check.phase))
}

impl Judged for Checks<'_> {
    const HOLDS_ALL_HOOKS: bool = false;

    fn inputs(&self, progress: &Progress, _: Passed<'_>) -> Option<Hold> {
        if !self.seen.enforces() {
            return None;
        }
        let to = self.seen.cluster.topology_version;
        if let Some(hold) = course::holds::downgrade(progress, to) {
            return Some(hold);
        }
        if progress.direction == UpgradeDirection::PlanUnknown {
            return Some(plan_unknown(to));
        }
        self.seen.problem.cloned()
    }

    fn needs_workload(&self, phases: &[Phase]) -> bool {
        let judged = self.judged.unwrap_or_default();
        enforced(judged, phases).any(|check| check.on_workload)
    }

    fn unproven(&self, phases: &[Phase], _: Passed<'_>) -> Option<Hold> {
        if !self.seen.enforces() {
            return None;
        }
        let Some(judged) = self.judged else {
            let message = "waiting for Sluice to judge the checks";
            return Some(Hold::new(GateReason::ChecksNotReady, message));
        };
        enforced(judged, phases).find_map(CheckJudgement::objection)
    }
}

/// Whether `new` changes a hook decision of `old`, or withdraws a proof. Other progress may wait.
#[must_use]
pub fn is_urgent(old: &GateRecord, new: &GateRecord) -> bool {
    let answers = |record: &GateRecord| {
        (
            record
                .gates
                .iter()
                .map(holds::without_progress)
                .collect::<Vec<_>>(),
            record.selected.clone(),
            record.to.clone(),
            record.outcome,
            record.observed_cluster_generation,
        )
    };
    answers(old) != answers(new) || proofs(old).any(|proof| proofs(new).all(|kept| kept != proof))
}

/// Returns the entries on which later proofs of the same generations depend.
fn proofs(record: &GateRecord) -> impl Iterator<Item = impl PartialEq + '_> {
    let proven = |check: &&CheckRecord| check.state == CheckState::Proven;
    record.checks.iter().filter(proven).map(|check| {
        (
            &check.gate,
            &check.name,
            &check.version,
            &check.uid,
            check.generation,
        )
    })
}

/// Whether a gate opens that releases the control plane or workers.
#[must_use]
pub fn opens_a_gate(previous: Option<&GateRecord>, next: &GateRecord) -> bool {
    course::opens_step(previous.map(Into::into), &next.gates)
}

/// Returns a record whose gates do not open, nor stay open because of the version of the control plane, because the cache is outdated or
/// a proof is unconfirmed. No upgrade ends on such evidence: the gates of its record would never change again.
#[must_use]
pub fn withheld(previous: Option<&GateRecord>, record: GateRecord, hold: &Hold) -> GateRecord {
    let ends = record.outcome.is_some() && previous.is_none_or(|previous| previous.outcome.is_none());
    let mut record = match previous {
        Some(previous) if ends => previous.clone(),
        _ if ends => GateRecord {
            outcome: None,
            completed_at: None,
            ..record
        },
        _ => record,
    };
    course::withhold(&mut record.gates, previous.map(Into::into), hold);
    record
}

#[cfg(test)]
mod tests;
