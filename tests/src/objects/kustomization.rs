//! Kustomizations, by which Flux applies files to a cluster.

use serde_json::{Map, Value, json};

use super::sources::GitSource;
use super::{INTERVAL, kubeconfig};

/// A Kustomization. Flux does not wait for what it applies.
#[derive(Debug, Clone)]
pub struct Kustomization {
    name: String,
    source: String,
    path: String,
    cluster: Option<String>,
    suspended: bool,
    more: Map<String, Value>,
}

impl Kustomization {
    /// Group, version and kind as a check names them.
    pub const KIND: (&str, &str) = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");

    /// One of all files, for the cluster that it is in until [`Self::cluster`] names another one.
    #[must_use]
    pub fn new(name: &str, source: &GitSource) -> Self {
        Self {
            name: name.to_owned(),
            source: source.name().to_owned(),
            path: "./".to_owned(),
            cluster: None,
            suspended: false,
            more: Map::new(),
        }
    }

    /// Of the files in this directory.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Delivers to a Cluster of Cluster API, with the kubeconfig Secret of its namespace.
    #[must_use]
    pub fn cluster(mut self, cluster: &str) -> Self {
        self.cluster = Some(cluster.to_owned());
        self
    }

    /// Suspended or not.
    #[must_use]
    pub fn suspended(mut self, suspended: bool) -> Self {
        self.suspended = suspended;
        self
    }

    /// With a field of the spec set to any value.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.more.insert(field.to_owned(), value);
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is on the management cluster and delivers to another one.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.cluster.is_some()
    }

    /// The object, to be applied. Inside a workload cluster it belongs in [`FLUX_NAMESPACE`](super::FLUX_NAMESPACE).
    #[must_use]
    pub fn manifest(&self, namespace: &str) -> Value {
        let (api_version, kind) = Self::KIND;
        let mut object = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "interval": INTERVAL,
                "retryInterval": "2s",
                "timeout": "1m",
                "prune": true,
                "suspend": self.suspended,
                "path": self.path,
                "sourceRef": {"kind": "GitRepository", "name": self.source},
            },
        });
        let spec = &mut object["spec"];
        if let Some(cluster) = &self.cluster {
            spec["kubeConfig"] = kubeconfig(cluster);
        }
        for (field, value) in &self.more {
            spec[field] = value.clone();
        }
        object
    }
}

/// Where a Kustomization is.
#[must_use]
pub fn kustomization_path(namespace: &str, name: &str) -> String {
    format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{namespace}/kustomizations/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::FLUX_NAMESPACE;

    #[test]
    fn files_of_a_repository_are_applied_to_a_cluster() {
        let source = GitSource::new("addons", "http://127.0.0.1:1/addons", "main");
        let kustomization = Kustomization::new("agent-prod-1", &source).path("./agent");
        assert!(kustomization.manifest(FLUX_NAMESPACE)["spec"]["kubeConfig"].is_null());
        let spec = kustomization.cluster("prod-1").manifest("team-a")["spec"].take();
        assert_eq!(
            spec["kubeConfig"],
            json!({"secretRef": {"name": "prod-1-kubeconfig"}})
        );
        assert_eq!(spec["path"], "./agent");
        assert_eq!(
            spec["sourceRef"]["name"],
            source.manifest("team-a")["metadata"]["name"]
        );
    }
}
