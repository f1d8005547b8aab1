//! The evidence record: what `ClusterBootstrap.status.upgrade` says about one upgrade.
//!
//! The gate decides hook calls from this record alone, so it is complete in itself and survives a restart.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Readiness;

/// The record schema that this build reads and writes. A record of another schema counts as no record.
pub const SCHEMA: i64 = 1;

/// A lifecycle hook of Cluster API's Runtime SDK, spelled as the SDK spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Hook {
    /// Before any object of a topology is created.
    BeforeClusterCreate,
    /// Once, after the first control plane node answers. Never blocks.
    AfterControlPlaneInitialized,
    /// Once per upgrade, before its first step.
    BeforeClusterUpgrade,
    /// Before each version that the control plane takes.
    BeforeControlPlaneUpgrade,
    /// After each version that the control plane has taken.
    AfterControlPlaneUpgrade,
    /// Before each version that the workers take.
    BeforeWorkersUpgrade,
    /// After each version that the workers have taken.
    AfterWorkersUpgrade,
    /// Once per upgrade, after its last step.
    AfterClusterUpgrade,
    /// Before anything of the cluster is deleted.
    BeforeClusterDelete,
}

impl Hook {
    /// Every lifecycle hook, in the order in which one upgrade meets them.
    pub const ALL: [Self; 9] = [
        Self::BeforeClusterCreate,
        Self::AfterControlPlaneInitialized,
        Self::BeforeClusterUpgrade,
        Self::BeforeControlPlaneUpgrade,
        Self::AfterControlPlaneUpgrade,
        Self::BeforeWorkersUpgrade,
        Self::AfterWorkersUpgrade,
        Self::AfterClusterUpgrade,
        Self::BeforeClusterDelete,
    ];

    /// The name on the wire in discovery and in `kind` (`<name>Request`).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeClusterCreate => "BeforeClusterCreate",
            Self::AfterControlPlaneInitialized => "AfterControlPlaneInitialized",
            Self::BeforeClusterUpgrade => "BeforeClusterUpgrade",
            Self::BeforeControlPlaneUpgrade => "BeforeControlPlaneUpgrade",
            Self::AfterControlPlaneUpgrade => "AfterControlPlaneUpgrade",
            Self::BeforeWorkersUpgrade => "BeforeWorkersUpgrade",
            Self::AfterWorkersUpgrade => "AfterWorkersUpgrade",
            Self::AfterClusterUpgrade => "AfterClusterUpgrade",
            Self::BeforeClusterDelete => "BeforeClusterDelete",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of one upgrade (or of the first installation) of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRecord {
    /// Schema of this record; see [`SCHEMA`].
    pub schema: i64,
    /// `metadata.uid` of the Cluster.
    #[serde(rename = "clusterUID")]
    pub cluster_uid: String,
    /// `metadata.generation` of the Cluster that the record was computed from.
    pub observed_cluster_generation: i64,
    /// `metadata.generation` of this very ClusterBootstrap that the record was computed from.
    pub observed_bootstrap_generation: i64,
    /// UID of namespace `kube-system` on the API server that gave the proof; absent before first contact.
    #[serde(rename = "workloadUID", default, skip_serializing_if = "Option::is_none")]
    pub workload_uid: Option<String>,
    /// Whether Sluice installs kapp-controller on that API server, as decided before the first package was written to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kapp_controller: Option<KappControllerMode>,
    /// Value of the label `run.tanzu.vmware.com/tkr` seen on the Cluster.
    pub label: String,
    /// Version of the control plane when the upgrade began; absent for a first installation, whose gate is BeforeClusterCreate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `spec.topology.version` of the Cluster, byte for byte.
    pub to: String,
    /// The version that Cluster API writes to the control plane next, or has just written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<String>,
    /// Name of the TanzuKubernetesRelease whose packages belong to `hop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tkr: Option<String>,
    /// A positive list: a hook and version that is not listed with `open: true` holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// The package set of the hop, in the order kapp-controller, CNI, CPI, CSI, additional.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<PackageRecord>,
    /// When the record was opened; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The first moment at which packages could be written for this upgrade. From then on an annotation
    /// before-upgrade.hook.cluster.cluster.x-k8s.io comes too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Time>,
    /// When the last package of the running stage got its proof; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
    /// When the control plane was seen at the hop's version; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// The first moment at which only the settling of packages was missing. AfterClusterUpgrade waits for it for a limited time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling_since: Option<Time>,
    /// When everything was at `to` and settled; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// How the record was closed; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Replacement of machines by those of another release of the Kubernetes version that they run; absent in any other upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// Whether the infrastructure of the Cluster is on a Supervisor; absent before that is known, and for other infrastructure than a
    /// VSphereCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<SupervisorAnswer>,
    /// Rollback of the packages of a cancelled upgrade; absent in any other upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// UIDs of the UpgradeOverrides of the Cluster that do not count for this upgrade: they existed before it, or a step was made by them.
    /// Absent until they are known; no override counts until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_overrides: Option<Vec<String>>,
}

/// The UpgradeOverride that opened a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateOverride {
    /// Name of the UpgradeOverride.
    pub name: String,
    /// `metadata.uid` of the UpgradeOverride.
    pub uid: String,
    /// User who created it.
    pub user: String,
    /// Reason that the user gave.
    pub reason: String,
    /// Time after which the gate is closed again, unless the step was made.
    pub expires_at: Time,
}

/// Rollback of the packages of a cancelled upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// The Kubernetes version that was not taken; that of the machines, if machines of another release were not.
    pub hop: String,
    /// The TanzuKubernetesRelease whose packages are deployed again.
    pub release: String,
}

/// Whether a VSphereCluster is on a Supervisor. Once recorded, the answer stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupervisorAnswer {
    /// Group and name of the VSphereCluster in `spec.infrastructureRef`.
    pub infrastructure: String,
    /// Whether its namespace had a VirtualMachine of the Cluster.
    pub found: bool,
}

/// Replacement of machines by those of another release of the same Kubernetes version. No hook covers it: Cluster API replaces the
/// machines once the entry for their version in `TKR_DATA` is that of another release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    /// The Kubernetes version of the machines, byte for byte.
    pub version: String,
    /// The TanzuKubernetesRelease that the machines are made of; empty if no entry names one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The TanzuKubernetesRelease that the label names.
    pub to: String,
    /// Whether the entry may be written, or was written.
    pub open: bool,
    /// Why the machines are not replaced yet, PascalCase; empty if nothing is waited for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it waits for; empty if nothing is waited for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the entry of `to` was seen first; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<Time>,
    /// The override without which the entry could not be written, or could not have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<GateOverride>,
}

/// Whether Sluice installs kapp-controller in the workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KappControllerMode {
    /// Sluice installs it, and its proof comes before that of all other packages.
    Managed,
    /// Another client installs it: the workload cluster is a management cluster.
    Unmanaged,
}

/// How a record was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outcome {
    /// Control plane, workers and packages are at `to`.
    Completed,
    /// `spec.topology.version` was moved back to the version of the control plane.
    Cancelled,
    /// The same, and packages went back to the versions from before the upgrade.
    RolledBack,
}

/// The answer of one hook for one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The hook that asks.
    pub hook: Hook,
    /// The Kubernetes version that the question is about, byte for byte.
    pub version: String,
    /// Whether the answer is "go on".
    pub open: bool,
    /// Why the gate is closed, PascalCase; empty when open.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it waits for, constant while the reason is; empty when open.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The override without which it would be closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<GateOverride>,
}

/// What is known of one package at its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageRecord {
    /// Short name: `Package.spec.refName` up to its first dot, `antrea`.
    pub name: String,
    /// Target version: `Package.spec.version`.
    pub version: String,
    /// Digest of what the proof is asked for: values, API server and its version, the kapp-controller that installs, content of
    /// the Package. Names the values Secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub values_digest: String,
    /// How far the package is.
    pub state: PackageState,
    /// Why it is not Ready, PascalCase; empty when Ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What an operator needs to know; empty when Ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `metadata.uid` of the App that gave the proof. With `appGeneration`, `valuesDigest` and `provenReadiness` this is the
    /// latch:
    /// a new leader takes it over instead of asking for a new proof.
    #[serde(rename = "appUID", default, skip_serializing_if = "Option::is_none")]
    pub app_uid: Option<String>,
    /// `metadata.generation` of the App that gave the proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_generation: Option<i64>,
    /// What was proven; `Reconciled` includes `Applied`. Absent without a proof, and in records of releases that did not keep
    /// it: those are no latch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_readiness: Option<Readiness>,
    /// The run that the App showed when its present generation was first seen; kept for readiness `Applied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen_run: Option<FirstSeenRun>,
    /// How often what the package is deployed from was found altered after it was written, 0 to 15 and again from 0. It is part
    /// of `valuesDigest`, so that the package is deployed and proven again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repairs: u8,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// The step blocks in the status of an App when a generation of it was first seen as observed. They may be those of an
/// interrupted run of the generation before, so only later ones count for readiness `Applied`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstSeenRun {
    /// `metadata.uid` of the App.
    #[serde(rename = "appUID")]
    pub app_uid: String,
    /// `metadata.generation` of the App, which its status had observed.
    pub app_generation: i64,
    /// `status.fetch.startedAt`, in whole seconds; absent when the App had not been fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_started_at: Option<Time>,
    /// `status.deploy.startedAt`, in whole seconds; absent when the App had not been deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_started_at: Option<Time>,
}

/// How far a package is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PackageState {
    /// Nothing of the target was written yet.
    Pending,
    /// The target is written; kapp-controller has not taken it up. Not the readiness of that name.
    Applied,
    /// kapp-controller works on the target.
    Reconciling,
    /// Proven ready at the target.
    Ready,
    /// kapp-controller failed at the target; it tries again by itself.
    Failed,
}
