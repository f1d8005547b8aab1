//! UpgradeOverride: packages that one gate of one upgrade does not wait for.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::conditions;

/// Maximum number of packages of an override.
pub const MAX_PACKAGES: usize = 64;

/// Maximum time between the creation of an override and its expiry, in days.
pub const MAX_DAYS: i64 = 7;

/// Names every package, and also passes holds about values and the workload cluster.
pub const EVERY_PACKAGE: &str = "*";

/// The gate of one upgrade that is passed, and the packages that it does not wait for.
// Each text and list that a rule reads has a limit, from which the API server estimates the cost of the rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "lifecycle.sluice.dev",
    version = "v1alpha1",
    kind = "UpgradeOverride",
    plural = "upgradeoverrides",
    shortname = "uo",
    namespaced,
    status = "UpgradeOverrideStatus",
    derive = "PartialEq",
    doc = "Lets one gate of one upgrade of a Cluster pass without the proof of the named packages. Every use is reported with user and reason.",
    printcolumn = r#"{"name": "Cluster", "type": "string", "jsonPath": ".spec.clusterName", "description": "Cluster that is upgraded"}"#,
    printcolumn = r#"{"name": "Gate", "type": "string", "jsonPath": ".spec.gate", "description": "Step that is not held"}"#,
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".spec.target.kubernetesVersion", "description": "Kubernetes version of the step"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].status", "description": "Whether the override can be used"}"#,
    printcolumn = r#"{"name": "Used", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Used')].status", "description": "Whether a gate was opened by the override"}"#,
    printcolumn = r#"{"name": "Requested By", "type": "string", "jsonPath": ".spec.requestedBy", "description": "User who created the override"}"#,
    printcolumn = r#"{"name": "Expires", "type": "string", "jsonPath": ".spec.expiresAt", "description": "Time after which the override has no effect"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".spec.reason", "description": "Reason that the user gave", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self == oldSelf",
        "message": "an override cannot be changed: delete it, and create another one",
    },
    {
        "rule": "self.packages.size() == 1 || !self.packages.exists(name, name == '*')",
        "fieldPath": ".packages",
        "message": "'*' names every package: remove the others",
    },
]))]
pub struct UpgradeOverrideSpec {
    /// Name of the Cluster, in the namespace of the override.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: String,
    /// UID of the Cluster; the webhook of Sluice fills it in. Without it the override has no effect.
    #[serde(rename = "clusterUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub cluster_uid: Option<String>,
    /// The step of the upgrade.
    pub target: OverrideTarget,
    /// The gate of that step.
    pub gate: OverriddenGate,
    /// Short names of the packages that the gate does not wait for, `metrics-server`. `*` names every package, and also passes holds about
    /// values and the workload cluster.
    #[schemars(
        length(min = 1, max = MAX_PACKAGES),
        inner(length(min = 1, max = 253)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub packages: Vec<String>,
    /// Reason, for those who read about the override later.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[^\x00-\x1f\x7f]*[^\x00-\x1f\x7f ][^\x00-\x1f\x7f]*$")
    )]
    pub reason: String,
    /// Time after which the override has no effect, at most seven days after its creation.
    pub expires_at: Time,
    /// User who created the override; the webhook of Sluice fills it in. Without it the override has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub requested_by: Option<String>,
}

/// The step of an upgrade that an override is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideTarget {
    /// The Kubernetes version of the step, byte for byte.
    #[schemars(length(min = 1, max = 128))]
    pub kubernetes_version: String,
    /// The TanzuKubernetesRelease of the step.
    #[schemars(length(min = 1, max = 253))]
    pub release: String,
}

/// A gate that an override can pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OverriddenGate {
    /// The control plane takes the version.
    ControlPlane,
    /// The workers take the version.
    Workers,
    /// Machines are replaced by those of another release of their Kubernetes version.
    Machines,
}

impl OverriddenGate {
    /// Every gate, in the order of an upgrade.
    pub const ALL: [Self; 3] = [Self::ControlPlane, Self::Workers, Self::Machines];

    /// Returns the spelling in the API and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "ControlPlane",
            Self::Workers => "Workers",
            Self::Machines => "Machines",
        }
    }
}

/// How far an override is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeOverrideStatus {
    /// `Accepted`: whether the override can be used. `Used`: whether a gate was opened by it.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::each",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}
