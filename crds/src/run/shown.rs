//! What people read of a ClusterBootstrap: how far its Cluster is, which gate holds it, and how earlier upgrades went.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hook, Outcome};
use crate::lifecycle::OverriddenGate;

/// How many upgrades `status.history` keeps.
pub const KEPT_UPGRADES: usize = 5;

/// How far a Cluster is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterPhase {
    /// The Cluster is installed for the first time.
    Creating,
    /// A pause or an annotation of a user holds the upgrade.
    Paused,
    /// Packages are brought to the versions of the next release; the control plane waits for them.
    UpgradingPackages,
    /// The control plane may take the version, or is taking it.
    UpgradingControlPlane,
    /// The control plane has taken the version, and packages are proven again on it; workers wait for them.
    ProvingPackages,
    /// Workers may take the version, or are taking it.
    UpgradingWorkers,
    /// Machines are being replaced by those of another release of their Kubernetes version.
    ReplacingMachines,
    /// Only packages that are not on every node yet are waited for.
    Settling,
    /// Control plane, workers and packages are at the target.
    Completed,
    /// The target was moved back to the version of the control plane.
    Cancelled,
    /// The packages of a cancelled upgrade go back to the versions from before it.
    RollingBack,
    /// The same, and they are proven there.
    RolledBack,
    /// The Cluster is being deleted.
    Deleting,
}

/// A gate that holds a Cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldGate {
    /// The hook that waits.
    pub hook: Hook,
    /// The Kubernetes version that it is asked about.
    pub version: String,
    /// Since when it is held without a break.
    pub since: Time,
    /// Why it is held beyond `spec.upgradePolicy.deadline`, or for ten minutes without one; absent before. No gate depends on it.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub cause: Option<HeldCause>,
}

/// Why a gate is held for long. Its texts are on one line each, without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldCause {
    /// The cause, a heading of docs/failure-modes.md, or `Unknown`.
    pub name: String,
    /// The object that it is about, with its kind; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The text, condition or number that shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
}

/// How one upgrade went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastUpgrade {
    /// Version of the control plane when it began.
    pub from: String,
    /// The target.
    pub to: String,
    /// The TanzuKubernetesRelease of the machines when it began, if the upgrade stays at the Kubernetes version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_release: Option<String>,
    /// The TanzuKubernetesRelease that the machines were to be made of, if the upgrade stays at the Kubernetes version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_release: Option<String>,
    /// When it was seen first.
    pub began: Time,
    /// When the control plane was seen at the first new version; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Time>,
    /// When it was closed; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// How it was closed; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What a gate was held for longest, mostly a package and its version. Waits for control plane and workers do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_wait: Option<String>,
    /// How long that lasted without a break, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_wait_seconds: Option<i64>,
    /// The overrides that opened its gates, in the order of their first use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_USED_OVERRIDES))]
    pub overrides: Vec<UsedOverride>,
}

/// How many overrides an entry of `status.history` names.
pub const MAX_USED_OVERRIDES: usize = 8;

/// An override that opened a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedOverride {
    /// Name of the UpgradeOverride.
    pub name: String,
    /// `metadata.uid` of the UpgradeOverride.
    pub uid: String,
    /// The gate.
    pub gate: OverriddenGate,
    /// The Kubernetes version of the step.
    pub version: String,
    /// User who created it.
    pub user: String,
    /// Reason that the user gave.
    pub reason: String,
}
