//! Milestones of a Cluster, and their place in the order of all writes.

use jiff::Timestamp;

use super::feed::Revision;

/// One milestone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Milestone {
    /// Position in the order of all writes.
    pub revision: Revision,
    /// Time of the observation. No order depends on it.
    pub seen: Timestamp,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// What happened.
    pub event: Event,
}

/// Kinds of milestones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The label of the release was set or changed.
    Labelled {
        /// Name of the release.
        tkr: String,
    },
    /// The ClusterBootstrap was created.
    Bootstrapped,
    /// The control plane object was created.
    ControlPlaneCreated {
        /// Its first version.
        version: String,
    },
    /// The message of the Cluster's condition TopologyReconciled changed.
    Topology {
        /// The message; empty once all is reconciled.
        message: String,
    },
    /// The record of the ClusterBootstrap opened the gate of the next version of the control plane. Comes again each time that it opens.
    GateOpened {
        /// The version.
        version: String,
    },
    /// Cluster API wrote a version to the control plane.
    ControlPlaneWritten {
        /// The version.
        version: String,
    },
    /// The control plane reports a version.
    ControlPlaneRuns {
        /// The version.
        version: String,
    },
    /// Cluster API wrote a version to a MachineDeployment or a MachinePool.
    WorkersWritten {
        /// Name of the MachineDeployment or MachinePool.
        machine_deployment: String,
        /// The version.
        version: String,
    },
    /// All Machines of a MachineDeployment are up to date and available after a change of version.
    WorkersDone {
        /// Name of the MachineDeployment.
        machine_deployment: String,
        /// The version.
        version: String,
    },
    /// `TKR_DATA` was changed for a version that machines run, for at least one part of the topology.
    ReleaseDataWritten {
        /// The version.
        version: String,
        /// Name of the release of the new entry; empty if there is no entry or it names none.
        release: String,
    },
    /// `spec.paused` of the Cluster was set or taken back.
    Paused {
        /// Which of both.
        paused: bool,
    },
    /// A package has proof at a version. Comes again with every run that kapp-controller finishes after a change.
    PackageProven {
        /// `Package.spec.refName`.
        ref_name: String,
        /// The version.
        version: String,
    },
    /// The ClusterBootstrap has lower packages, of another release.
    RolledBack {
        /// Name of the release.
        release: String,
    },
    /// A version was written, or a hook was passed, without the proof of packages that an UpgradeOverride names.
    Overridden {
        /// Name of the UpgradeOverride.
        name: String,
        /// Its gate.
        gate: &'static str,
        /// The version.
        version: String,
    },
    /// All packages have been proven again by the API server of this version, for the first time.
    ProvenAgain {
        /// The version.
        version: String,
    },
    /// kapp-controller works on a package.
    PackageWorking {
        /// `Package.spec.refName`.
        ref_name: String,
        /// The version that the App is at.
        version: String,
    },
    /// kapp-controller failed on a package; it tries again by itself.
    PackageFailed {
        /// `Package.spec.refName`.
        ref_name: String,
        /// The version that the App is at.
        version: String,
    },
    /// A check of an UpgradeGate that selects the Cluster is proven, at a row for a minor version of Kubernetes. Comes again after each
    /// loss of the proof.
    CheckProven {
        /// Name of the UpgradeGate.
        gate: String,
        /// Name of the check.
        check: String,
        /// The minor version, such as `1.35`.
        minor: String,
    },
    /// It is not proven any more.
    CheckLost {
        /// Name of the UpgradeGate.
        gate: String,
        /// Name of the check.
        check: String,
        /// The minor version.
        minor: String,
    },
    /// Cluster API wrote a version to the control plane before the checks of an Audit gate were proven.
    AuditWouldHold {
        /// Name of the UpgradeGate.
        gate: String,
        /// The version.
        version: String,
    },
    /// The PackageInstall shows success at a version that the App has not finished, or not even begun.
    FalseSuccess {
        /// `Package.spec.refName`.
        ref_name: String,
        /// The version that the PackageInstall claims.
        version: String,
    },
}
