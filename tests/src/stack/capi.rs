//! The core manager of Cluster API: its CRDs, its process and its webhooks, in the order that works.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use tokio::sync::Mutex;

use super::webhooks::{Endpoint, crds, webhooks, write_certificate};
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
        write_certificate(api, &directory)?;
        let manager = Self {
            core: core.clone(),
            files,
            directory,
            webhook_port: Port::reserve()?,
            health_port: Port::reserve()?,
            process: Mutex::new(None),
        };
        let client = api.admin_client();
        let endpoint = Endpoint::of(api, &manager.webhook_port);
        apply::apply_crds(&client, &crds(&manager.files.definitions, &endpoint)?).await?;
        manager.restart().await?;
        // Only now: with the configurations in place and no manager, nothing of Cluster API could be written.
        apply::apply_all(&client, &webhooks(&manager.files.webhooks, &endpoint, "capi")?).await?;
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

    /// Stops the manager where it stands. Its webhooks answer nothing until [`Self::thaw`].
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP).await
    }

    /// Resumes a stopped manager.
    pub async fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process.lock().await;
        process
            .as_ref()
            .context("Cluster API does not run")?
            .signal(signal)
    }

    /// Kills the manager.
    pub async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }
}
