//! UpgradeGate: the objects that prove that an add-on is ready for a Kubernetes version.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{conditions, label_selector, values};
use crate::deadline;

/// Maximum number of checks of a gate.
pub const MAX_CHECKS: usize = 16;

/// Maximum number of rows of a gate.
pub const MAX_ROWS: usize = 64;

/// Maximum number of values of a row.
pub const MAX_KEYS: usize = 16;

/// Begin of a semantic version, with or without a v: its three numbers.
const CHART_NUMBERS: &str = r"^v?(0|[1-9]\d{0,18})([.](0|[1-9]\d{0,18})){2}([-+].*)?$";

/// End of a semantic version: its pre-release and its build. It is a pattern of its own because the API server limits what one rule may cost.
const CHART_SUFFIXES: &str = r"^[^-+]*(-(0|[1-9]\d*|\d*[-A-Za-z][-\dA-Za-z]*)([.](0|[1-9]\d*|\d*[-A-Za-z][-\dA-Za-z]*))*)?([+][-\dA-Za-z]+([.][-\dA-Za-z]+)*)?$";

/// Returns the rule that the chart of each HelmChartProxy and HelmRelease matches a pattern in all rows.
fn charts_match(pattern: &str) -> String {
    format!(
        "!has(self.versions) || self.checks.all(check, \
         !(check.object.kind in ['HelmChartProxy', 'HelmRelease']) || !has(check.versionKey) || self.versions.all(row, \
         !(check.versionKey in row.values) || row.values[check.versionKey].matches(r'{pattern}')))"
    )
}

/// The Clusters that a gate covers, and the checks that prove their add-ons.
// Each text, list and map that a rule reads has a limit, from which the API server estimates the cost of the rule. A property `namespace` is
// `__namespace__` in a rule, because it is a keyword of CEL. No text contains a dollar sign before a brace: clusterctl would take it for a
// variable of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "lifecycle.sluice.dev",
    version = "v1alpha1",
    kind = "UpgradeGate",
    plural = "upgradegates",
    shortname = "ug",
    namespaced,
    status = "UpgradeGateStatus",
    derive = "PartialEq",
    doc = "Holds Kubernetes upgrades of the selected Clusters of its namespace until all checks are proven.",
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "description": "Whether the gate holds upgrades"}"#,
    printcolumn = r#"{"name": "Selected", "type": "integer", "jsonPath": ".status.selected", "description": "Clusters that the gate selects"}"#,
    printcolumn = r#"{"name": "Holding", "type": "integer", "jsonPath": ".status.holding", "description": "Clusters that the gate holds"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].status", "description": "Whether the gate is valid"}"#,
    printcolumn = r#"{"name": "In Force", "type": "string", "jsonPath": ".status.conditions[?(@.type=='InForce')].status", "description": "Whether upgrades of all selected Clusters depend on this generation of the gate"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.versions) && size(self.versions) > 0) \
                 || !self.checks.exists(check, has(check.versionKey))",
        "fieldPath": ".versions",
        "reason": "FieldValueRequired",
        "message": "a check has a versionKey: add a row for each Kubernetes minor version that Clusters take",
    },
    {
        "rule": "!has(self.versions) || self.versions.all(row, \
                 self.checks.all(check, !has(check.versionKey) || check.versionKey in row.values))",
        "fieldPath": ".versions",
        "message": "each row needs a value for each versionKey of the checks: add the missing one to values",
    },
    {
        "rule": charts_match(CHART_NUMBERS),
        "fieldPath": ".versions",
        "message": "Helm reads a version of one or two numbers as a range: \
                    name all three of the chart of a HelmChartProxy or HelmRelease, without leading zeros, such as 1.18.2",
    },
    {
        "rule": charts_match(CHART_SUFFIXES),
        "fieldPath": ".versions",
        "message": "a chart of a HelmChartProxy or HelmRelease has a semantic version: correct the part after its numbers, such as 1.18.2-rc.1",
    },
    {
        "rule": "self.checks.exists(check, \
                 !(check.object.kind in ['HelmChartProxy', 'HelmRelease', 'Kustomization']))",
        "fieldPath": ".checks",
        "message": "DeliveryOnly: HelmChartProxy, HelmRelease and Kustomization prove that a version was applied, not that it runs: \
                    add a check of an object that runs, such as its DaemonSet or Deployment",
    },
]))]
pub struct UpgradeGateSpec {
    /// `Enforce` holds upgrades until all checks are proven. `Audit` only reports the upgrades that `Enforce` would hold.
    pub mode: GateMode,
    /// Selects Clusters of the namespace of the gate. `{}` selects all of them.
    #[schemars(schema_with = "label_selector")]
    pub cluster_selector: LabelSelector,
    /// The first step of an upgrade that the gate holds. `ControlPlane` also holds the workers.
    pub before: Before,
    /// How long the gate may hold a Cluster before condition `DeadlineExceeded`, event and metric report it, `45m` or `1h30m`.
    /// It never releases the Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub deadline: Option<String>,
    /// The add-on versions of each Kubernetes minor version. An upgrade to a minor version without a row is held. Several rows of one minor
    /// version are alternatives, and all checks must match the same row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ROWS))]
    pub versions: Vec<VersionRow>,
    /// All checks must be proven.
    #[schemars(
        length(min = 1, max = MAX_CHECKS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub checks: Vec<Check>,
}

impl UpgradeGateSpec {
    /// `deadline` as a time; none if it is absent or not of its form.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        deadline::parse(self.deadline.as_deref()?)
    }
}

/// Whether a gate holds upgrades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum GateMode {
    /// Judges and reports, and holds nothing.
    Audit,
    /// Holds upgrades.
    Enforce,
}

/// The first step of an upgrade that a gate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Before {
    /// The upgrade of the control plane, then that of the workers.
    ControlPlane,
    /// The upgrade of the workers.
    Workers,
}

/// The add-on versions of a Kubernetes minor version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionRow {
    /// The Kubernetes minor version in quotes, `"1.35"`. Without quotes, YAML reads a number.
    #[schemars(length(max = 8), regex(pattern = r"^1\.(0|[1-9][0-9]*)$"))]
    pub kubernetes: String,
    /// Exact versions by key. A check refers to one of them by its `versionKey`.
    #[schemars(schema_with = "values")]
    pub values: BTreeMap<String, String>,
}

/// One object that must be proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": format!("has(self.cel) || (self.object.apiVersion + '/' + self.object.kind) in [{JUDGED}]"),
        "fieldPath": ".cel",
        "reason": "FieldValueRequired",
        "message": "no judge knows this kind, or this version of it: set cel to an expression that is true once the object is ready",
    },
    {
        "rule": "has(self.versionKey) || self.healthOnly || self.object.name.matches('[$][{]hop[}]')",
        "fieldPath": ".versionKey",
        "reason": "FieldValueRequired",
        "message": "a check needs a tie to the Kubernetes version: set versionKey",
        "messageExpression": "'a check needs a tie to the Kubernetes version: set versionKey, or use $' + '{hop} in object.name; \
                              healthOnly: true tests only the state when the gate opens'",
    },
    {
        "rule": "!(self.healthOnly && has(self.versionKey))",
        "fieldPath": ".healthOnly",
        "reason": "FieldValueForbidden",
        "message": "a check with a versionKey proves a version: remove healthOnly or versionKey",
    },
    {
        "rule": "!(self.healthOnly && self.object.kind == 'Job' && self.object.apiVersion.startsWith('batch/'))",
        "fieldPath": ".healthOnly",
        "reason": "FieldValueForbidden",
        "message": "a Job of an earlier upgrade stays complete: remove healthOnly",
        "messageExpression": "'a Job of an earlier upgrade stays complete: remove healthOnly, and use $' + '{hop} in object.name \
                              or set versionKey and container'",
    },
    {
        "rule": has_containers("!has(self.container) || "),
        "fieldPath": ".container",
        "reason": "FieldValueForbidden",
        "message": "only a DaemonSet, Deployment or StatefulSet of group apps or a Job of group batch has containers: remove it",
    },
    {
        "rule": has_containers("has(self.container) || !has(self.versionKey) || !"),
        "fieldPath": ".container",
        "reason": "FieldValueRequired",
        "message": "name the container whose image tag or sha256 digest is the value of the versionKey",
    },
    {
        "rule": "self.cluster == 'Workload' || !has(self.object.__namespace__)",
        "fieldPath": ".object.namespace",
        "reason": "FieldValueForbidden",
        "message": "an object of the management cluster is in the namespace of the gate: remove it, or set cluster: Workload",
    },
    {
        "rule": has_containers("self.cluster != 'Workload' || has(self.object.__namespace__) || !"),
        "fieldPath": ".object.namespace",
        "reason": "FieldValueRequired",
        "message": "name the namespace of the object in the workload cluster",
    },
    {
        "rule": "self.cluster != 'Workload' || has(self.object.__namespace__) \
                 || !(self.object.kind in ['HelmRelease', 'Kustomization'])",
        "fieldPath": ".object.namespace",
        "reason": "FieldValueRequired",
        "message": "name the namespace of the object in the workload cluster",
    },
    {
        "rule": "self.object.kind != 'CustomResourceDefinition' || self.object.apiVersion != 'apiextensions.k8s.io/v1' \
                 || (self.cluster == 'Workload' && !has(self.object.__namespace__))",
        "fieldPath": ".object",
        "message": "a CustomResourceDefinition has no namespace, and is checked in the workload cluster: set cluster: Workload and remove \
                    object.namespace",
    },
    {
        "rule": "self.cluster != 'Workload' || self.object.kind != 'HelmChartProxy'",
        "fieldPath": ".cluster",
        "message": "HelmChartProxies are objects of the management cluster: remove cluster: Workload",
    },
]))]
pub struct Check {
    /// Name of the check, unique in the gate.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The cluster that has the object.
    #[serde(default)]
    pub cluster: CheckedCluster,
    /// The object.
    pub object: CheckedObject,
    /// The container of a DaemonSet, Deployment, StatefulSet or Job whose image tag or sha256 digest is the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub container: Option<String>,
    /// Key of the expected version in `versions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub version_key: Option<String>,
    /// A CEL expression that must be true. Its variables are `object`, `version`, `hop` with `version` and `minor`, and `cluster` with `name`,
    /// `namespace`, `labels` and `annotations`. An expression that fails, or that costs too much, holds. A kind without a judge needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub cel: Option<String>,
    /// Tests only the state of the object when the gate opens, and proves no version.
    #[serde(default)]
    pub health_only: bool,
}

/// Group, version and kind of the objects that have a judge, as elements of a list in a rule.
const JUDGED: &str = "'addons.cluster.x-k8s.io/v1alpha1/HelmChartProxy', 'helm.toolkit.fluxcd.io/v2/HelmRelease', \
     'kustomize.toolkit.fluxcd.io/v1/Kustomization', 'apps/v1/DaemonSet', 'apps/v1/Deployment', 'apps/v1/StatefulSet', 'batch/v1/Job', \
     'apiextensions.k8s.io/v1/CustomResourceDefinition'";

/// Completes a rule by a term that is true for a check of a kind with containers.
fn has_containers(rule: &str) -> String {
    format!(
        "{rule}(self.object.kind in ['DaemonSet', 'Deployment', 'StatefulSet'] \
         ? self.object.apiVersion == 'apps/v1' \
         : self.object.kind == 'Job' && self.object.apiVersion == 'batch/v1')"
    )
}

/// The cluster that has an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CheckedCluster {
    /// The cluster that the gate is in.
    #[default]
    Management,
    /// The cluster that is upgraded.
    Workload,
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.kind != 'Secret' || self.apiVersion.contains('/')",
        "fieldPath": ".kind",
        "reason": "FieldValueForbidden",
        "message": "a gate reads no Secrets: name an object that uses it",
    },
    {
        "rule": "!self.apiVersion.startsWith('authentication.k8s.io/') \
                 && !self.apiVersion.startsWith('authorization.k8s.io/')",
        "fieldPath": ".apiVersion",
        "reason": "FieldValueForbidden",
        "message": "a gate reads no objects about identities and rights: name an object of another group",
    },
]))]
pub struct CheckedObject {
    /// Group and version, `apps/v1`.
    #[schemars(
        length(max = 317),
        regex(pattern = r"^([a-z0-9][-a-z0-9.]*/)?[a-z][-a-z0-9]*$")
    )]
    pub api_version: String,
    /// Kind, `DaemonSet`.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z][-A-Za-z0-9]*$"))]
    pub kind: String,
    /// Namespace of an object of the workload cluster, unless its kind is cluster-scoped. An object of the management cluster is in the
    /// namespace of the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// Name. It may contain the placeholders `cluster`, the name of the Cluster, and `hop`, the Kubernetes version that it takes next, with
    /// `---` for `+`: each in braces after a dollar sign.
    #[schemars(
        length(max = 253),
        regex(pattern = "^([A-Za-z0-9]|[$][{](cluster|hop)[}])([-A-Za-z0-9_.:]|[$][{](cluster|hop)[}])*$")
    )]
    pub name: String,
}

/// What came of a gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeGateStatus {
    /// `metadata.generation` of the gate that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of Clusters that the gate selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<i64>,
    /// Number of Clusters that the gate holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<i64>,
    /// `Accepted`: whether the gate is valid. `InForce`: whether upgrades of all selected Clusters depend on this generation.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::each",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_gate_has_the_deadline_of_its_text() {
        for (text, expected) in [
            (json!("1h30m"), Some(5400)),
            (json!("1d"), None),
            (json!(null), None),
        ] {
            let spec: UpgradeGateSpec = serde_json::from_value(json!({
                "mode": "Audit", "clusterSelector": {}, "before": "Workers", "deadline": text, "checks": [],
            }))
            .unwrap();
            assert_eq!(spec.deadline(), expected.map(Duration::from_secs), "{text}");
        }
    }

    /// Otherwise it would hold nothing.
    #[test]
    fn a_gate_without_a_required_field_is_undecodable() {
        let whole = json!({
            "mode": "Enforce", "clusterSelector": {}, "before": "ControlPlane",
            "checks": [{"name": "agent", "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent"}}],
        });
        serde_json::from_value::<UpgradeGateSpec>(whole.clone()).unwrap();
        for field in ["mode", "clusterSelector", "before", "checks"] {
            let mut gate = whole.clone();
            gate.as_object_mut().unwrap().remove(field).unwrap();
            assert!(
                serde_json::from_value::<UpgradeGateSpec>(gate).is_err(),
                "{field}"
            );
            let mut gate = whole.clone();
            gate[field] = json!("Unknown");
            assert!(
                serde_json::from_value::<UpgradeGateSpec>(gate).is_err(),
                "{field}"
            );
        }
    }
}
