//! Holds by the Cluster, its control plane, its workers and its workload API server.

use jiff::{SignedDuration, Timestamp};
use sluice_crds::run::Gate;

use super::{ClusterFacts, Course, Workload};
use crate::reasons::{Class, GateReason, Hold};
use crate::upgrade::hop::{ControlPlanePhase, Progress, UpgradeDirection, WorkerFacts};
use crate::version::{same, same_numbers};

/// Time that proofs outlive the last response of a workload cluster.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// Returns the class of the reason of a gate; `None` for an open gate, or a reason that this build does not know.
#[must_use]
pub fn class_of(gate: &Gate) -> Option<Class> {
    GateReason::parse(&gate.reason).map(GateReason::class)
}

/// Whether a gate is closed because writes are forbidden.
pub(crate) fn is_pause(gate: &Gate) -> bool {
    class_of(gate).is_some_and(Class::is_pause)
}

/// Returns a gate without its message, and without a reason that follows the progress of what it waits for. Of the other reasons, some are an
/// input of the next judgement, and most need an action.
pub(crate) fn without_progress(gate: &Gate) -> Gate {
    let is_progress = class_of(gate).is_some_and(|class| class.is_step() || class == Class::Retries);
    Gate {
        reason: if is_progress {
            String::new()
        } else {
            gate.reason.clone()
        },
        message: String::new(),
        ..gate.clone()
    }
}

/// Returns the pause that holds an upgrade: of the Cluster, `paused` by another object, or of a user before the upgrade begins.
pub(crate) fn pause(
    previous: Option<Course<'_>>,
    progress: &Progress,
    cluster: &ClusterFacts<'_>,
    paused: Option<Hold>,
) -> Option<Hold> {
    if cluster.deleting {
        return Some(Hold::new(
            GateReason::ClusterDeleting,
            "the Cluster is being deleted",
        ));
    }
    if cluster.paused {
        return Some(Hold::new(GateReason::ClusterPaused, "the Cluster is paused"));
    }
    if paused.is_some() {
        return paused;
    }
    let starts = progress.settled_at().is_some() && !progress.taken && !begun(previous);
    (cluster.start_held && starts).then(start_held)
}

/// Returns the hold of an annotation that keeps an upgrade from starting.
pub(crate) fn start_held() -> Hold {
    Hold::new(
        GateReason::StartHeldByAnnotation,
        "an annotation before-upgrade.hook.cluster.cluster.x-k8s.io is set on the Cluster",
    )
}

/// Returns the hold of a target below the control plane.
pub(crate) fn downgrade(progress: &Progress, to: &str) -> Option<Hold> {
    (progress.direction == UpgradeDirection::Downgrade).then(|| {
        Hold::new(
            GateReason::DowngradeNotSupported,
            format!("the control plane is above {to} already"),
        )
    })
}

/// Whether writes for the open upgrade were permitted at some point. From then on an annotation that holds starts has no effect.
fn begun(previous: Option<Course<'_>>) -> bool {
    previous.is_some_and(|record| record.outcome.is_none() && record.has_begun())
}

/// Returns the hold of an unreachable workload cluster. An open gate stays open for [`GRACE`] after the last response.
pub(crate) fn workload(workload: &Workload<'_>, was_open: bool, now: Timestamp) -> Option<Hold> {
    match workload {
        Workload::Reached { .. } => None,
        // A clock that was set back by more does not measure the silence.
        Workload::Unreachable { since, .. } if was_open && now.duration_since(*since).abs() <= GRACE => None,
        Workload::NotYet(hold) | Workload::Unreachable { hold, .. } => Some(hold.clone()),
    }
}

/// Lists the first twelve names.
pub(crate) fn listed(names: &[String]) -> String {
    const NAMED: usize = 12;
    match names.get(..NAMED) {
        Some(first) if names.len() > NAMED => format!("{} and more", first.join(", ")),
        _ => names.join(", "),
    }
}

/// Returns the hold of a control plane that is not settled at the hop.
pub(crate) fn control_plane(progress: &Progress) -> Option<Hold> {
    if progress.settled_at_hop() {
        return None;
    }
    let reason = match progress.phase {
        ControlPlanePhase::Creating => GateReason::ControlPlaneCreating,
        _ => GateReason::ControlPlaneUpgrading,
    };
    let hop = &progress.hop;
    let message = match &progress.phase {
        // Cluster API waits for another one of two builds, which may be forever.
        ControlPlanePhase::Rolling { reported, .. } if same_numbers(reported, hop) => {
            format!("waiting for the control plane to be at {hop}, it reports {reported}")
        }
        _ => format!("waiting for the control plane to be at {hop}"),
    };
    Some(Hold::new(reason, message))
}

/// Returns the hold of workers whose spec does not have the version yet. Cluster API itself tracks their rollout. Deferred pools are named
/// once no other one is left.
pub(crate) fn workers(workers: &[WorkerFacts], version: &str) -> Option<Hold> {
    let left: Vec<&WorkerFacts> = workers
        .iter()
        .filter(|worker| !worker.has_reached(version))
        .collect();
    if left.is_empty() {
        return None;
    }
    if left.iter().all(|worker| worker.deferred) {
        let pools: Vec<String> = left.iter().map(|worker| worker.pool.clone()).collect();
        return Some(Hold::new(GateReason::WorkersDeferred, listed(&pools)));
    }
    Some(Hold::new(
        GateReason::WorkersUpgrading,
        format!("waiting for the workers to be at {version}"),
    ))
}

/// Returns the hold of the step after `version` for workers that may roll forever: machines report another build of it, or Cluster API does
/// not observe the last change. Other workers are replaced within the time of a rollout, and need no name.
pub(crate) fn endless_rollout(workers: &[WorkerFacts], version: &str) -> Option<Hold> {
    let mut at_version = workers.iter().filter(|worker| {
        worker
            .spec_version
            .as_deref()
            .is_some_and(|spec| same(spec, version))
    });
    at_version.find_map(|worker| {
        let name = &worker.name;
        let message = if worker.is_unobserved() {
            format!("waiting for Cluster API to observe the last change of {name}, which may be paused")
        } else {
            match worker.reported_instead()? {
                reported if reported == version => {
                    format!("waiting for all machines of {name} to be up to date, they report {version}")
                }
                reported => format!("waiting for {name} to be at {version}, its machines report {reported}"),
            }
        };
        Some(Hold::new(GateReason::WorkersUpgrading, message))
    })
}
