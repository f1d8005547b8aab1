//! Definitions and webhook configurations of managers that run as processes on loopback.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::processes::ports::Port;
use crate::requests::apply;
use crate::stack::apiserver::ApiServer;

/// Where the API server reaches the webhooks of a manager.
pub(super) struct Endpoint {
    port: u16,
    ca_bundle: String,
}

impl Endpoint {
    /// That of a manager with a certificate of this API server.
    pub(super) fn of(api: &ApiServer, port: &Port) -> Self {
        Self {
            port: port.number(),
            ca_bundle: api.pki().ca_bundle(),
        }
    }

    fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca_bundle})
    }
}

/// Writes certificate, key and kubeconfig of a manager to its directory.
pub(super) fn write_certificate(api: &ApiServer, directory: &Path) -> Result<()> {
    let certificate = api.pki().server_certificate()?;
    fs::write(directory.join("tls.crt"), &certificate.certificate)?;
    fs::write(directory.join("tls.key"), &certificate.key)?;
    fs::write(directory.join("kubeconfig"), api.admin_kubeconfig())?;
    Ok(())
}

/// The definitions of a directory. The manager converts those with several versions.
pub(super) fn crds(directory: &Path, endpoint: &Endpoint) -> Result<Vec<Value>> {
    let mut definitions = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry?.path();
        let yaml = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let documents = apply::documents(&yaml).with_context(|| format!("read {}", path.display()))?;
        definitions.extend(
            documents
                .into_iter()
                .map(|definition| converted_by(definition, endpoint)),
        );
    }
    Ok(definitions)
}

fn converted_by(mut definition: Value, endpoint: &Endpoint) -> Value {
    if let Some(object) = definition.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = definition["metadata"].as_object_mut() {
        metadata.remove("creationTimestamp");
    }
    if definition["spec"]["versions"]
        .as_array()
        .is_some_and(|versions| versions.len() > 1)
    {
        definition["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": endpoint.client_config("/convert")},
        });
    }
    definition
}

/// The webhook configurations of a file, as `<prefix>-<name>`, with the endpoint of the manager in place of a Service.
pub(super) fn webhooks(path: &Path, endpoint: &Endpoint, prefix: &str) -> Result<Vec<Value>> {
    let yaml = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut configurations = apply::documents(&yaml)?;
    for configuration in &mut configurations {
        let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
        configuration["metadata"] = json!({"name": format!("{prefix}-{name}")});
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let path = webhook["clientConfig"]["service"]["path"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            webhook["clientConfig"] = endpoint.client_config(&path);
        }
    }
    Ok(configurations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_reached_at_its_path_on_loopback() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("webhooks.yaml");
        let service = json!({"name": "webhook-service", "namespace": "system", "path": "/mutate-a"});
        let configuration = json!({
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "mutating-webhook-configuration", "annotations": {"a": "b"}},
            "webhooks": [{"name": "a.kb.io", "clientConfig": {"service": service}}],
        });
        fs::write(&path, configuration.to_string()).unwrap();
        let endpoint = Endpoint {
            port: 9443,
            ca_bundle: "Y2E=".to_owned(),
        };

        let read = webhooks(&path, &endpoint, "caaph").unwrap();

        assert_eq!(
            read[0]["metadata"],
            json!({"name": "caaph-mutating-webhook-configuration"})
        );
        assert_eq!(
            read[0]["webhooks"][0]["clientConfig"],
            json!({"url": "https://127.0.0.1:9443/mutate-a", "caBundle": "Y2E="})
        );
    }

    #[test]
    fn only_several_versions_are_converted() {
        let endpoint = Endpoint {
            port: 9443,
            ca_bundle: String::new(),
        };
        let conversion = |versions: Value| {
            let definition = json!({"spec": {"versions": versions}, "metadata": {}, "status": {}});
            converted_by(definition, &endpoint)["spec"]["conversion"].clone()
        };
        assert_eq!(conversion(json!([{"name": "v1alpha1"}])), Value::Null);
        assert_eq!(
            conversion(json!([{"name": "v1beta1"}, {"name": "v1beta2"}]))["strategy"],
            "Webhook"
        );
    }
}
