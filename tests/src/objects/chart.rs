//! Helm charts, as archives that a repository serves.

use anyhow::{Context as _, Result};
use tar::{Builder, Header};

use super::gzip;

/// Workload of a chart that is given no other one: an agent on each Node, as a CNI has it. Its image tag is the appVersion of the chart.
const AGENT: &str = r#"{{- if .Values.broken }}
{{- fail "value broken is set" }}
{{- end }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .Release.Name }}
  namespace: {{ .Release.Namespace }}
spec:
  selector:
    matchLabels:
      app: {{ .Release.Name }}
  updateStrategy:
    type: {{ .Values.updateStrategy }}
  template:
    metadata:
      labels:
        app: {{ .Release.Name }}
    spec:
      tolerations:
        - operator: Exists
      containers:
        - name: agent
          image: {{ printf "registry.invalid/%s:%s" .Chart.Name .Chart.AppVersion | quote }}
"#;

/// Its values.
const VALUES: &str = "broken: false\nupdateStrategy: RollingUpdate\n";

/// A chart in one version.
#[derive(Debug, Clone)]
pub struct Chart {
    name: String,
    version: String,
    app_version: String,
    template: String,
}

impl Chart {
    /// Namespace of workload clusters that charts are installed in.
    pub const NAMESPACE: &str = "kube-system";

    /// The container of the agent.
    pub const CONTAINER: &str = "agent";

    /// Values with which Helm cannot render the chart. The release stays as it was.
    pub const BROKEN: &str = "broken: true\n";

    /// Values with which the API server refuses what Helm has rendered. The release has failed.
    pub const REJECTED: &str = "updateStrategy: Sideways\n";

    /// Values with which a new version reaches a Node only once its Pod is deleted.
    pub const ON_DELETE: &str = "updateStrategy: OnDelete\n";

    /// A chart whose DaemonSet has the name of its release.
    #[must_use]
    pub fn new(name: &str, version: &str, app_version: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            app_version: app_version.to_owned(),
            template: AGENT.to_owned(),
        }
    }

    /// With another template in place of the DaemonSet, in the language of Helm.
    #[must_use]
    pub fn template(mut self, template: impl Into<String>) -> Self {
        self.template = template.into();
        self
    }

    /// Template of values that CAAPH cannot render for this Cluster. It updates no HelmReleaseProxy after that, also those of others.
    #[must_use]
    pub fn broken_for(cluster: &str) -> String {
        format!(
            "{{{{ if eq .Cluster.metadata.name {cluster:?} }}}}{{{{ fail \"no value for this Cluster\" }}}}{{{{ end }}}}\n"
        )
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its appVersion.
    #[must_use]
    pub fn app_version(&self) -> &str {
        &self.app_version
    }

    /// Image of its agent.
    #[must_use]
    pub fn image(&self) -> String {
        format!("registry.invalid/{}:{}", self.name, self.app_version)
    }

    /// The chart as `helm package` makes it: a compressed tarball.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let metadata = serde_json::json!({
            "apiVersion": "v2",
            "name": self.name,
            "version": self.version,
            "appVersion": self.app_version,
        });
        // JSON is YAML.
        let metadata = metadata.to_string();
        let files = [
            ("Chart.yaml", metadata.as_str()),
            ("values.yaml", VALUES),
            ("templates/agent.yaml", self.template.as_str()),
        ];
        let mut tarball = Builder::new(Vec::new());
        for (path, content) in files {
            let path = format!("{}/{path}", self.name);
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            tarball
                .append_data(&mut header, &path, content.as_bytes())
                .with_context(|| format!("put {path} into a chart"))?;
        }
        gzip::compress(&tarball.into_inner().context("end the tarball of a chart")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_break_the_chart_of_one_cluster_only() {
        assert_eq!(
            Chart::broken_for("two"),
            "{{ if eq .Cluster.metadata.name \"two\" }}{{ fail \"no value for this Cluster\" }}{{ end }}\n"
        );
    }

    #[test]
    fn files_are_in_the_directory_of_the_chart() {
        let chart = Chart::new("cni", "1.18.2", "v1.18.2");
        let archive = chart.archive().unwrap();
        let tarball = gzip::tests::decompress(&archive);
        let mut tarball = tar::Archive::new(tarball.as_slice());
        let paths: Vec<String> = tarball
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(
            paths,
            ["cni/Chart.yaml", "cni/values.yaml", "cni/templates/agent.yaml"]
        );
        assert_eq!(chart.image(), "registry.invalid/cni:v1.18.2");
    }
}
