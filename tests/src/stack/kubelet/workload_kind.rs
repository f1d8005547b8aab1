//! Common handling of Deployments and DaemonSets: inputs of a rollout, and the statuses of its start and end.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A kind that rolls pods out.
pub(super) trait WorkloadKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Whether the status says that this generation is rolled out.
    fn is_ready(&self) -> bool;
    /// What to write when the rollout begins.
    fn rolling(&self) -> Value;
    /// What to write when it is done.
    fn ready(&self) -> Value;
    /// The pods.
    fn pods(&self) -> Option<&PodTemplateSpec>;
}

/// The labels of the Nodes that the pods of `object` select, as a label selector; none if they select none.
pub(super) fn node_selector<K: WorkloadKind>(object: &K) -> Option<String> {
    let selector = object.pods()?.spec.as_ref()?.node_selector.as_ref()?;
    let labels: Vec<String> = selector
        .iter()
        .map(|(label, value)| format!("{label}={value}"))
        .collect();
    (!labels.is_empty()).then(|| labels.join(","))
}

impl WorkloadKind for Deployment {
    fn is_ready(&self) -> bool {
        let wanted = self.replicas();
        self.status.as_ref().is_some_and(|status| {
            status.observed_generation == self.metadata.generation
                && status.updated_replicas.unwrap_or(0) == wanted
                && status.available_replicas.unwrap_or(0) == wanted
        })
    }

    fn rolling(&self) -> Value {
        json!({
            "observedGeneration": self.metadata.generation,
            "replicas": self.replicas(),
            "updatedReplicas": 0,
            "unavailableReplicas": self.replicas(),
            "conditions": [deployment_condition("Progressing", "True", "ReplicaSetUpdated")],
        })
    }

    fn ready(&self) -> Value {
        let replicas = self.replicas();
        json!({
            "observedGeneration": self.metadata.generation,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
            "unavailableReplicas": null,
            "conditions": [
                deployment_condition("Available", "True", "MinimumReplicasAvailable"),
                deployment_condition("Progressing", "True", "NewReplicaSetAvailable"),
            ],
        })
    }

    fn pods(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref().map(|spec| &spec.template)
    }
}

trait Replicas {
    fn replicas(&self) -> i32;
}

impl Replicas for Deployment {
    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }
}

fn deployment_condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": ""})
}

impl WorkloadKind for DaemonSet {
    fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.observed_generation == self.metadata.generation
                && status.desired_number_scheduled > 0
                && status.updated_number_scheduled == Some(status.desired_number_scheduled)
                && status.number_available == Some(status.desired_number_scheduled)
        })
    }

    fn rolling(&self) -> Value {
        json!({
            "observedGeneration": self.metadata.generation,
            "currentNumberScheduled": 1,
            "desiredNumberScheduled": 1,
            "numberMisscheduled": 0,
            "numberReady": 0,
            "numberAvailable": 0,
            "updatedNumberScheduled": 0,
            "numberUnavailable": 1,
        })
    }

    fn ready(&self) -> Value {
        json!({
            "observedGeneration": self.metadata.generation,
            "currentNumberScheduled": 1,
            "desiredNumberScheduled": 1,
            "numberMisscheduled": 0,
            "numberReady": 1,
            "numberAvailable": 1,
            "updatedNumberScheduled": 1,
            "numberUnavailable": null,
        })
    }

    fn pods(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref().map(|spec| &spec.template)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(selector: &Value) -> Deployment {
        serde_json::from_value(json!({
            "spec": {
                "selector": {},
                "template": {"spec": {"containers": [], "nodeSelector": selector}},
            },
        }))
        .unwrap()
    }

    #[test]
    fn labels_of_nodes_become_a_label_selector() {
        let selector = |labels: Value| node_selector(&deployment(&labels));
        assert_eq!(selector(json!({"a": "b", "c": "d"})).as_deref(), Some("a=b,c=d"));
        assert_eq!(selector(json!({})), None);
        assert_eq!(selector(Value::Null), None);
    }
}
