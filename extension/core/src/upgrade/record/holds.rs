//! Holds of gates.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{Gate, PackageRecord, PackageState, Phase, UpgradeRecord};

use super::{ClusterFacts, Observed, Workload};
use crate::proof::Judgement;
use crate::reasons::{Class, GateReason, Hold};
use crate::upgrade::hop::{ControlPlanePhase, Progress, UpgradeDirection, WorkerFacts};
use crate::version::{reached, same, same_numbers};

/// Time that proofs outlive the last response of a workload cluster.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// Time that AfterClusterUpgrade waits for packages to settle. It protects nothing, but blocks the next upgrade.
const SETTLING: SignedDuration = SignedDuration::from_mins(30);

/// Returns the class of the reason of a gate; `None` for an open gate, or a reason that this build does not know.
#[must_use]
pub fn class_of(gate: &Gate) -> Option<Class> {
    GateReason::parse(&gate.reason).map(GateReason::class)
}

/// Whether a gate is closed because writes are forbidden.
pub(super) fn is_pause(gate: &Gate) -> bool {
    class_of(gate).is_some_and(Class::is_pause)
}

pub(super) fn pause(
    previous: Option<&UpgradeRecord>,
    progress: &Progress,
    cluster: &ClusterFacts<'_>,
    bootstrap_paused: bool,
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
    if bootstrap_paused {
        return Some(Hold::new(
            GateReason::BootstrapPaused,
            "the ClusterBootstrap is paused",
        ));
    }
    let starts = progress.settled_at().is_some() && !progress.taken && !begun(previous);
    (cluster.start_held && starts).then(start_held)
}

/// Returns the hold of an annotation that keeps an upgrade from starting.
pub(super) fn start_held() -> Hold {
    Hold::new(
        GateReason::StartHeldByAnnotation,
        "an annotation before-upgrade.hook.cluster.cluster.x-k8s.io is set on the Cluster",
    )
}

/// Whether writes for the open upgrade were permitted at some point. From then on an annotation that holds starts has no effect.
fn begun(previous: Option<&UpgradeRecord>) -> bool {
    previous.is_some_and(|record| record.outcome.is_none() && record.begun_at.is_some())
}

/// Returns the hold of invalid inputs of an upgrade, independent of its packages.
pub(super) fn inputs(seen: &Observed<'_>, progress: &Progress) -> Option<Hold> {
    if progress.direction == UpgradeDirection::Downgrade {
        let to = seen.cluster.topology_version;
        return Some(Hold::new(
            GateReason::DowngradeNotSupported,
            format!("the control plane is above {to} already"),
        ));
    }
    if let Some(problem) = seen.problem {
        return Some(problem.clone());
    }
    if progress.direction == UpgradeDirection::Cancelled {
        return None;
    }
    let tkr = match seen.tkr {
        Ok(tkr) => tkr,
        Err(hold) => return Some(hold.clone()),
    };
    (seen.bootstrap.resolved_tkr != Some(tkr)).then(|| {
        Hold::new(
            GateReason::BootstrapNotMerged,
            format!("waiting for the packages of {tkr} to be in the ClusterBootstrap"),
        )
    })
}

/// Returns the hold of an unreachable workload cluster. An open gate stays open for [`GRACE`] after the last response.
pub(super) fn workload(workload: &Workload<'_>, was_open: bool, now: Timestamp) -> Option<Hold> {
    match workload {
        Workload::Reached { .. } => None,
        // A clock that was set back by more does not measure the silence.
        Workload::Unreachable { since, .. } if was_open && now.duration_since(*since).abs() <= GRACE => None,
        Workload::NotYet(hold) | Workload::Unreachable { hold, .. } => Some(hold.clone()),
    }
}

/// Returns the hold of packages of these phases without a proof. A set without packages needs none.
pub(super) fn packages(judged: Option<&[Judgement]>, phases: &[Phase]) -> Option<Hold> {
    let Some(judged) = judged else {
        return Some(unknown());
    };
    let concerned: Vec<&Judgement> = judged
        .iter()
        .filter(|judgement| phases.contains(&judgement.phase))
        .collect();
    failed(concerned.iter().map(|judgement| &judgement.record)).or_else(|| {
        let waits = concerned.iter().any(|judgement| !judgement.ready());
        let all = concerned.iter().map(|judgement| &judgement.record);
        waits.then(|| Hold::new(GateReason::PackagesNotReady, waits_for(all)))
    })
}

/// Names all packages of a gate, including the ready ones: the text stays the same until the last of them is ready. Each change of it
/// costs Cluster API a write and a reconcile, and its next call comes a second later. See docs/decisions/0022.
fn waits_for<'a>(packages: impl Iterator<Item = &'a PackageRecord>) -> String {
    let names: Vec<String> = packages.map(named).collect();
    match names.as_slice() {
        [one] => format!("waiting for {one}"),
        several => format!("waiting for all of {}", listed(several)),
    }
}

/// Lists the first twelve names.
fn listed(names: &[String]) -> String {
    const NAMED: usize = 12;
    match names.get(..NAMED) {
        Some(first) if names.len() > NAMED => format!("{} and more", first.join(", ")),
        _ => names.join(", "),
    }
}

fn unknown() -> Hold {
    Hold::new(
        GateReason::PackagesUnknown,
        "waiting for Sluice to determine the packages",
    )
}

/// Returns the hold of the first failed package.
pub fn failed<'a>(packages: impl IntoIterator<Item = &'a PackageRecord>) -> Option<Hold> {
    let failed = packages
        .into_iter()
        .find(|package| package.state == PackageState::Failed)?;
    Some(Hold::new(
        GateReason::PackageFailed,
        format!("{} failed to reconcile", named(failed)),
    ))
}

fn named(package: &PackageRecord) -> String {
    format!("{} {}", package.name, package.version)
}

/// Returns the hold of packages that are not fully reconciled, until [`SETTLING`] has elapsed `since` settling began.
pub(super) fn settling(
    judged: Option<&[Judgement]>,
    seen: &Observed<'_>,
    since: Option<&Time>,
) -> Option<Hold> {
    if since.is_some_and(|since| seen.now.duration_since(since.0) >= SETTLING) {
        return None;
    }
    let Some(judged) = judged else {
        return Some(unknown());
    };
    // A package that could not be planned is not among the judged ones.
    if let Some(problem) = seen.problem {
        return Some(problem.clone());
    }
    let unsettled = judged.iter().find(|judgement| !judgement.settled)?;
    Some(Hold::new(
        GateReason::PackagesNotSettled,
        format!(
            "waiting for {} to be reconciled on every node",
            named(&unsettled.record)
        ),
    ))
}

/// Returns the hold of a control plane that is not settled at the hop.
pub(super) fn control_plane(progress: &Progress) -> Option<Hold> {
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
pub(super) fn workers(workers: &[WorkerFacts], version: &str) -> Option<Hold> {
    let asked = |worker: &WorkerFacts| {
        worker
            .spec_version
            .as_deref()
            .is_some_and(|spec| reached(spec, version))
    };
    let left: Vec<&WorkerFacts> = workers.iter().filter(|worker| !asked(worker)).collect();
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

/// Returns the hold of the step after `version` for workers that report a build of it. Cluster API takes no step while it waits for another
/// one, which may be forever. Other workers are replaced within the time of a rollout, and need no name.
pub(super) fn other_build(workers: &[WorkerFacts], version: &str) -> Option<Hold> {
    let mut at_version = workers.iter().filter(|worker| {
        worker
            .spec_version
            .as_deref()
            .is_some_and(|spec| same(spec, version))
    });
    at_version.find_map(|worker| {
        let (name, reported) = (&worker.name, worker.reported_instead()?);
        let message = if reported == version {
            format!("waiting for all machines of {name} to be up to date, they report {version}")
        } else {
            format!("waiting for {name} to be at {version}, its machines report {reported}")
        };
        Some(Hold::new(GateReason::WorkersUpgrading, message))
    })
}
