//! CAAPH: its CRDs, its process and its webhooks, in the order that works.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::webhooks::{Endpoint, crds, webhooks, write_certificate};
use crate::components::ClusterApiFiles;
use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::requests::apply;
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;

/// Name of its log, of its directory and of its webhook configurations.
const NAME: &str = "caaph";

/// The manager, with all rights on the management cluster. It delivers Helm charts to workload clusters with their kubeconfig Secrets.
pub struct Caaph {
    core: Arc<StackCore>,
    files: ClusterApiFiles,
    directory: PathBuf,
    webhook_port: Port,
    health_port: Port,
    process: Mutex<Option<Process>>,
}

impl Caaph {
    /// Installs it on `api`, where Cluster API is installed, and waits until it is ready. The first call on a machine builds it.
    pub async fn start(core: &Arc<StackCore>, api: &ApiServer) -> Result<Self> {
        let files = core.binaries().caaph().await?;
        let directory = core.directory().subdirectory(NAME)?;
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
        let webhooks = webhooks(&manager.files.webhooks, &endpoint, NAME)?;
        let webhooks: Vec<Value> = webhooks.into_iter().map(optional).collect();
        apply::apply_all(&client, &webhooks).await?;
        Ok(manager)
    }

    /// Kills the manager if it runs, starts it again and waits until it is ready.
    pub async fn restart(&self) -> Result<()> {
        self.kill().await?;
        let process = Process::start(self.core.directory(), self.launch()?)?;
        let readyz = Probe::new(&format!("http://{}", self.health_address()), "/readyz")?;
        process
            .until("to be ready", Duration::from_mins(2), || readyz.get())
            .await?;
        *self.process.lock().await = Some(process);
        Ok(())
    }

    /// Kills the manager. HelmChartProxies can still be written.
    pub async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Stops the manager where it stands. Each write of its kinds then takes some seconds more, until its webhooks are given up.
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP).await
    }

    /// Resumes a stopped manager.
    pub async fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let process = self.process.lock().await;
        process.as_ref().context("CAAPH does not run")?.signal(signal)
    }

    fn health_address(&self) -> String {
        format!("127.0.0.1:{}", self.health_port.number())
    }

    fn launch(&self) -> Result<Launch> {
        let file = |name: &str| self.directory.join(name).display().to_string();
        // Indexes and archives of charts, the cache of discovery, and files with the values of releases.
        let home = self.core.directory().subdirectory(self.directory.join("home"))?;
        let launch = Launch::new(NAME, &self.files.manager)
            .env("HOME", &home)
            .env("TMPDIR", &home)
            .args([
                format!("--kubeconfig={}", file("kubeconfig")),
                "--leader-elect=false".to_owned(),
                format!("--webhook-port={}", self.webhook_port.number()),
                format!("--webhook-cert-dir={}", self.directory.display()),
                format!("--health-addr={}", self.health_address()),
                "--diagnostics-address=0".to_owned(),
                "--v=2".to_owned(),
            ]);
        Ok(launch)
    }
}

/// Lets objects be written while the manager is stopped, as they can be where another replica serves the webhooks.
fn optional(mut configuration: Value) -> Value {
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        webhook["failurePolicy"] = json!("Ignore");
        webhook["timeoutSeconds"] = json!(2);
    }
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_is_stopped_refuses_nothing() {
        let configuration = json!({"webhooks": [{"name": "a", "failurePolicy": "Fail"}, {"name": "b"}]});
        let optional = optional(configuration);
        for webhook in optional["webhooks"].as_array().unwrap() {
            assert_eq!(webhook["failurePolicy"], "Ignore");
        }
    }
}
