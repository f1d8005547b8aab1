//! Reading raw objects.

use std::collections::BTreeMap;

use serde_json::Value;

/// Label of Cluster API: the Cluster that an object belongs to.
pub(super) const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

/// Whether the condition `kind` is True.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    has_condition(object, kind, "True")
}

/// Whether the condition `kind` is False. One that is absent is not.
pub(super) fn is_false(object: &Value, kind: &str) -> bool {
    has_condition(object, kind, "False")
}

fn has_condition(object: &Value, kind: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == status)
}

/// A string at a JSON pointer; empty when there is none.
pub(super) fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// A label; empty when there is none.
pub(super) fn label(object: &Value, key: &str) -> String {
    object["metadata"]["labels"][key]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// All labels.
pub(super) fn labels(object: &Value) -> BTreeMap<String, String> {
    object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// An annotation; empty when there is none.
pub(super) fn annotation(object: &Value, key: &str) -> String {
    object["metadata"]["annotations"][key]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Whether the controller has seen this generation.
pub(super) fn is_observed(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    generation.is_i64() && *generation == object["status"]["observedGeneration"]
}
