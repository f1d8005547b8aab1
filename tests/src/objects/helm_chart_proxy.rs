//! HelmChartProxies, by which CAAPH delivers a chart to Clusters.

use serde_json::{Value, json};

use super::chart::Chart;

/// A HelmChartProxy.
#[derive(Debug, Clone)]
pub struct HelmChartProxy {
    name: String,
    chart: String,
    repository: String,
    version: String,
    values: String,
    selector: Value,
    options: Value,
    strategy: Option<&'static str>,
}

impl HelmChartProxy {
    /// One with the name of its chart, which selects every Cluster of its namespace.
    #[must_use]
    pub fn new(chart: &str, repository: &str) -> Self {
        Self {
            name: chart.to_owned(),
            chart: chart.to_owned(),
            repository: repository.to_owned(),
            version: String::new(),
            values: String::new(),
            selector: json!({}),
            options: json!({}),
            strategy: None,
        }
    }

    /// With another name than its chart. The release keeps the name of the chart.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// With this version of the chart.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.version);
        self
    }

    /// With this template of values, in place of the one before.
    #[must_use]
    pub fn values(mut self, template: &str) -> Self {
        template.clone_into(&mut self.values);
        self
    }

    /// For Clusters with these labels.
    #[must_use]
    pub fn selects(mut self, labels: &Value) -> Self {
        self.selector = json!({"matchLabels": labels});
        self
    }

    /// With options of Helm, such as `{"wait": true, "timeout": "30s"}`.
    #[must_use]
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Installs the chart, and never updates it.
    #[must_use]
    pub fn install_once(mut self) -> Self {
        self.strategy = Some("InstallOnce");
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

    /// The object, to be applied.
    #[must_use]
    pub fn object(&self, namespace: &str) -> Value {
        let mut object = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1",
            "kind": "HelmChartProxy",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "clusterSelector": self.selector,
                "chartName": self.chart,
                "repoURL": self.repository,
                "releaseName": self.chart,
                "namespace": Chart::NAMESPACE,
                "version": self.version,
                "valuesTemplate": self.values,
                "options": self.options,
            },
        });
        if let Some(strategy) = self.strategy {
            object["spec"]["reconcileStrategy"] = json!(strategy);
        }
        object
    }
}
