//! UpgradeGates.

use serde_json::{Map, Value, json};

use super::{HelmRelease, Kustomization};

/// An UpgradeGate.
#[derive(Debug, Clone)]
pub struct Gate {
    name: String,
    spec: Value,
}

/// A check of an UpgradeGate.
#[derive(Debug, Clone)]
pub struct Check(Value);

impl Gate {
    /// One that holds the control planes of all Clusters of its namespace. It needs a check.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            spec: json!({
                "mode": "Enforce",
                "clusterSelector": {},
                "before": "ControlPlane",
                "versions": [],
                "checks": [],
            }),
        }
    }

    /// Shows what it would hold, and holds nothing.
    #[must_use]
    pub fn audit(self) -> Self {
        self.with("mode", json!("Audit"))
    }

    /// Holds workers only.
    #[must_use]
    pub fn before_workers(self) -> Self {
        self.with("before", json!("Workers"))
    }

    /// For Clusters with these labels.
    #[must_use]
    pub fn selects(self, labels: &Value) -> Self {
        self.with("clusterSelector", json!({"matchLabels": labels}))
    }

    /// With a deadline, such as `1h`.
    #[must_use]
    pub fn deadline(self, deadline: &str) -> Self {
        self.with("deadline", json!(deadline))
    }

    /// Adds the values of a Kubernetes minor version, such as `1.35`.
    #[must_use]
    pub fn row(self, minor: &str, values: &[(&str, &str)]) -> Self {
        let values: Map<String, Value> = values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        self.and("versions", json!({"kubernetes": minor, "values": values}))
    }

    /// Adds a check.
    #[must_use]
    pub fn check(self, check: Check) -> Self {
        self.and("checks", check.0)
    }

    /// With a field of the spec set to any value.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.spec[field] = value;
        self
    }

    fn and(mut self, list: &str, entry: Value) -> Self {
        if let Some(entries) = self.spec[list].as_array_mut() {
            entries.push(entry);
        }
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object, to be applied.
    #[must_use]
    pub fn object(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1",
            "kind": "UpgradeGate",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": self.spec,
        })
    }
}

impl Check {
    /// Checks a HelmChartProxy.
    #[must_use]
    pub fn proxy(name: &str, proxy: &str) -> Self {
        Self::management(
            name,
            ("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy"),
            proxy,
        )
    }

    /// Checks a HelmRelease beside the Cluster. `${cluster}` in its name stands for the name of the Cluster.
    #[must_use]
    pub fn helm_release(name: &str, object: &str) -> Self {
        Self::management(name, HelmRelease::KIND, object)
    }

    /// Checks a Kustomization beside the Cluster. `${cluster}` in its name stands for the name of the Cluster.
    #[must_use]
    pub fn kustomization(name: &str, object: &str) -> Self {
        Self::management(name, Kustomization::KIND, object)
    }

    /// Checks an object beside the Cluster: apiVersion and kind, and its name.
    #[must_use]
    pub fn management(name: &str, (api_version, kind): (&str, &str), object: &str) -> Self {
        Self(json!({
            "name": name,
            "cluster": "Management",
            "object": {"apiVersion": api_version, "kind": kind, "name": object},
        }))
    }

    /// Checks an object of the workload cluster: apiVersion and kind, namespace and name.
    #[must_use]
    pub fn workload(name: &str, (api_version, kind): (&str, &str), namespace: &str, object: &str) -> Self {
        Self(json!({
            "name": name,
            "cluster": "Workload",
            "object": {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": object},
        }))
    }

    /// The image tag of this container is the version.
    #[must_use]
    pub fn container(self, container: &str) -> Self {
        self.with("container", json!(container))
    }

    /// The version has to equal this value of the row.
    #[must_use]
    pub fn version_key(self, key: &str) -> Self {
        self.with("versionKey", json!(key))
    }

    /// Tests the state alone, at the moment the gate opens.
    #[must_use]
    pub fn health_only(self) -> Self {
        self.with("healthOnly", json!(true))
    }

    /// The object has to satisfy this CEL expression too.
    #[must_use]
    pub fn cel(self, expression: &str) -> Self {
        self.with("cel", json!(expression))
    }

    /// With a field set to any value.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.0[field] = value;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_the_example_of_its_definition() {
        let gate = Gate::new("cni")
            .audit()
            .selects(&json!({"cni": "demo"}))
            .row("1.35", &[("chart", "1.18.2"), ("image", "v1.18.2")])
            .check(Check::proxy("chart", "cni").version_key("chart"))
            .check(
                Check::workload("agent", ("apps/v1", "DaemonSet"), "kube-system", "cni")
                    .container("agent")
                    .version_key("image"),
            );
        let object = gate.object("team-a");
        assert_eq!(
            object["spec"],
            json!({
                "mode": "Audit",
                "clusterSelector": {"matchLabels": {"cni": "demo"}},
                "before": "ControlPlane",
                "versions": [{"kubernetes": "1.35", "values": {"chart": "1.18.2", "image": "v1.18.2"}}],
                "checks": [
                    {
                        "name": "chart",
                        "cluster": "Management",
                        "object": {"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cni"},
                        "versionKey": "chart",
                    },
                    {
                        "name": "agent",
                        "cluster": "Workload",
                        "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cni"},
                        "container": "agent",
                        "versionKey": "image",
                    },
                ],
            })
        );
    }
}
