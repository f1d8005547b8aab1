//! Status fields that the models of helm-controller v1.6.2, kustomize-controller v1.9.4 and source-controller v1.9.4 share.

use serde_json::{Value, json};

/// Annotation of a user who requests a reconcile.
pub(crate) const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Name of the Secret with the kubeconfig of the Cluster.
pub(crate) const KUBECONFIG: &str = "one-kubeconfig";

/// Whether the object is delivered to another workload cluster.
pub(crate) fn is_elsewhere(object: &Value) -> bool {
    object["spec"]["kubeConfig"]["secretRef"]["name"] != KUBECONFIG
}

/// Whether the condition of this type is `True`.
pub(crate) fn is_true(object: &Value, type_: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == type_ && condition["status"] == "True")
}

/// Sets a condition. Its `observedGeneration` is that of the object on the API server, which is ahead of the run if a user edits the object
/// meanwhile.
pub(crate) fn set_condition(object: &mut Value, type_: &str, status: &str, reason: &str) {
    remove_condition(object, type_);
    let generation = object["metadata"]["generation"].clone();
    let condition =
        json!({"type": type_, "status": status, "reason": reason, "observedGeneration": generation});
    match &mut object["status"]["conditions"] {
        Value::Array(conditions) => conditions.push(condition),
        absent => *absent = json!([condition]),
    }
}

/// Removes a condition, if there is one.
pub(crate) fn remove_condition(object: &mut Value, type_: &str) {
    let conditions = object.pointer_mut("/status/conditions");
    if let Some(conditions) = conditions.and_then(Value::as_array_mut) {
        conditions.retain(|condition| condition["type"] != type_);
    }
}

/// Notes the request of a user as handled, also after an error and while the object is suspended.
pub(crate) fn acknowledge(object: &mut Value) {
    let requested = object["metadata"]["annotations"][REQUESTED_AT].clone();
    if !requested.is_null() {
        object["status"]["lastHandledReconcileAt"] = requested;
    }
}
