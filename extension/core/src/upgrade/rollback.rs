//! Rollback: the packages of a cancelled upgrade go back to the versions from before it.
//!
//! Cluster API has no hook for a cancellation. The label names the earlier release again, and the control plane still has its version.

mod moved;

use sluice_crds::{
    foreign::Cluster,
    run::{Outcome, PackageState, Rollback, UpgradePolicy, UpgradeRecord},
};

use self::moved::moved;
use super::{
    hop::{ControlPlaneFacts, ControlPlanePhase, Progress, UpgradeDirection},
    swap::is_cancelled_swap,
};
use crate::{
    cluster::is_reconciled,
    packages::bootstrap::{ResolvedRelease, Snapshot},
    reasons::{GateReason, Hold},
    text::one_line,
    version::{is_upgrading, reached, same},
};

/// Maximum length of the reason of a refusal, in characters. A user may edit the snapshot that it quotes.
const LONGEST: usize = 512;

/// Inputs of the decision about a rollback.
#[derive(Clone, Copy, Debug)]
pub struct RollbackInputs<'a> {
    /// The Cluster.
    pub cluster: &'a Cluster,
    /// `topology.version`.
    pub to: &'a str,
    /// Its release label.
    pub label: &'a str,
    /// Its control plane, if it exists and is known.
    pub control_plane: Option<&'a ControlPlaneFacts>,
    /// Its record.
    pub record: Option<&'a UpgradeRecord>,
    /// Statements of its ClusterBootstrap about the release of its spec.
    pub resolved: ResolvedRelease<'a>,
    /// Snapshot of its ClusterBootstrap, or the reason why it cannot be read.
    pub snapshot: Result<Option<&'a Snapshot>, &'a str>,
    /// Release that the entry for `to` in variable `TKR_DATA` names, if any.
    pub made_of: Option<&'a str>,
    /// Policy of its ClusterBootstrap.
    pub policy: Option<&'a UpgradePolicy>,
    /// Release of the last completed upgrade, if it is known.
    pub completed: Option<&'a str>,
    /// Kubernetes version of the release whose packages are merged, if the release exists.
    pub merged_version: Option<&'a str>,
}

/// Decision about a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Decision {
    /// Nothing was cancelled, or the packages stay.
    #[default]
    None,
    /// Cluster API has not reconciled the earlier version yet, or the version of the control plane is not known now.
    Waits(Rollback),
    /// The packages go back.
    RollsBack(Rollback),
    /// The policy asks for a rollback that is not possible, with the reason.
    Refused(String),
}

impl Decision {
    /// Returns the rollback that is under way.
    #[must_use]
    pub const fn under_way(&self) -> Option<&Rollback> {
        match self {
            Self::RollsBack(rollback) => Some(rollback),
            Self::None | Self::Waits(_) | Self::Refused(_) => None,
        }
    }

    /// Whether the packages of a release have to wait: its rollback has begun, and cannot continue now.
    #[must_use]
    pub fn holds(&self, release: &str) -> bool {
        matches!(self, Self::Waits(rollback) if rollback.release == release)
    }
}

/// Decides whether the packages of a Cluster go back.
///
/// Once a gate of the hop was open, Cluster API may write the hop to the control plane by a reconcile that began before the cancellation.
/// It reconciles a Cluster one at a time, so none of them is left once its condition has observed the generation of the cancellation.
#[must_use]
pub fn decide(inputs: RollbackInputs<'_>) -> Decision {
    let RollbackInputs {
        cluster,
        to,
        label,
        control_plane,
        resolved,
        policy,
        ..
    } = inputs;
    if let Some(record) = inputs.record {
        if let Some(why) = moved(to, control_plane, record, policy) {
            return Decision::Refused(one_line(&why, LONGEST));
        }
        if let Some(begun) = begun(record, to, label) {
            return if is_settled_below(control_plane, to, &begun.hop) {
                Decision::RollsBack(begun.clone())
            } else if has_left(control_plane, to) {
                Decision::None
            } else {
                Decision::Waits(begun.clone())
            };
        }
    }
    let hop = inputs
        .record
        .and_then(|record| cancelled_hop(record, to))
        .or_else(|| unrecorded_hop(&inputs))
        .filter(|hop| is_settled_below(control_plane, to, hop));
    let Some(hop) = hop else {
        return Decision::None;
    };
    // Without the annotation, nothing was merged for the hop.
    let Some(merged) = resolved.annotation.filter(|_| !label.is_empty()) else {
        return Decision::None;
    };
    // The record of a rollback that was ended by another bump may not have the proof of the packages that went back.
    let are_back = merged == label;
    if are_back && inputs.record.is_some_and(|record| is_proven(record, label)) {
        return Decision::None;
    }
    if !are_back && !policy.is_some_and(UpgradePolicy::rolls_back) {
        return Decision::None;
    }
    match matching(&inputs) {
        Ok(()) => {}
        Err(_) if are_back => return Decision::None,
        Err(why) => return Decision::Refused(one_line(&why, LONGEST)),
    }
    let rollback = Rollback {
        hop: hop.to_owned(),
        release: label.to_owned(),
    };
    if is_reconciled(cluster) {
        Decision::RollsBack(rollback)
    } else {
        Decision::Waits(rollback)
    }
}

/// Returns the progress of a Cluster whose packages go back: it is settled at its version, with another package set.
#[must_use]
pub fn progress(to: &str) -> Progress {
    Progress {
        phase: ControlPlanePhase::Settled {
            version: to.to_owned(),
        },
        hop: to.to_owned(),
        direction: UpgradeDirection::Forward,
        taken: true,
    }
}

/// Returns the rollback of an open record, which neither a change of the policy nor of the snapshot ends.
fn begun<'a>(record: &'a UpgradeRecord, to: &str, label: &str) -> Option<&'a Rollback> {
    let rollback = record.rollback.as_ref()?;
    let is_its = record.outcome.is_none() && same(&record.to, to) && rollback.release == label;
    is_its.then_some(rollback)
}

/// Whether the control plane is settled at a version, and reports none of the hop. It may report a build of its version.
fn is_settled_below(control_plane: Option<&ControlPlaneFacts>, to: &str, hop: &str) -> bool {
    let versions =
        control_plane.and_then(|facts| facts.spec_version.as_deref().zip(facts.status_version.as_deref()));
    versions.is_some_and(|(spec, status)| {
        let is_below = same(status, to) || same(hop, to) || !reached(status, hop);
        same(spec, to) && !is_upgrading(spec, status) && is_below
    })
}

/// Whether the control plane specifies another version.
fn has_left(control_plane: Option<&ControlPlaneFacts>, to: &str) -> bool {
    let spec = control_plane.and_then(|facts| facts.spec_version.as_deref());
    spec.is_some_and(|spec| !same(spec, to))
}

/// Returns the hop of a record that was not taken; the version of the machines, if machines of another release were not.
fn cancelled_hop<'a>(record: &'a UpgradeRecord, to: &str) -> Option<&'a str> {
    let hop = record.hop.as_deref()?;
    let is_above = !same(hop, to) && reached(hop, to);
    match record.outcome {
        None | Some(Outcome::Cancelled) if is_above => Some(hop),
        Some(Outcome::Cancelled) if is_cancelled_swap(record) => Some(hop),
        _ => None,
    }
}

/// Returns the hop of a cancelled upgrade that no record has: it is lost, or from before the merge. The same holds for packages that follow
/// a label without machines. The release of a completed upgrade is no cancelled one.
fn unrecorded_hop<'a>(inputs: &RollbackInputs<'a>) -> Option<&'a str> {
    let is_merged = inputs
        .resolved
        .annotation
        .is_some_and(|merged| merged != inputs.label);
    let is_completed = inputs
        .completed
        .is_some_and(|completed| completed != inputs.label);
    let is_cancelled = is_merged && !is_completed && matching(inputs).is_ok();
    is_cancelled.then(|| inputs.merged_version.unwrap_or(inputs.to))
}

/// Whether a record has the proof of all packages of a release.
fn is_proven(record: &UpgradeRecord, release: &str) -> bool {
    let mut packages = record.packages.iter();
    record.tkr.as_deref() == Some(release) && packages.all(|package| package.state == PackageState::Ready)
}

/// Returns the hold of a rollback whose snapshot was removed or changed.
#[must_use]
pub fn no_snapshot() -> Hold {
    let text = "annotation lifecycle.sluice.dev/rollback-to of the ClusterBootstrap was changed during the rollback; restore it, or set \
                version and label of the upgrade again";
    Hold::new(GateReason::RollbackRefused, text)
}

/// Returns the hold of workers before a rollback, until Cluster API has reconciled the cancellation.
#[must_use]
pub fn not_reconciled() -> Hold {
    Hold::new(
        GateReason::RollbackInProgress,
        "waiting for Cluster API to reconcile the cancellation",
    )
}

/// Returns the hold of a rollback that the record does not name yet. The gates of the version close before any package changes.
#[must_use]
pub fn not_recorded() -> Hold {
    Hold::new(
        GateReason::RollbackInProgress,
        "waiting for the rollback to be recorded",
    )
}

/// Returns the hold of a rollback while the version of the control plane is not known.
#[must_use]
pub fn control_plane_unknown(to: &str) -> Hold {
    let text = format!("waiting for the control plane to report {to}");
    Hold::new(GateReason::RollbackInProgress, text)
}

/// Whether the snapshot is that of the release that the label names, for the version of the control plane.
fn matching(inputs: &RollbackInputs<'_>) -> Result<(), String> {
    let unreadable = |why: &str| format!("annotation lifecycle.sluice.dev/rollback-to cannot be read: {why}");
    let snapshot = inputs.snapshot.map_err(unreadable)?;
    let snapshot =
        snapshot.ok_or("the ClusterBootstrap has no annotation lifecycle.sluice.dev/rollback-to")?;
    if !same(&snapshot.version, inputs.to) {
        return Err(format!(
            "annotation lifecycle.sluice.dev/rollback-to is about Kubernetes {}, not {}",
            snapshot.version, inputs.to
        ));
    }
    if snapshot.release != inputs.label {
        return Err(format!(
            "annotation lifecycle.sluice.dev/rollback-to is about TanzuKubernetesRelease {}, and the label names {}",
            snapshot.release, inputs.label
        ));
    }
    match inputs.made_of.filter(|made_of| *made_of != snapshot.release) {
        Some(made_of) => Err(format!(
            "annotation lifecycle.sluice.dev/rollback-to is about TanzuKubernetesRelease {}, and TKR_DATA names {made_of} for {}",
            snapshot.release, inputs.to
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
