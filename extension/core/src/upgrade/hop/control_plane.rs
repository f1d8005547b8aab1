//! Reduces control plane objects of any provider to their versions.

use kube::core::Object;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::version::older;

/// Facts about the control plane object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ControlPlaneFacts {
    /// `spec.version`.
    pub spec_version: Option<String>,
    /// Older of `status.version` and the first of `status.versions`.
    pub status_version: Option<String>,
}

impl ControlPlaneFacts {
    /// Returns the facts of one control plane. While machines of several versions run, the oldest counts. Nodes may run a later patch
    /// than their machines, also before those are replaced.
    #[must_use]
    pub fn of(control_plane: &ControlPlane) -> Self {
        let spec = control_plane.spec.clone().unwrap_or_default();
        Self::from_parts(spec, control_plane.status.clone().unwrap_or_default())
    }

    /// Returns the same of an object as read from the API server.
    #[must_use]
    pub fn in_object(control_plane: &Value) -> Self {
        Self::from_parts((&control_plane["spec"]).into(), (&control_plane["status"]).into())
    }

    fn from_parts(spec: Spec, status: Status) -> Self {
        Self {
            spec_version: spec.version,
            status_version: match (status.oldest, status.version) {
                (Some(oldest), Some(version)) => Some(older(oldest, version)),
                (oldest, version) => oldest.or(version),
            },
        }
    }
}

/// Control plane object, reduced to the fields of the Cluster API contract. Fields that do not match are absent, so that one object
/// does not hide others of its kind.
pub type ControlPlane = Object<Option<Spec>, Status>;

/// Desired state of the control plane.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Value")]
pub struct Spec {
    version: Option<String>,
}

/// Observed state of the control plane.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct Status {
    version: Option<String>,
    /// Oldest version of its machines, while they run several.
    oldest: Option<String>,
}

impl From<&Value> for Spec {
    fn from(spec: &Value) -> Self {
        Self {
            version: text(&spec["version"]),
        }
    }
}

impl From<Value> for Spec {
    fn from(spec: Value) -> Self {
        Self::from(&spec)
    }
}

impl From<Value> for Status {
    fn from(status: Value) -> Self {
        Self::from(&status)
    }
}

impl From<&Value> for Status {
    fn from(status: &Value) -> Self {
        Self {
            version: text(&status["version"]),
            // The list begins with the oldest version.
            oldest: text(&status["versions"][0]["version"]),
        }
    }
}

/// Converts back into a form that can be parsed again.
impl From<Status> for Value {
    fn from(Status { version, oldest }: Status) -> Self {
        json!({"version": version, "versions": [{"version": oldest}]})
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_version_of_its_machines_is_that_of_a_control_plane() {
        let control_plane = |status: Value| -> ControlPlane {
            serde_json::from_value(json!({
                "apiVersion": "controlplane.example.com/v1", "kind": "Good", "metadata": {"name": "one"},
                "spec": {"version": "v1.36.3"}, "status": status,
            }))
            .unwrap()
        };
        let versions = json!([{"version": "v1.35.4", "replicas": 1}, {"version": "v1.36.3", "replicas": 2}]);
        let of = |status: Value| ControlPlaneFacts::of(&control_plane(status)).status_version;
        assert_eq!(
            of(json!({"version": "v1.36.3", "versions": versions})).as_deref(),
            Some("v1.35.4")
        );
        // Nodes of a later patch than their machines.
        let later = json!([{"version": "v1.35.9", "replicas": 3}]);
        assert_eq!(
            of(json!({"version": "v1.35.4", "versions": later})).as_deref(),
            Some("v1.35.4")
        );
        assert_eq!(of(json!({"version": "v1.36.3"})).as_deref(), Some("v1.36.3"));
        assert_eq!(of(json!({})), None);
        assert_eq!(
            of(json!({"version": "v1.36.3", "versions": null})).as_deref(),
            Some("v1.36.3")
        );
        assert_eq!(of(json!("running")), None);
    }
}
