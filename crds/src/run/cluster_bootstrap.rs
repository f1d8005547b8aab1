//! ClusterBootstrap: the packages of one cluster, how far they are, and what hooks may answer.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterPhase, Condition, HeldGate, PastUpgrade, UpgradeRecord};
use crate::{
    deadline,
    free_form::FreeForm,
    schema::{free_object, is_false},
};

/// The packages of a cluster and how its upgrades treat them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "run.tanzu.vmware.com",
    version = "v1alpha3",
    kind = "ClusterBootstrap",
    plural = "clusterbootstraps",
    shortname = "cb",
    namespaced,
    status = "ClusterBootstrapStatus",
    derive = "PartialEq",
    doc = "The packages of one cluster. Name and namespace are those of the Cluster.",
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "How far the Cluster is"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.packagesReady", "description": "Packages that are proven, of all"}"#,
    printcolumn = r#"{"name": "Waiting For", "type": "string", "jsonPath": ".status.waitingFor", "description": "What the Cluster waits for"}"#,
    printcolumn = r#"{"name": "Since", "type": "date", "jsonPath": ".status.since", "description": "Since when it waits for that"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "CNI", "type": "string", "jsonPath": ".spec.cni.refName", "description": "Package of the container network", "priority": 1}"#,
    printcolumn = r#"{"name": "CSI", "type": "string", "jsonPath": ".spec.csi.refName", "description": "Package of the storage interface", "priority": 1}"#,
    printcolumn = r#"{"name": "CPI", "type": "string", "jsonPath": ".spec.cpi.refName", "description": "Package of the cloud provider interface", "priority": 1}"#,
    printcolumn = r#"{"name": "Kapp", "type": "string", "jsonPath": ".spec.kapp.refName", "description": "Package of kapp-controller", "priority": 1}"#,
    printcolumn = r#"{"name": "Resolved_TKR", "type": "string", "jsonPath": ".status.resolvedTKR", "description": "Release whose packages are merged into the spec", "priority": 1}"#,
    printcolumn = r#"{"name": "Additional Packages", "type": "string", "jsonPath": ".spec.additionalPackages[*].refName", "description": "Packages beyond the core ones", "priority": 1}"#,
    printcolumn = r#"{"name": "Compatible", "type": "string", "jsonPath": ".status.conditions[?(@.type=='ReleaseCompatible')].status", "description": "Whether the release in the label of the Cluster is compatible with this management cluster", "priority": 1}"#,
    printcolumn = r#"{"name": "Updates Available", "type": "string", "jsonPath": ".status.conditions[?(@.type=='UpdatesAvailable')].message", "description": "Newer releases of this minor version and the next one", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapSpec {
    /// Stops every write for the cluster; its upgrade hooks hold meanwhile.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub paused: bool,
    /// The container network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<ClusterBootstrapPackage>,
    /// The storage interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi: Option<ClusterBootstrapPackage>,
    /// The cloud provider interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpi: Option<ClusterBootstrapPackage>,
    /// kapp-controller itself, which installs all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kapp: Option<ClusterBootstrapPackage>,
    /// Everything beyond the core packages, in the order of installation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub additional_packages: Vec<ClusterBootstrapPackage>,
    /// How upgrades of the cluster treat its packages. Absent: every package must be reconciled before the control
    /// plane moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_policy: Option<UpgradePolicy>,
}

/// A package and the source of its values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapPackage {
    /// Name of a Package object, `antrea.tanzu.vmware.com.1.7.1+vmware.1-tkg.1`. It is not the `spec.refName` of that
    /// object, which lacks the version.
    pub ref_name: String,
    /// Where the values come from; absent means the defaults of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values_from: Option<ValuesFrom>,
}

/// The source of a package's values: one of the three.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesFrom {
    /// The values themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_object")]
    pub inline: Option<FreeForm>,
    /// Name of a Secret with the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// An object whose `status.secretRef` names the Secret with the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<TypedLocalObjectReference>,
}

/// Names an object of any kind in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct TypedLocalObjectReference {
    /// API group of the object; absent means the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// How upgrades of a cluster treat its packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePolicy {
    /// Packages that differ from the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["package"])
    )]
    pub packages: Vec<PackagePolicy>,
    /// How long a gate may be held without a break before condition `DeadlineExceeded`, event and metric say so, `45m` or
    /// `1h30m`. It releases nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]{1,6}[hms]){1,3}$"))]
    pub deadline: Option<String>,
    /// What becomes of the packages when an upgrade is cancelled before the control plane takes its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_cancel: Option<OnCancel>,
}

impl UpgradePolicy {
    /// `deadline` as a time; none if it is absent or not of its form.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        deadline::parse(self.deadline.as_deref()?)
    }

    /// What becomes of a package, by its short name, when an upgrade is cancelled.
    #[must_use]
    pub fn on_cancel(&self, short: &str) -> OnCancel {
        let own = self.package(short).and_then(|policy| policy.on_cancel);
        own.or(self.on_cancel).unwrap_or_default()
    }

    /// Whether any package goes back when an upgrade is cancelled.
    #[must_use]
    pub fn rolls_back(&self) -> bool {
        let mut own = self.packages.iter().map(|policy| policy.on_cancel);
        self.on_cancel == Some(OnCancel::Rollback) || own.any(|own| own == Some(OnCancel::Rollback))
    }

    /// What is asked of a package by its short name; absent when it follows the rule.
    #[must_use]
    pub fn package(&self, short: &str) -> Option<&PackagePolicy> {
        self.packages.iter().find(|policy| policy.package == short)
    }
}

/// What an upgrade asks of one package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackagePolicy {
    /// Short name of the package: its `spec.refName` up to the first dot, `antrea`.
    #[schemars(length(min = 1, max = 63))]
    pub package: String,
    /// What counts as ready.
    #[serde(default)]
    pub readiness: Readiness,
    /// The step of the upgrade that needs the package.
    #[serde(default)]
    pub phase: Phase,
    /// What becomes of the package when an upgrade is cancelled; that of all packages where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_cancel: Option<OnCancel>,
}

/// What becomes of packages when an upgrade is cancelled before the control plane takes its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnCancel {
    /// They stay at the higher version.
    #[default]
    Keep,
    /// They go back to the version from before the upgrade.
    Rollback,
}

/// What counts as ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Readiness {
    /// kapp-controller finished: every object of the package is in its wanted state.
    #[default]
    Reconciled,
    /// Every object of the package is written. For packages that cannot finish before new nodes exist.
    Applied,
}

/// The step of an upgrade that needs a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Ready before the control plane takes the new version.
    #[default]
    BeforeControlPlane,
    /// Ready after the control plane took the new version, before workers do.
    AfterControlPlane,
}

/// How far the packages of a cluster are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapStatus {
    /// Name of the release whose packages are merged into the spec; it says nothing about their being installed.
    #[serde(rename = "resolvedTKR", default, skip_serializing_if = "Option::is_none")]
    pub resolved_tkr: Option<String>,
    /// How far the Cluster is.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<ClusterPhase>,
    /// How many packages of how many are proven, `3/4`; absent before they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages_ready: Option<String>,
    /// What the Cluster waits for and why, in one line; absent where it waits for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Since when it waits for that package or object, or nothing is waited for.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub since: Option<Time>,
    /// The gate that holds the Cluster; absent where none does, and while Cluster API moves control plane or workers.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub held: Option<HeldGate>,
    /// Conditions of the packages, named `<Package>-<Condition>`, and of the whole: `Ready`, `DeadlineExceeded` and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last five upgrades, the latest first, also one that is under way.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::each",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 5))]
    pub history: Vec<PastUpgrade>,
    /// The evidence record that hooks are answered from. One that does not decode counts as none.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub upgrade: Option<UpgradeRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_read_or_absent() {
        for (text, expected) in [
            ("45m", Some(2700)),
            ("1h30m", Some(5400)),
            ("1h2m3s", Some(3723)),
            ("90s", Some(90)),
            ("0s", Some(0)),
            ("", None),
            ("45", None),
            ("m", None),
            ("-5m", None),
            ("1.5h", None),
            ("5m ", None),
            ("5 m", None),
            ("1d", None),
            ("18446744073709551615h", None),
            ("18446744073709551615s1s", None),
            ("99999999999999999999999s", None),
        ] {
            let policy = UpgradePolicy {
                deadline: Some(text.to_owned()),
                ..UpgradePolicy::default()
            };
            assert_eq!(policy.deadline(), expected.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(UpgradePolicy::default().deadline(), None);
    }
}
