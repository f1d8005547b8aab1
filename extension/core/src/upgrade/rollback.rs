//! Rollback: the packages of a cancelled upgrade go back to the versions from before it.
//!
//! Cluster API has no hook for a cancellation. The label names the earlier release again, and the control plane still has its version.

mod moved;

use sluice_crds::{
    foreign::{Cluster, cluster::ClusterStatus},
    labels::name::TOPOLOGY_RECONCILED,
    run::{Outcome, Rollback, UpgradePolicy, UpgradeRecord},
};

use self::moved::moved;
use super::{
    hop::{ControlPlaneFacts, ControlPlanePhase, Progress, UpgradeDirection},
    swap::is_cancelled_swap,
};
use crate::{
    packages::bootstrap::{ResolvedRelease, Snapshot},
    reasons::{GateReason, Hold},
    version::{reached, same},
};

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
    /// Release that its machines are made of, if an entry names one.
    pub made_of: Option<&'a str>,
    /// Policy of its ClusterBootstrap.
    pub policy: Option<&'a UpgradePolicy>,
}

/// Decision about a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Decision {
    /// Nothing was cancelled, or the packages stay.
    #[default]
    None,
    /// Cluster API has not reconciled the earlier version yet.
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
        record,
        resolved,
        policy,
        ..
    } = inputs;
    let Some(record) = record else {
        return Decision::None;
    };
    if let Some(why) = moved(to, inputs.control_plane, record, policy) {
        return Decision::Refused(why);
    }
    if !is_settled_at(inputs.control_plane, to) {
        return Decision::None;
    }
    if let Some(rollback) = &record.rollback
        && record.outcome.is_none()
        && same(&record.to, to)
        && rollback.release == label
    {
        return Decision::RollsBack(rollback.clone());
    }
    let Some(hop) = cancelled_hop(record, to) else {
        return Decision::None;
    };
    // Without the annotation, nothing was merged for the hop.
    let is_merged = resolved.annotation.is_some_and(|merged| merged != label);
    if !is_merged || label.is_empty() || !policy.is_some_and(UpgradePolicy::rolls_back) {
        return Decision::None;
    }
    if let Err(why) = matching(&inputs) {
        return Decision::Refused(why);
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

fn is_settled_at(control_plane: Option<&ControlPlaneFacts>, to: &str) -> bool {
    let is_at = |version: Option<&String>| version.is_some_and(|version| same(version, to));
    control_plane
        .is_some_and(|facts| is_at(facts.spec_version.as_ref()) && is_at(facts.status_version.as_ref()))
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

/// Returns the hold of a rollback whose snapshot has vanished.
#[must_use]
pub fn no_snapshot() -> Hold {
    let text = "annotation lifecycle.sluice.dev/rollback-to of the ClusterBootstrap was removed during the rollback; restore it, or set \
                version and label of the upgrade again";
    Hold::new(GateReason::RollbackRefused, text)
}

/// Whether the snapshot is that of the release that the label names, for the version of the control plane.
fn matching(inputs: &RollbackInputs<'_>) -> Result<(), String> {
    let snapshot = inputs.snapshot.map_err(str::to_owned)?;
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
            "annotation lifecycle.sluice.dev/rollback-to is about TanzuKubernetesRelease {}, and machines are made of {made_of}",
            snapshot.release
        )),
        None => Ok(()),
    }
}

/// Whether Cluster API has reconciled the current generation of a Cluster.
fn is_reconciled(cluster: &Cluster) -> bool {
    let status: Option<&ClusterStatus> = cluster.status.as_ref();
    let conditions = status.into_iter().flat_map(|status| &status.conditions);
    let observed = conditions
        .filter(|condition| condition.type_ == TOPOLOGY_RECONCILED)
        .find_map(|condition| condition.observed_generation);
    observed.is_some() && observed >= cluster.metadata.generation
}

#[cfg(test)]
mod tests;
