//! Why an upgrade is held: one vocabulary for hook messages, conditions, events and metric labels.

use std::fmt;

use crate::reasons::reasons;

reasons! {
    /// Why a gate is closed or a hook call is held.
    HoldReason:
    /// This replica has not read everything yet.
    Starting,
    /// The API server has not confirmed for too long what this replica remembers.
    ReplicaStale,
    /// No replica leads, so what the record says is not looked at any more.
    NoLeader,
    /// The Cluster is managed, but nothing was written about it yet.
    NoRecord,
    /// The record was written by a release that uses another schema.
    RecordSchemaUnknown,
    /// The record speaks about an earlier Cluster of the same name.
    RecordOfAnotherCluster,
    /// The Cluster was edited after the record was computed.
    RecordBehindCluster,
    /// The ClusterBootstrap was edited after the record was computed.
    RecordBehindBootstrap,
    /// The Cluster's release label was edited after the record was computed.
    RecordBehindLabel,
    /// The record speaks about another target version.
    RecordOfAnotherTarget,
    /// The record does not know the version that the question is about.
    VersionNotPlanned,
    /// The gate is closed for a reason that this build does not know.
    GateClosed,
    /// The release label was removed while a ClusterBootstrap exists.
    TKRLabelRemoved,
    /// The release label names a release that is marked legacy while a ClusterBootstrap exists.
    TKRLegacy,
    /// A release is named that does not exist.
    TKRNotFound,
    /// No release, or no single one, belongs to the version that comes next.
    NoTKRForHop,
    /// The ClusterClass leaves the steps to an extension, and Cluster API has not shown them yet.
    UpgradePlanUnknown,
    /// The version on the Cluster is lower than that of its control plane.
    VersionBelowControlPlane,
    /// The release has no ClusterBootstrapTemplate.
    TemplateNotFound,
    /// A package is named that does not exist.
    PackageNotFound,
    /// The release lists no version of a package that is in use.
    PackageNotInRelease,
    /// A package of the ClusterBootstrap is older than in the release that is next.
    PackageBelowRelease,
    /// A package of the release that is next is not in the ClusterBootstrap.
    PackageMissing,
    /// Two packages of the ClusterBootstrap would be one PackageInstall.
    PackageListedTwice,
    /// The annotation that keeps package versions cannot be read.
    KeptVersionsInvalid,
    /// The values of a package cannot be found.
    ValuesNotFound,
    /// The provider of a package's values has not written them yet.
    ValuesNotReady,
    /// The values of a package come from more than one source.
    SeveralValuesSources,
    /// A CNI is set although the annotation says that it is unmanaged.
    UnmanagedCNISet,
    /// The name of an object would be longer than Kubernetes allows.
    NameTooLong,
    /// The packages of the next version's release are not yet in the ClusterBootstrap.
    BootstrapNotMerged,
    /// A write was refused by the API server.
    WriteRefused,
    /// The installed definition of ClusterBootstrap drops the record.
    CRDOutdated,
    /// The control plane would skip a minor version, and Cluster API asks before the first one only.
    MinorVersionsSkipped,
    /// The Cluster is paused.
    ClusterPaused,
    /// The ClusterBootstrap is paused.
    BootstrapPaused,
    /// An annotation of somebody else keeps the upgrade from starting.
    StartHeldByAnnotation,
    /// The Cluster is being deleted.
    ClusterDeleting,
    /// The packages are being uninstalled.
    UninstallRunning,
    /// The kind of control plane that the Cluster names cannot be read.
    ControlPlaneKindUnreadable,
    /// A look at the Cluster ended in a bug of Sluice.
    PassPanicked,
    /// A look at the Cluster was cut off: it took too long, or other slow ones had the slots.
    PassCutOff,
    /// A look at the Cluster failed: the management API server refused something, or did not answer.
    PassFailed,
    /// The control plane does not exist or does not answer yet.
    ControlPlaneCreating,
    /// The control plane is taking the version.
    ControlPlaneUpgrading,
    /// Workers are taking the version.
    WorkersUpgrading,
    /// The kubeconfig of the workload cluster does not exist.
    KubeconfigNotFound,
    /// The kubeconfig of the workload cluster holds something that is not used.
    KubeconfigRefused,
    /// The workload cluster does not answer.
    WorkloadUnreachable,
    /// The workload's kapp-controller does not serve its API yet.
    KappControllerRestarting,
    /// The packages of the next version are not known yet.
    PackagesUnknown,
    /// A package has no proof yet.
    PackagesNotReady,
    /// A package failed.
    PackageFailed,
    /// A package is written, but not yet reconciled on every node.
    PackagesNotSettled,
    /// Nothing of the package was written yet.
    NotWritten,
    /// The PackageInstall is being deleted.
    PackageInstallDeleting,
    /// The PackageInstall is paused.
    PackageInstallPaused,
    /// The PackageInstall is canceled.
    PackageInstallCanceled,
    /// The PackageInstall asks for another package, version or values.
    PackageInstallOfAnotherTarget,
    /// kapp-controller has not seen the latest PackageInstall.
    PackageInstallNotObserved,
    /// kapp-controller has not chosen the version yet.
    PackageInstallAtAnotherVersion,
    /// The PackageInstall has not succeeded.
    PackageInstallReconciling,
    /// The PackageInstall failed.
    PackageInstallFailed,
    /// The App does not exist yet.
    AppMissing,
    /// The App belongs to another PackageInstall.
    AppOfAnotherPackageInstall,
    /// The App is being deleted.
    AppDeleting,
    /// The App is paused.
    AppPaused,
    /// The App is canceled.
    AppCanceled,
    /// The App was cut off from its PackageInstall by annotation.
    AppManuallyControlled,
    /// The App is for another version.
    AppAtAnotherVersion,
    /// The App uses other values.
    AppWithOtherValues,
    /// The App is made from the Package as it was before it was edited, or put back.
    AppNotMadeFromPackage,
    /// kapp-controller has not seen the latest App.
    AppNotObserved,
    /// The App has not succeeded.
    AppReconciling,
    /// The App failed.
    AppFailed,
}

impl HoldReason {
    /// Whether the reason is the replica that was asked, so that another one may answer otherwise.
    #[must_use]
    pub const fn is_of_the_replica(self) -> bool {
        matches!(self, Self::Starting | Self::ReplicaStale)
    }

    /// Whether the reason is about to pass: what is known is behind the call, or Cluster API has not asked while it was the
    /// reason. How long nothing moved before says nothing then.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        self.is_of_the_replica()
            || matches!(
                self,
                Self::NoLeader
                    | Self::NoRecord
                    | Self::RecordSchemaUnknown
                    | Self::RecordOfAnotherCluster
                    | Self::RecordBehindCluster
                    | Self::RecordBehindBootstrap
                    | Self::RecordBehindLabel
                    | Self::RecordOfAnotherTarget
                    | Self::VersionNotPlanned
                    | Self::ClusterPaused
                    | Self::StartHeldByAnnotation
                    | Self::ClusterDeleting
                    | Self::ControlPlaneCreating
                    | Self::ControlPlaneUpgrading
                    | Self::WorkersUpgrading
            )
    }
}

/// A reason to hold, and the object it is about.
///
/// The message stays the same while the reason does: Cluster API writes each change of it into a condition and
/// reconciles, so it carries no counts, no times and no intermediate states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Why.
    pub reason: HoldReason,
    /// What is waited for.
    pub message: String,
}

impl Hold {
    /// A hold with its message.
    #[must_use]
    pub fn new(reason: HoldReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            return write!(f, "{}", self.reason);
        }
        write!(f, "{}: {}", self.reason, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_found_by_its_spelling() {
        for reason in HoldReason::ALL {
            assert_eq!(HoldReason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(HoldReason::parse("SomethingNewer"), None);
    }

    #[test]
    fn a_hold_reads_as_reason_and_message() {
        let hold = Hold::new(HoldReason::PackagesNotReady, "waiting for antrea 1.9.0");
        assert_eq!(hold.to_string(), "PackagesNotReady: waiting for antrea 1.9.0");
        assert_eq!(Hold::new(HoldReason::Starting, "").to_string(), "Starting");
    }
}
