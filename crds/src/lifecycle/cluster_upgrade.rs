//! ClusterUpgrade: the checks of all gates of one cluster, and what hooks may answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GateMode, schema::conditions};
use crate::{
    run::{Gate, Outcome, PastUpgrade},
    schema::is_false,
};

/// The record schema that this build reads and writes. A record of another schema counts as no record.
pub const GATE_SCHEMA: i64 = 1;

/// The record of one Cluster for its gates. Name and namespace are those of the Cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "lifecycle.sluice.dev",
    version = "v1alpha1",
    kind = "ClusterUpgrade",
    plural = "clusterupgrades",
    shortname = "cu",
    namespaced,
    no_spec,
    status = "ClusterUpgradeStatus",
    derive = "PartialEq",
    doc = "The record of one Cluster for its gates. Name and namespace are those of the Cluster.",
    printcolumn = r#"{"name": "Held By", "type": "string", "jsonPath": ".status.heldBy", "description": "Gate and check that the Cluster waits for"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.reason", "description": "Why it waits"}"#,
    printcolumn = r#"{"name": "Since", "type": "date", "jsonPath": ".status.since", "description": "Since when it waits for that"}"#,
    printcolumn = r#"{"name": "Hop", "type": "string", "jsonPath": ".status.upgrade.hop", "description": "Kubernetes version that the Cluster takes next"}"#,
    printcolumn = r#"{"name": "Checks", "type": "string", "jsonPath": ".status.checks", "description": "Checks that are proven, of all"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.message", "description": "What it waits for", "priority": 1}"#,
    printcolumn = r#"{"name": "Target", "type": "string", "jsonPath": ".status.upgrade.to", "description": "Kubernetes version at the end of the upgrade", "priority": 1}"#
)]
pub struct ClusterUpgradeSpec {}

/// How far the checks of a Cluster are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeStatus {
    /// The gate and the check that the Cluster waits for, `cni/agent`, with ` (audit)` where the gate holds nothing. Absent where it waits
    /// for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// Why it waits, PascalCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it waits for, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when it waits for that, or waits for nothing.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub since: Option<Time>,
    /// How many checks of how many are proven, `1/2`; absent before they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<String>,
    /// `Held`: whether a gate holds the upgrade. `DeadlineExceeded`: whether it does so for longer than its deadline.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::each",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The evidence record that hooks are answered from. One that does not decode counts as none.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub upgrade: Option<GateRecord>,
    /// The last five upgrades, the latest first, also one that is under way.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::each",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 5))]
    pub history: Vec<PastUpgrade>,
}

/// What is known of one upgrade of one cluster, by its gates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateRecord {
    /// Schema of this record; see [`GATE_SCHEMA`].
    pub schema: i64,
    /// `metadata.uid` of the Cluster.
    #[serde(rename = "clusterUID")]
    pub cluster_uid: String,
    /// `metadata.generation` of the Cluster that the record was computed from.
    pub observed_cluster_generation: i64,
    /// UID of namespace `kube-system` on the API server that gave the proof; absent before first contact.
    #[serde(rename = "workloadUID", default, skip_serializing_if = "Option::is_none")]
    pub workload_uid: Option<String>,
    /// Version of the control plane when the upgrade began; absent for a first installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `spec.topology.version` of the Cluster, byte for byte.
    pub to: String,
    /// The version that Cluster API writes to the control plane next, or has just written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop: Option<String>,
    /// Digest of UID and generation of the gates that select the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// A positive list: a hook and version that is not listed with `open: true` holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// The UpgradeGates that the record was computed from, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selected: Vec<SelectedGate>,
    /// The checks of these gates, by gate and in the order of its list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckRecord>,
    /// When the record was opened; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the upgrade began: from then on an annotation before-upgrade.hook.cluster.cluster.x-k8s.io comes too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Time>,
    /// When the last check of the running stage got its proof; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
    /// When the control plane was seen at the hop's version; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// When everything was at `to`; display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// How the record was closed; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// An UpgradeGate that selects the Cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SelectedGate {
    /// Its name.
    pub name: String,
    /// Its `metadata.uid`.
    pub uid: String,
    /// Its `metadata.generation`, which the checks were judged by.
    pub generation: i64,
    /// Whether it holds the Cluster.
    pub mode: GateMode,
}

/// What is known of one check at its expected version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRecord {
    /// Name of the UpgradeGate.
    pub gate: String,
    /// Name of the check.
    pub name: String,
    /// How far the check is.
    pub state: CheckState,
    /// Why it is not proven, PascalCase; empty when proven.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it waits for, constant while the reason is; empty when proven.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What the object itself reports, shortened; empty when proven.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The expected version; empty without a versionKey.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `metadata.uid` of the object that gave the proof. With `generation` and `version` this is the latch: a new leader takes it over
    /// instead of asking for a new proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `metadata.generation` of the object that gave the proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Whether the proof was given again after the control plane took the version.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reproven: bool,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    /// Not proven yet.
    #[default]
    Waiting,
    /// Proven at the expected version.
    Proven,
    /// The object reports a failure at the expected version.
    Failed,
}
