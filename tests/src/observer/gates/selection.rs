//! Label selectors, as Kubernetes documents them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Whether a selector matches these labels. An empty one matches all. One that is absent, or has an unknown operator, matches none.
pub(super) fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector.as_object() else {
        return false;
    };
    let exact = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let mut exact = exact.into_iter().flatten();
    let mut expressions = expressions.into_iter().flatten();
    exact.all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
        && expressions.all(|expression| is_met(expression, labels))
}

fn is_met(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let key = expression["key"].as_str().unwrap_or_default();
    let label = labels.get(key);
    let is_listed = label.is_some_and(|label| {
        let values = expression["values"].as_array().into_iter().flatten();
        values.into_iter().any(|value| value == label.as_str())
    });
    match expression["operator"].as_str() {
        Some("In") => is_listed,
        Some("NotIn") => !is_listed,
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_are_those_of_kubernetes() {
        let labels = BTreeMap::from([("cni".to_owned(), "demo".to_owned())]);
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "cni", "operator": operator, "values": values}]});
        let cases = [
            (json!({}), true),
            (Value::Null, false),
            (json!({"matchLabels": {"cni": "demo"}}), true),
            (json!({"matchLabels": {"cni": "other"}}), false),
            (json!({"matchLabels": {"csi": "demo"}}), false),
            (expression("In", json!(["a", "demo"])), true),
            (expression("In", json!(["a"])), false),
            (expression("NotIn", json!(["a"])), true),
            (expression("NotIn", json!(["demo"])), false),
            (expression("Exists", Value::Null), true),
            (expression("DoesNotExist", Value::Null), false),
            (expression("Near", json!(["demo"])), false),
        ];
        for (selector, wanted) in cases {
            assert_eq!(selects(&selector, &labels), wanted, "{selector}");
        }
    }
}
