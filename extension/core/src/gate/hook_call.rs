//! Request of a hook call, reduced to the fields that Sluice reads.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
pub use sluice_crds::run::Hook;

/// Longest text of labels that a call keeps, in bytes: 160 labels of the longest names and values of Kubernetes.
pub const LONGEST_LABELS: usize = 64 * 1024;

/// One call of a lifecycle hook.
///
/// Sluice reads only these fields of a request, and never treats them as proof: the record is the only evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCall<'a> {
    /// The hook.
    pub hook: Hook,
    /// Namespace of the Cluster.
    pub namespace: &'a str,
    /// Name of the Cluster.
    pub name: &'a str,
    /// UID of the Cluster.
    pub uid: &'a str,
    /// Generation of the Cluster that Cluster API has observed.
    pub generation: i64,
    /// Value of the label `run.tanzu.vmware.com/tkr`; an empty value counts as none.
    pub label: Option<&'a str>,
    /// JSON text of `metadata.labels`, which is parsed only where gates select Clusters; empty if it exceeds [`LONGEST_LABELS`].
    pub labels: Option<&'a str>,
    /// Version of the call: `toKubernetesVersion` of Before* hooks, `kubernetesVersion` of After* hooks, `spec.topology.version` of
    /// BeforeClusterCreate; unspecified for the others.
    pub version: &'a str,
    /// `controlPlaneUpgrades[0].version`, read for BeforeClusterUpgrade only. Absent before Cluster API 1.12.
    pub first_step: Option<&'a str>,
    /// `metadata.deletionTimestamp` of the Cluster.
    pub deleted_at: Option<Timestamp>,
    /// Time of the management API server, which stamps deletions, at the arrival of the call; `None` while it is unknown.
    pub now: Option<Timestamp>,
    /// Time of this replica at the arrival of the call; `None` while it is unknown.
    pub clock: Option<Timestamp>,
}

impl HookCall<'_> {
    /// Returns the version of the gate for this call.
    #[must_use]
    pub fn gate_version(&self) -> &str {
        match (self.hook, self.first_step) {
            (Hook::BeforeClusterUpgrade, Some(step)) => step,
            _ => self.version,
        }
    }

    /// Parses the labels. `None` if the text is too long, or no object of texts, or if it has a key twice.
    #[must_use]
    pub fn parsed_labels(&self) -> Option<BTreeMap<String, String>> {
        let Some(text) = self.labels else {
            return Some(BTreeMap::new());
        };
        serde_json::from_str(text).ok().map(|Labels(labels)| labels)
    }
}

/// All labels of a Cluster.
struct Labels(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if labels.insert(key, value).is_some() {
                return Err(A::Error::custom("a label is there twice"));
            }
        }
        Ok(Labels(labels))
    }
}

/// A hook call that outlives its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedHookCall {
    hook: Hook,
    namespace: String,
    name: String,
    uid: String,
    generation: i64,
    label: Option<String>,
    labels: Option<String>,
    version: String,
    first_step: Option<String>,
    deleted_at: Option<Timestamp>,
    now: Option<Timestamp>,
    clock: Option<Timestamp>,
}

impl From<&HookCall<'_>> for OwnedHookCall {
    fn from(call: &HookCall<'_>) -> Self {
        Self {
            hook: call.hook,
            namespace: call.namespace.to_owned(),
            name: call.name.to_owned(),
            uid: call.uid.to_owned(),
            generation: call.generation,
            label: call.label.map(str::to_owned),
            labels: call.labels.map(str::to_owned),
            version: call.version.to_owned(),
            first_step: call.first_step.map(str::to_owned),
            deleted_at: call.deleted_at,
            now: call.now,
            clock: call.clock,
        }
    }
}

impl OwnedHookCall {
    /// Returns the call.
    #[must_use]
    pub fn as_call(&self) -> HookCall<'_> {
        HookCall {
            hook: self.hook,
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            generation: self.generation,
            label: self.label.as_deref(),
            labels: self.labels.as_deref(),
            version: &self.version,
            first_step: self.first_step.as_deref(),
            deleted_at: self.deleted_at,
            now: self.now,
            clock: self.clock,
        }
    }
}

/// Hook that plans the steps of an upgrade. It has no gate.
pub const GENERATE_UPGRADE_PLAN: &str = "GenerateUpgradePlan";

/// Name of its handler.
pub const GENERATE_UPGRADE_PLAN_HANDLER: &str = "generate-upgrade-plan";

/// Returns the name of the handler of a hook, a DNS label.
#[must_use]
pub const fn handler(hook: Hook) -> &'static str {
    match hook {
        Hook::BeforeClusterCreate => "before-cluster-create",
        Hook::AfterControlPlaneInitialized => "after-control-plane-initialized",
        Hook::BeforeClusterUpgrade => "before-cluster-upgrade",
        Hook::BeforeControlPlaneUpgrade => "before-control-plane-upgrade",
        Hook::AfterControlPlaneUpgrade => "after-control-plane-upgrade",
        Hook::BeforeWorkersUpgrade => "before-workers-upgrade",
        Hook::AfterWorkersUpgrade => "after-workers-upgrade",
        Hook::AfterClusterUpgrade => "after-cluster-upgrade",
        Hook::BeforeClusterDelete => "before-cluster-delete",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::absent(None, Some(""))]
    #[case::none(Some("{}"), Some(""))]
    #[case::some(Some(r#"{"cni": "cilium", "tier" : "\u0061"}"#), Some("cni=cilium tier=a"))]
    #[case::empty_value(Some(r#"{"cni": ""}"#), Some("cni="))]
    #[case::too_long(Some(""), None)]
    #[case::null(Some("null"), None)]
    #[case::array(Some("[]"), None)]
    #[case::number(Some(r#"{"cni": 1}"#), None)]
    #[case::null_value(Some(r#"{"cni": null}"#), None)]
    #[case::object(Some(r#"{"cni": {"a": "b"}}"#), None)]
    #[case::twice(Some(r#"{"cni": "cilium", "cni": "cilium"}"#), None)]
    #[case::twice_with_an_escape(Some(r#"{"cni": "cilium", "\u0063ni": "antrea"}"#), None)]
    #[case::half_a_character(Some(r#"{"cni": "\ud800"}"#), None)]
    #[case::cut_off(Some(r#"{"cni": "#), None)]
    #[case::more(Some(r"{} {}"), None)]
    fn labels_are_texts_by_key(#[case] labels: Option<&str>, #[case] expected: Option<&str>) {
        let call = HookCall {
            hook: Hook::BeforeClusterUpgrade,
            namespace: "team-a",
            name: "one",
            uid: "uid",
            generation: 1,
            label: None,
            labels,
            version: "v1.36.3",
            first_step: None,
            deleted_at: None,
            now: None,
            clock: None,
        };
        let parsed = call.parsed_labels().map(|labels| {
            let pairs: Vec<String> = labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            pairs.join(" ")
        });
        assert_eq!(parsed.as_deref(), expected);
        assert_eq!(OwnedHookCall::from(&call).as_call(), call);
    }
}
