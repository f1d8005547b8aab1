//! Reduces control plane objects of any provider to their versions.

use serde::Deserialize as _;
use serde_json::Value;
use sluice_crds::foreign::{
    ControlPlane,
    control_plane::{ControlPlaneSpec, ControlPlaneStatus},
};

use crate::version::{is_upgrading, older};

/// Facts about the control plane object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ControlPlaneFacts {
    /// `spec.version`.
    pub spec_version: Option<String>,
    /// Oldest of `status.version` and `status.versions`, among those of which Cluster API treats the control plane as upgrading, if any.
    pub status_version: Option<String>,
}

impl ControlPlaneFacts {
    /// Returns the facts of one control plane. While machines of several versions run, the oldest counts. Nodes may run a later patch
    /// than their machines, also before those are replaced.
    ///
    /// Cluster API decides by `status.version` before 1.14, and by each of `status.versions` since. All of them count, because the release
    /// of Cluster API is unknown.
    #[must_use]
    pub fn of(control_plane: &ControlPlane) -> Self {
        let ControlPlane { spec, status, .. } = control_plane;
        let versions = status.versions.iter().map(|each| &each.version);
        let reported: Vec<String> = versions
            .chain([&status.version])
            .flatten()
            .filter(|version| !version.is_empty())
            .cloned()
            .collect();
        let behind = spec.version.as_deref().and_then(|wanted| {
            let behind = reported.iter().filter(|reported| is_upgrading(wanted, reported));
            behind.cloned().reduce(older)
        });
        Self {
            spec_version: spec.version.clone(),
            status_version: behind.or_else(|| reported.into_iter().reduce(older)),
        }
    }

    /// Returns the same of an object as read from the API server.
    #[must_use]
    pub fn in_object(control_plane: &Value) -> Self {
        Self::of(&ControlPlane {
            spec: ControlPlaneSpec::deserialize(&control_plane["spec"]).unwrap_or_default(),
            status: ControlPlaneStatus::deserialize(&control_plane["status"]).unwrap_or_default(),
            ..ControlPlane::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert_eq!(of(json!({"version": ""})), None);
        assert_eq!(
            of(json!({"version": "", "versions": [{"version": ""}, {"version": "v1.36.3"}]})).as_deref(),
            Some("v1.36.3")
        );
    }

    #[test]
    fn a_version_of_which_cluster_api_waits_is_that_of_a_control_plane() {
        let of = |wanted: &str, versions: &[&str], version: &str| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| json!({"version": version}))
                .collect();
            let object =
                json!({"spec": {"version": wanted}, "status": {"version": version, "versions": versions}});
            ControlPlaneFacts::in_object(&object).status_version
        };
        // Their order is unknown, and only one of them is the desired version.
        let builds = ["v1.35.4+k3s1", "v1.35.4+k3s2"];
        assert_eq!(of("v1.35.4+k3s1", &builds, builds[0]).as_deref(), Some(builds[1]));
        assert_eq!(of("v1.35.4+k3s2", &builds, builds[1]).as_deref(), Some(builds[0]));
        assert_eq!(of("v1.35.4", &builds, builds[0]).as_deref(), Some(builds[0]));
        // Releases of Cluster API before 1.14 read this one only.
        assert_eq!(
            of("v1.35.4", &["v1.35.4"], "v1.35.4-eks-1").as_deref(),
            Some("v1.35.4-eks-1")
        );
    }

    #[test]
    fn an_object_that_is_read_has_the_versions_of_a_cached_one() {
        let version = json!({"version": "v1.35.4"});
        for (spec, status) in [
            (
                json!({"version": "v1.36.3"}),
                json!({"version": "v1.36.3", "versions": [version]}),
            ),
            (
                json!({"version": "v1.36.3"}),
                json!({"version": "v1.36.3", "versions": [1, version]}),
            ),
            (json!({"version": 1}), json!({"version": 1, "versions": {}})),
            (json!("odd"), json!([])),
            (Value::Null, Value::Null),
        ] {
            let object = json!({"metadata": {"name": "one"}, "spec": spec, "status": status});
            let cached = serde_json::from_str::<ControlPlane>(&object.to_string()).unwrap();
            assert_eq!(
                ControlPlaneFacts::in_object(&object),
                ControlPlaneFacts::of(&cached),
                "{object}"
            );
        }
    }
}
