//! HelmReleases, by which Flux delivers a chart to a cluster.

use serde_json::{Map, Value, json};

use super::chart::Chart;
use super::sources::HelmRepository;
use super::{INTERVAL, kubeconfig};

/// A HelmRelease. Helm does not wait for what it installs, unless [`Self::waits`] says so.
#[derive(Debug, Clone)]
pub struct HelmRelease {
    name: String,
    chart: String,
    repository: String,
    version: String,
    cluster: Option<String>,
    values: Option<Value>,
    suspended: bool,
    more: Map<String, Value>,
}

impl HelmRelease {
    /// Group, version and kind as a check names them.
    pub const KIND: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");

    /// One that delivers to the cluster that it is in, until [`Self::cluster`] names another one. Its release has the name of the chart.
    #[must_use]
    pub fn new(name: &str, chart: &str) -> Self {
        Self {
            name: name.to_owned(),
            chart: chart.to_owned(),
            repository: HelmRepository::NAME.to_owned(),
            version: String::new(),
            cluster: None,
            values: None,
            suspended: false,
            more: Map::new(),
        }
    }

    /// With this version of the chart.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// Delivers to a Cluster of Cluster API, with the kubeconfig Secret of its namespace.
    #[must_use]
    pub fn cluster(mut self, cluster: &str) -> Self {
        self.cluster = Some(cluster.to_owned());
        self
    }

    /// With a HelmRepository of another name.
    #[must_use]
    pub fn repository(mut self, name: &str) -> Self {
        name.clone_into(&mut self.repository);
        self
    }

    /// With these values as YAML, in place of those before.
    #[must_use]
    pub fn values(mut self, yaml: &str) -> Self {
        // The API server rejects a text in the place of values, so that a mistake in a scenario is seen.
        self.values = Some(serde_saphyr::from_str(yaml).unwrap_or_else(|_| json!(yaml)));
        self
    }

    /// Suspended or not.
    #[must_use]
    pub fn suspended(mut self, suspended: bool) -> Self {
        self.suspended = suspended;
        self
    }

    /// Helm waits for workloads, this long at most.
    #[must_use]
    pub fn waits(self, timeout: &str) -> Self {
        self.with("timeout", json!(timeout))
            .with("install", json!({}))
            .with("upgrade", json!({}))
            .with("rollback", json!({}))
    }

    /// An upgrade that has failed is rolled back, and tried once more.
    #[must_use]
    pub fn rolls_back(self) -> Self {
        let remediation = json!({"retries": 1, "strategy": "rollback"});
        self.with(
            "upgrade",
            json!({"disableWait": true, "remediation": remediation}),
        )
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

    /// The version that it asks for.
    #[must_use]
    pub fn wanted(&self) -> &str {
        &self.version
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
                "timeout": "1m",
                "suspend": self.suspended,
                "releaseName": self.chart,
                "targetNamespace": Chart::NAMESPACE,
                // Where the kubeconfig leads, which has no namespace of the name of this one.
                "storageNamespace": Chart::NAMESPACE,
                "chart": {"spec": {
                    "chart": self.chart,
                    "version": self.version,
                    "interval": INTERVAL,
                    "sourceRef": {"kind": "HelmRepository", "name": self.repository},
                }},
                "install": {"disableWait": true},
                "upgrade": {"disableWait": true},
                "rollback": {"disableWait": true},
            },
        });
        let spec = &mut object["spec"];
        if let Some(cluster) = &self.cluster {
            spec["kubeConfig"] = kubeconfig(cluster);
        }
        if let Some(values) = &self.values {
            spec["values"] = values.clone();
        }
        for (field, value) in &self.more {
            spec[field] = value.clone();
        }
        object
    }
}

/// Where a HelmRelease is.
#[must_use]
pub fn helm_release_path(namespace: &str, name: &str) -> String {
    format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/{namespace}/helmreleases/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::FLUX_NAMESPACE;

    #[test]
    fn a_release_of_a_cluster_uses_its_kubeconfig_secret() {
        let release = HelmRelease::new("cni-prod-1", "cni").version("1.18.2");
        assert!(release.manifest(FLUX_NAMESPACE)["spec"]["kubeConfig"].is_null());
        let spec = release.cluster("prod-1").suspended(true).manifest("team-a")["spec"].take();
        assert_eq!(
            spec["kubeConfig"],
            json!({"secretRef": {"name": "prod-1-kubeconfig"}})
        );
        assert_eq!(spec["suspend"], true);
        assert_eq!(spec["releaseName"], "cni");
        assert_eq!(spec["chart"]["spec"]["version"], "1.18.2");
    }

    #[test]
    fn values_are_those_of_the_yaml() {
        let values =
            |yaml: &str| HelmRelease::new("cni", "cni").values(yaml).manifest("a")["spec"]["values"].take();
        assert_eq!(values(Chart::BROKEN), json!({"broken": true}));
        assert_eq!(values("broken: [true"), json!("broken: [true"));
    }

    #[test]
    fn helm_waits_only_where_it_is_asked_to() {
        let release = HelmRelease::new("cni", "cni");
        assert_eq!(
            release.manifest("a")["spec"]["upgrade"],
            json!({"disableWait": true})
        );
        let waits = release.waits("30s").manifest("a")["spec"].take();
        assert_eq!(
            (&waits["upgrade"], &waits["timeout"]),
            (&json!({}), &json!("30s"))
        );
    }
}
