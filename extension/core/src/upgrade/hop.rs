//! Hop: the next Kubernetes version of an upgrade.

mod control_plane;
mod plan;
mod rollout;
mod worker;

use sluice_crds::run::{Hook, Outcome, UpgradeRecord};

pub use self::control_plane::ControlPlaneFacts;
pub use self::plan::Plan;
pub use self::rollout::Rollout;
pub use self::worker::{Worker, WorkerFacts};
use super::course::Course;
use crate::version::{below, is_upgrading, reached, same, same_numbers};

/// Progress of the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ControlPlanePhase {
    /// The control plane does not exist, or has no version in its status yet.
    Creating,
    /// Cluster API does not treat the control plane as upgrading: the status has the version of the spec, a later one, or one with a
    /// suffix that the spec lacks.
    Settled {
        /// The version in its spec.
        version: String,
    },
    /// The control plane is upgrading.
    Rolling {
        /// The version at which it was settled if the status has a build of it, otherwise the version in its status.
        from: String,
        /// The version in its status.
        reported: String,
        /// The version in its spec.
        to: String,
    },
}

/// Position of the target relative to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpgradeDirection {
    /// At the control plane's version or above it.
    Forward,
    /// Back at the control plane's version, after writes of packages of a higher version began. Those packages stay.
    Cancelled,
    /// Below the control plane's version, which Cluster API does not support.
    Downgrade,
    /// Above the control plane's version, by steps that are not known yet. The hop is the target, and Sluice does nothing for it.
    PlanUnknown,
}

/// Progress of an upgrade and its next hop.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Progress of the control plane.
    pub phase: ControlPlanePhase,
    /// Version that Cluster API writes to the control plane next, or has written last.
    pub hop: String,
    /// Position of the target.
    pub direction: UpgradeDirection,
    /// Whether the control plane's `spec.version` is the hop.
    pub taken: bool,
}

impl Progress {
    /// Returns the API server version on which packages are proven: that of the control plane's status, or the desired version of which
    /// the status has a later one or a build.
    ///
    /// Every values digest includes it, so kapp-controller deploys again after a version change.
    #[must_use]
    pub fn stage(&self) -> Option<&str> {
        match &self.phase {
            ControlPlanePhase::Creating => None,
            ControlPlanePhase::Settled { version } => Some(version),
            ControlPlanePhase::Rolling { from, .. } => Some(from),
        }
    }

    /// Returns the version at which the control plane is settled.
    #[must_use]
    pub fn settled_at(&self) -> Option<&str> {
        match &self.phase {
            ControlPlanePhase::Settled { version } => Some(version),
            _ => None,
        }
    }

    /// Whether the control plane is settled at the hop.
    #[must_use]
    pub fn settled_at_hop(&self) -> bool {
        self.taken && self.settled_at().is_some()
    }
}

/// Computes the progress of an upgrade to a target.
///
/// `previous` is the record of this very Cluster.
#[must_use]
pub fn progress(
    control_plane: Option<&ControlPlaneFacts>,
    workers: &[WorkerFacts],
    to: &str,
    plan: &Plan,
    previous: Option<&UpgradeRecord>,
) -> Progress {
    progress_after(control_plane, workers, to, plan, previous.map(Into::into))
}

/// Computes the same after the course of a record of any kind.
#[must_use]
pub fn progress_after(
    control_plane: Option<&ControlPlaneFacts>,
    workers: &[WorkerFacts],
    to: &str,
    plan: &Plan,
    previous: Option<Course<'_>>,
) -> Progress {
    let spec = control_plane.and_then(|facts| facts.spec_version.as_deref());
    let status = control_plane.and_then(|facts| facts.status_version.as_deref());
    let (phase, hop, direction) = match (spec, status) {
        (None, _) => (
            ControlPlanePhase::Creating,
            to.to_owned(),
            UpgradeDirection::Forward,
        ),
        (Some(spec), None) => {
            // A status that disappears during an upgrade does not revert packages.
            let hop = begun_above(spec, previous).unwrap_or(spec);
            (
                ControlPlanePhase::Creating,
                hop.to_owned(),
                UpgradeDirection::Forward,
            )
        }
        (Some(spec), Some(status)) if is_upgrading(spec, status) => (
            ControlPlanePhase::Rolling {
                from: settled_before(status, workers, previous).into(),
                reported: status.into(),
                to: spec.into(),
            },
            spec.to_owned(),
            UpgradeDirection::Forward,
        ),
        (Some(spec), Some(_)) => {
            let (hop, direction) = after_settling(spec, workers, to, plan, previous);
            (
                ControlPlanePhase::Settled { version: spec.into() },
                hop,
                direction,
            )
        }
    };
    let taken = spec.is_some_and(|spec| same(spec, &hop));
    Progress {
        phase,
        hop,
        direction,
        taken,
    }
}

/// Returns the version at which a control plane was settled that reports `status`. Providers report builds of it, and packages were
/// proven on the version itself.
fn settled_before<'a>(status: &'a str, workers: &'a [WorkerFacts], previous: Option<Course<'a>>) -> &'a str {
    let recorded = previous.into_iter().flat_map(|record| {
        let gates = record.gates.iter().map(|gate| gate.version.as_str());
        record.from.into_iter().chain(gates)
    });
    let of_workers = workers.iter().filter_map(|worker| worker.spec_version.as_deref());
    let is_settled = |version: &&str| same_numbers(version, status) && !is_upgrading(version, status);
    let versions: Vec<&str> = recorded.chain(of_workers).filter(is_settled).collect();
    if versions.contains(&status) {
        status
    } else {
        versions.first().copied().unwrap_or(status)
    }
}

fn after_settling(
    version: &str,
    workers: &[WorkerFacts],
    to: &str,
    plan: &Plan,
    previous: Option<Course<'_>>,
) -> (String, UpgradeDirection) {
    if same(version, to) {
        return match begun_above(version, previous) {
            Some(hop) => (hop.to_owned(), UpgradeDirection::Cancelled),
            None => (to.to_owned(), UpgradeDirection::Forward),
        };
    }
    if below(to, version) {
        return (
            begun_above(version, previous).unwrap_or(version).to_owned(),
            UpgradeDirection::Downgrade,
        );
    }
    let has_begun_next =
        previous.is_some_and(|record| record.to == to) && begun_above(version, previous).is_some();
    let waits_for_workers =
        are_rolling(version, workers, has_begun_next) || plan.workers_first(version, workers, to);
    if unproven_hop(version, to, previous) || waits_for_workers {
        return (version.to_owned(), UpgradeDirection::Forward);
    }
    match plan.next_step(version, to) {
        Some(next) => (next, UpgradeDirection::Forward),
        None => (to.to_owned(), UpgradeDirection::PlanUnknown),
    }
}

/// Whether a worker at a version may be upgrading to it. A MachinePool that is scaled looks like one that is upgraded (see
/// [`Worker::may_be_upgrading`]), and so does each worker until Cluster API has observed its last change. Neither is evidence against a begun
/// hop: Cluster API itself waits for the Machines before it calls a hook.
fn are_rolling(version: &str, workers: &[WorkerFacts], has_begun_next: bool) -> bool {
    workers.iter().any(|worker| {
        let spec = worker.spec_version.as_deref();
        let is_unproven = has_begun_next && (worker.is_pool || worker.rollout.is_outdated);
        worker.rolling && !is_unproven && spec.is_some_and(|spec| same(spec, version))
    })
}

/// Returns the hop above the control plane's version whose packages were begun and not completed.
fn begun_above<'a>(version: &str, previous: Option<Course<'a>>) -> Option<&'a str> {
    let is_over =
        |record: &Course<'_>| matches!(record.outcome, Some(Outcome::Completed | Outcome::RolledBack));
    let record = previous.filter(|record| !is_over(record))?;
    record
        .hop
        .filter(|hop| !same(hop, version) && reached(hop, version))
}

/// Whether the control plane is at a hop on the path to `to` with packages that are unproven since its arrival. Another target does not
/// wait for them: its own first hop is proven on the same API server.
fn unproven_hop(version: &str, to: &str, previous: Option<Course<'_>>) -> bool {
    let Some(record) = previous.filter(|record| record.outcome.is_none() && record.to == to) else {
        return false;
    };
    let at_hop = record.hop.is_some_and(|hop| same(hop, version));
    let proven = [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade]
        .iter()
        .all(|hook| {
            record
                .gates
                .iter()
                .any(|gate| gate.hook == *hook && same(&gate.version, version) && gate.open)
        });
    at_hop && !proven
}

#[cfg(test)]
mod cluster_api;
#[cfg(test)]
mod tests;
