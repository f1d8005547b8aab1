//! Clusters that an UpgradeGate selects by their labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use sluice_crds::lifecycle::UpgradeGate;

/// Whether an UpgradeGate selects the Clusters with these labels. An empty selector selects all of them.
///
/// A selector that Kubernetes would refuse, for example with an unknown operator, selects all of them as well: nothing tells which Clusters
/// it means, and the gate, which does not [compile](super::compiled::compile), holds them with its reason.
#[must_use]
pub fn selects(gate: &UpgradeGate, labels: &BTreeMap<String, String>) -> bool {
    let selector = &gate.spec.cluster_selector;
    if problem(selector).is_some() {
        return true;
    }
    let mut equal = selector.match_labels.iter().flatten();
    let mut requirements = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && requirements.all(|requirement| is_met(requirement, labels))
}

/// Whether labels meet a valid requirement. As in Kubernetes, an absent label meets `NotIn`.
fn is_met(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let label = labels.get(&requirement.key);
    let is_listed =
        || label.is_some_and(|label| requirement.values.iter().flatten().any(|value| value == label));
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => label.is_some(),
        _ => label.is_none(),
    }
}

/// Problem of a selector: a field below it, its value, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SelectorProblem<'a> {
    /// Path below `spec.clusterSelector`.
    pub(super) field: String,
    /// Value of the field.
    pub(super) value: &'a str,
    /// Remedy.
    pub(super) remedy: &'static str,
}

/// Returns the first problem of a selector.
pub(super) fn problem(selector: &LabelSelector) -> Option<SelectorProblem<'_>> {
    let requirements = selector.match_expressions.iter().flatten().enumerate();
    let mut problems = requirements.filter_map(|(at, requirement)| {
        let problem = |field: &str, value, remedy| SelectorProblem {
            field: format!("matchExpressions[{at}].{field}"),
            value,
            remedy,
        };
        let LabelSelectorRequirement {
            key,
            operator,
            values,
        } = requirement;
        let has_values = values.as_ref().is_some_and(|values| !values.is_empty());
        match (operator.as_str(), has_values) {
            _ if key.is_empty() => Some(problem("key", key, "name a label")),
            ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => None,
            ("In" | "NotIn", false) => Some(problem("values", "", "In and NotIn need values, add one")),
            ("Exists" | "DoesNotExist", true) => {
                let first = values.iter().flatten().next().map_or("", String::as_str);
                Some(problem(
                    "values",
                    first,
                    "Exists and DoesNotExist allow no values, remove them",
                ))
            }
            (operator, _) => Some(problem(
                "operator",
                operator,
                "use In, NotIn, Exists or DoesNotExist",
            )),
        }
    });
    problems.next()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn gate(selector: &Value) -> UpgradeGate {
        serde_json::from_value(json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1",
            "kind": "UpgradeGate",
            "metadata": {"name": "cni", "namespace": "team-a"},
            "spec": {
                "mode": "Enforce", "clusterSelector": selector, "before": "ControlPlane",
                "checks": [{"name": "agent", "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cilium"}}],
            },
        }))
        .unwrap()
    }

    fn requires(key: &str, operator: &str, values: &Value) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[rstest]
    #[case::everything(json!({}), true)]
    #[case::everything_with_empty_parts(json!({"matchLabels": {}, "matchExpressions": []}), true)]
    #[case::equal(json!({"matchLabels": {"cni": "cilium"}}), true)]
    #[case::other_value(json!({"matchLabels": {"cni": "calico"}}), false)]
    #[case::other_case(json!({"matchLabels": {"cni": "Cilium"}}), false)]
    #[case::absent(json!({"matchLabels": {"csi": "cilium"}}), false)]
    #[case::empty_value(json!({"matchLabels": {"prod": ""}}), true)]
    #[case::one_of_two(json!({"matchLabels": {"cni": "cilium", "csi": "none"}}), false)]
    #[case::within(requires("cni", "In", &json!(["calico", "cilium"])), true)]
    #[case::not_within(requires("cni", "In", &json!(["calico"])), false)]
    #[case::absent_within(requires("csi", "In", &json!(["calico"])), false)]
    #[case::outside(requires("cni", "NotIn", &json!(["calico"])), true)]
    #[case::not_outside(requires("cni", "NotIn", &json!(["cilium"])), false)]
    #[case::absent_outside(requires("csi", "NotIn", &json!(["cilium"])), true)]
    #[case::exists(requires("prod", "Exists", &json!(null)), true)]
    #[case::does_not_exist(requires("csi", "Exists", &json!([])), false)]
    #[case::is_absent(requires("csi", "DoesNotExist", &json!(null)), true)]
    #[case::is_not_absent(requires("cni", "DoesNotExist", &json!(null)), false)]
    #[case::both(json!({"matchLabels": {"cni": "cilium"}, "matchExpressions": [{"key": "prod", "operator": "DoesNotExist"}]}), false)]
    fn clusters_are_selected_as_by_kubernetes(#[case] selector: Value, #[case] expected: bool) {
        let labels = BTreeMap::from([
            ("cni".to_owned(), "cilium".to_owned()),
            ("prod".to_owned(), String::new()),
        ]);
        let gate = gate(&selector);
        assert_eq!(selects(&gate, &labels), expected);
        assert_eq!(problem(&gate.spec.cluster_selector), None);
    }

    /// A gate that is not understood holds; it does not release by selecting nothing.
    #[rstest]
    #[case::operator(requires("cni", "Gt", &json!(["1"])), "matchExpressions[0].operator", "Gt")]
    #[case::operator_in_other_case(requires("cni", "in", &json!(["cilium"])), "matchExpressions[0].operator", "in")]
    #[case::no_operator(requires("cni", "", &json!(null)), "matchExpressions[0].operator", "")]
    #[case::in_nothing(requires("cni", "In", &json!([])), "matchExpressions[0].values", "")]
    #[case::outside_nothing(requires("cni", "NotIn", &json!(null)), "matchExpressions[0].values", "")]
    #[case::exists_with_a_value(requires("cni", "Exists", &json!(["calico"])), "matchExpressions[0].values", "calico")]
    #[case::no_key(requires("", "Exists", &json!(null)), "matchExpressions[0].key", "")]
    fn an_invalid_selector_selects_every_cluster(
        #[case] selector: Value,
        #[case] field: &str,
        #[case] value: &str,
    ) {
        let gate = gate(&selector);
        let found = problem(&gate.spec.cluster_selector).unwrap();
        assert_eq!((found.field.as_str(), found.value), (field, value));
        assert!(selects(&gate, &BTreeMap::new()));
    }
}
