//! Findings of a plan.

use serde::{Serialize, Serializer};

use super::table::{CHECKS, Check};
use crate::{
    protocol::Key,
    reasons::{GateReason, Hold, reasons},
};

/// What a finding causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// A gate will hold with the reason, or Cluster API refuses the change of version.
    Blocks,
    /// Nothing holds.
    Warns,
}

/// What admission does about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Refuses the change of version.
    Refuses,
    /// Warns: what is missing, and what is in the namespace of the Cluster, may arrive in the same apply. GitOps tools apply Clusters before
    /// releases and Packages, and stop at the first refusal.
    Warns,
    /// Leaves it to Cluster API, which refuses it.
    LeftToClusterApi,
    /// Does not make the check: it costs too much, or reads more than the caches.
    NotChecked,
}

reasons! {
    /// Reason of a finding that no gate has.
    WarningReason:
    /// The ClusterClass lists versions, and `topology.version` is none of them.
    VersionNotInClass,
    /// `topology.version` is more than one minor version ahead, and the ClusterClass plans no steps.
    MinorVersionSkipped,
    /// Not all steps are known or checked yet.
    StepsNotPlanned,
    /// A package has a lower version after the step than before.
    PackageDowngraded,
    /// A package fails before the upgrade.
    PackageFailing,
    /// The Package does not permit the version of kapp-controller that the step installs.
    PackageExcludesKappController,
    /// A condition of the Cluster is not True.
    ClusterNotHealthy,
    /// Values of a package do not match `valuesSchema` of the Package after the step.
    ValuesNotInSchema,
    /// `valuesSchema` of a Package cannot be used for a comparison.
    SchemaNotUsable,
    /// Values of a package are no YAML.
    ValuesNotReadable,
    /// A PodDisruptionBudget permits no eviction now.
    EvictionNotAllowedNow,
    /// A PodDisruptionBudget never permits an eviction.
    EvictionNeverAllowed,
    /// A Pod has no controller: a drain deletes it for good.
    PodWithoutController,
    /// The kubelet of a Node is more than three minor versions older than a step.
    NodeTooOld,
    /// A client has requested an API that a version up to the target no longer serves.
    RemovedAPIRequested,
    /// Annotation `unsafe.topology.cluster.x-k8s.io/disable-update-version-check` is set: Cluster API checks no change of the version.
    VersionCheckDisabled,
}

/// Reason of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingReason {
    /// That of the gate that will hold.
    Gate(GateReason),
    /// No gate has the reason.
    Warning(WarningReason),
}

impl FindingReason {
    /// Returns the spelling in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gate(reason) => reason.as_str(),
            Self::Warning(reason) => reason.as_str(),
        }
    }
}

impl Serialize for FindingReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Finding of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Kubernetes version of the step; `None` for the whole upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<String>,
    /// What it causes.
    pub effect: Effect,
    /// Reason.
    pub reason: FindingReason,
    /// One line that names the object, the field and the value.
    pub message: String,
    /// What a user does about it.
    pub remedy: &'static str,
    /// What admission does about it.
    #[serde(skip)]
    pub admission: Admission,
    /// PackageInstall that removes the finding if it has annotation [`IGNORES_SELECTION`](super::IGNORES_SELECTION).
    #[serde(skip)]
    pub install: Option<Key>,
}

impl Finding {
    /// Returns the finding of a hold at a step.
    #[must_use]
    pub fn of_hold(hop: Option<&str>, hold: Hold) -> Self {
        Self::new(hop, FindingReason::Gate(hold.reason), hold.message)
    }

    /// Returns the finding of a check.
    #[must_use]
    pub fn new(hop: Option<&str>, reason: FindingReason, message: String) -> Self {
        let check = check(reason);
        Self {
            hop: hop.map(str::to_owned),
            effect: check.effect,
            reason: check.reason,
            message,
            remedy: check.remedy,
            admission: check.admission,
            install: None,
        }
    }
}

fn check(reason: FindingReason) -> Check {
    let of_table = CHECKS.iter().find(|check| check.reason == reason);
    of_table.copied().unwrap_or(Check {
        reason,
        about: "",
        effect: match reason {
            FindingReason::Gate(_) => Effect::Blocks,
            FindingReason::Warning(_) => Effect::Warns,
        },
        admission: Admission::Warns,
        flag: None,
        remedy: "",
    })
}
