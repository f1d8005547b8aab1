//! The core manager of Cluster API: its CRDs, its process and its webhooks, in the order that works.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::components::{ClusterApiFiles, ClusterApiRelease};
use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::requests::apply;
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;

/// The manager. It runs with all rights, as upstream's own end-to-end tests run it.
pub struct ClusterApi {
    core: Arc<StackCore>,
    files: ClusterApiFiles,
    directory: PathBuf,
    webhook_port: Port,
    health_port: Port,
    process: Mutex<Option<Process>>,
}

/// Feature gate `RuntimeSDK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeSdk {
    /// Cluster API calls extensions.
    On,
    /// As Cluster API comes: there are no extensions.
    Off,
}

impl ClusterApi {
    /// Installs a release of Cluster API on `api` and waits until its webhooks answer.
    pub async fn start(core: &Arc<StackCore>, api: &ApiServer, release: ClusterApiRelease) -> Result<Self> {
        let files = core.binaries().cluster_api(release).await?;
        let directory = core.directory().subdirectory("capi")?;
        let certificate = api.pki().server_certificate()?;
        fs::write(directory.join("tls.crt"), &certificate.certificate)?;
        fs::write(directory.join("tls.key"), &certificate.key)?;
        fs::write(directory.join("kubeconfig"), api.admin_kubeconfig())?;
        let manager = Self {
            core: core.clone(),
            files,
            directory,
            webhook_port: Port::reserve()?,
            health_port: Port::reserve()?,
            process: Mutex::new(None),
        };
        let client = api.admin_client();
        let endpoint = Endpoint {
            port: manager.webhook_port.number(),
            ca_bundle: api.pki().ca_bundle(),
        };
        apply::apply_crds(&client, &crds(&manager.files.definitions, &endpoint)?).await?;
        manager.restart().await?;
        // Only now: with the configurations in place and no manager, nothing of Cluster API could be written.
        apply::apply_all(&client, &webhooks(&manager.files.webhooks, &endpoint)?).await?;
        Ok(manager)
    }

    /// Kills the manager if it runs, and starts it again. An ExtensionConfig whose server is down kills it
    /// again after 61 s.
    pub async fn restart(&self) -> Result<()> {
        self.restart_with(RuntimeSdk::On).await
    }

    /// [`Self::restart`] with or without the feature that has it ask extensions.
    pub async fn restart_with(&self, runtime_sdk: RuntimeSdk) -> Result<()> {
        self.kill().await?;
        let file = |name: &str| self.directory.join(name).display().to_string();
        let health = format!("127.0.0.1:{}", self.health_port.number());
        let launch = Launch::new("capi-core", &self.files.manager).args([
            format!("--kubeconfig={}", file("kubeconfig")),
            "--leader-elect=false".to_owned(),
            format!("--webhook-port={}", self.webhook_port.number()),
            format!("--webhook-cert-dir={}", self.directory.display()),
            format!("--health-addr={health}"),
            "--diagnostics-address=0".to_owned(),
            format!(
                "--feature-gates=ClusterTopology=true,RuntimeSDK={},MachinePool=true",
                runtime_sdk == RuntimeSdk::On
            ),
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields".to_owned(),
            "--v=2".to_owned(),
        ]);
        let process = Process::start(self.core.directory(), launch)?;
        let readyz = Probe::new(&format!("http://{health}"), "/readyz")?;
        process
            .until("to be ready", Duration::from_mins(2), || readyz.get())
            .await?;
        *self.process.lock().await = Some(process);
        Ok(())
    }

    /// Kills the manager.
    pub async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }
}

/// Where the API server reaches the manager's webhooks.
struct Endpoint {
    port: u16,
    ca_bundle: String,
}

impl Endpoint {
    fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca_bundle})
    }
}

fn crds(directory: &Path, endpoint: &Endpoint) -> Result<Vec<Value>> {
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

/// A CRD with several versions is converted by the manager.
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

fn webhooks(path: &Path, endpoint: &Endpoint) -> Result<Vec<Value>> {
    let yaml = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut configurations = apply::documents(&yaml)?;
    for configuration in &mut configurations {
        let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
        configuration["metadata"] = json!({"name": format!("capi-{name}")});
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
