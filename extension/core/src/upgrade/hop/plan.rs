//! Steps of an upgrade, as Cluster API plans them (`exp/topology/desiredstate/upgrade_plan.go`).

use std::cmp::Ordering;

use sluice_crds::foreign::{ClusterClass, cluster::ClusterStatus};

use super::WorkerFacts;
use crate::version::{KubernetesVersion, is_upgrading, same};

/// Maximum number of minor versions between workers and control plane.
///
/// Cluster API plans a worker step at every third minor, counted from the oldest worker.
const WORKER_SKEW: u64 = 3;

/// Source of the steps of an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Plan {
    /// The target is the only step.
    #[default]
    Direct,
    /// Permitted versions of the steps, ascending: `spec.kubernetesVersions` of the ClusterClass.
    Listed(Vec<String>),
    /// Steps that an extension has planned, from `status.controlPlane.upgradePlan` and `status.workers.upgradePlan` of the Cluster.
    /// They belong to an earlier target until Cluster API has called the extension again.
    Given {
        /// Versions for the control plane.
        control_plane: Vec<String>,
        /// Versions for the workers.
        workers: Vec<String>,
    },
}

impl Plan {
    /// Returns the plan of a Cluster of this class, by the precedence of Cluster API.
    #[must_use]
    pub fn of(class: Option<&ClusterClass>, status: Option<&ClusterStatus>) -> Self {
        match class.map(|class| &class.spec) {
            Some(class) if class.plan_extension().is_some() => Self::Given {
                control_plane: status.map(ClusterStatus::control_plane_steps).unwrap_or_default(),
                workers: status.map(ClusterStatus::worker_steps).unwrap_or_default(),
            },
            Some(class) if !class.kubernetes_versions.is_empty() => {
                Self::Listed(class.kubernetes_versions.clone())
            }
            _ => Self::Direct,
        }
    }

    /// Whether the steps to this target are known.
    pub(crate) fn leads_to(&self, to: &str) -> bool {
        match self {
            Self::Given { control_plane, .. } => control_plane.last().is_some_and(|last| same(last, to)),
            Self::Direct | Self::Listed(_) => true,
        }
    }

    /// Returns the control plane version after `version` on the path to `to`; none while it is unknown.
    pub(in crate::upgrade) fn next_step(&self, version: &str, to: &str) -> Option<String> {
        match self {
            Self::Direct => Some(to.to_owned()),
            Self::Listed(versions) => {
                Some(first_listed(version, to, versions).unwrap_or_else(|| to.to_owned()))
            }
            Self::Given { control_plane, .. } if self.leads_to(to) => {
                let ahead = |step: &&String| is_above(step, version);
                control_plane.iter().find(ahead).cloned()
            }
            Self::Given { .. } => None,
        }
    }

    /// Whether workers get the control plane's version before its next step.
    pub(super) fn workers_first(&self, version: &str, workers: &[WorkerFacts], to: &str) -> bool {
        match self {
            Self::Given { workers: steps, .. } => {
                !workers.is_empty() && steps.first().is_some_and(|step| same(step, version))
            }
            Self::Direct | Self::Listed(_) => lag_behind(version, workers, to).unwrap_or(false),
        }
    }
}

/// Whether a step leads from a version to another one. Cluster API permits steps between builds that have no order.
fn is_above(step: &str, version: &str) -> bool {
    !same(step, version) && is_upgrading(step, version)
}

/// Whether a worker lags so far behind the control plane that it upgrades before the next minor version.
fn lag_behind(version: &str, workers: &[WorkerFacts], to: &str) -> Option<bool> {
    let version: KubernetesVersion = version.parse().ok()?;
    let to: KubernetesVersion = to.parse().ok()?;
    let behind = workers
        .iter()
        .filter_map(|worker| worker.spec_version.as_deref()?.parse::<KubernetesVersion>().ok())
        .any(|worker| version.minors_ahead_of(&worker) >= WORKER_SKEW);
    Some(behind && to.minors_ahead_of(&version) > 0)
}

/// Returns the first step that Cluster API takes from a list: for each minor version the last one listed.
fn first_listed(version: &str, to: &str, versions: &[String]) -> Option<String> {
    let version: KubernetesVersion = version.parse().ok()?;
    let to: KubernetesVersion = to.parse().ok()?;
    let mut steps = Vec::new();
    for listed in versions {
        let listed: KubernetesVersion = listed.parse().ok()?;
        if listed.cmp_release(&version) != Ordering::Greater {
            continue;
        }
        if listed.cmp_release(&to) == Ordering::Greater {
            break;
        }
        let last = listed.means(&to);
        steps.push(listed);
        if last {
            break;
        }
    }
    let first = if to.same_minor(&version) {
        steps.first()
    } else {
        steps.iter().find(|step| step.minor() > version.minor())
    }?;
    let last_of_minor = steps.iter().rfind(|step| step.same_minor(first))?;
    Some(last_of_minor.to_string())
}
