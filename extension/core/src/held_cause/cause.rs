//! Causes, as they appear in the status and in metrics.

use sluice_crds::run::HeldCause;

use crate::{reasons::reasons, text::one_line};

/// Longest object of a cause, in characters.
const LONGEST_OBJECT: usize = 320;

/// Longest evidence of a cause, in characters.
pub(super) const LONGEST_EVIDENCE: usize = 512;

reasons! {
    /// Why a gate is held for long. Of objects of a package, a cause that comes first here takes precedence.
    Cause:
    /// A DaemonSet with update strategy `OnDelete` runs Pods of the earlier version.
    OnDeleteDaemonSet,
    /// A container waits for its image.
    ImagePull,
    /// A container does not start, or ends again and again.
    CrashLoop,
    /// The scheduler finds no Node for a Pod.
    Unschedulable,
    /// A PodDisruptionBudget stops the drain of a Machine. It precedes Pods without a Node, which the drain may have evicted.
    DisruptionBudget,
    /// A webhook, a policy, Pod Security or a quota refuses an object of the package.
    AdmissionDenied,
    /// An object of the package belongs to another App.
    OwnershipConflict,
    /// The API server does not serve a kind of the package.
    RemovedAPI,
    /// kapp waited for an object for too long.
    KappTimeout,
    /// kapp-controller refuses a lower version of the package.
    DowngradeRefused,
    /// A user has paused or canceled the PackageInstall or App.
    PackagePaused,
    /// A Package excludes the Kubernetes version.
    PackageExcludesKubernetes,
    /// The workload API server cannot be reached.
    WorkloadUnreachable,
    /// Nothing that was read shows a cause.
    Unknown,
}

impl Cause {
    /// Whether the hold reason alone shows the cause, so that the cause ends with the reason.
    pub(crate) const fn is_of_reason(self) -> bool {
        matches!(
            self,
            Self::PackagePaused | Self::PackageExcludesKubernetes | Self::WorkloadUnreachable
        )
    }
}

/// Returns a cause with texts that tenants choose, cut and on one line.
pub(crate) fn held_cause(cause: Cause, object: &str, evidence: &str) -> HeldCause {
    HeldCause {
        name: cause.as_str().to_owned(),
        object: one_line(object, LONGEST_OBJECT),
        evidence: one_line(evidence, LONGEST_EVIDENCE),
    }
}
