//! kube-scheduler of a workload cluster.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::Mutex;

use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;

/// A kube-scheduler with its port.
#[derive(Debug)]
pub struct Scheduler {
    process: Mutex<Process>,
    _port: Port,
}

impl Scheduler {
    /// Starts it for the API server of a workload cluster, and waits until it has listed what it schedules by. It is built first if that was
    /// not done before on this machine, which takes minutes.
    pub async fn start(core: &Arc<StackCore>, api: &ApiServer) -> Result<Self> {
        let program = core.binaries().kube_scheduler().await?;
        let port = Port::reserve()?;
        let name = format!("scheduler-{}", api.name());
        let directory = core.directory().subdirectory(&name)?;
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, api.admin_kubeconfig()).context("write the kubeconfig of kube-scheduler")?;
        let kubeconfig = kubeconfig.display();
        let launch = Launch::new(&name, program).args([
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", port.number()),
            "--leader-elect=false".to_owned(),
            "--profiling=false".to_owned(),
        ]);
        let process = Process::start(core.directory(), launch)?;
        let server = format!("https://127.0.0.1:{}", port.number());
        let readyz = Probe::new(&server, "/readyz")?;
        process
            .until("to be ready", Duration::from_mins(2), || readyz.get())
            .await?;
        Ok(Self {
            process: Mutex::new(process),
            _port: port,
        })
    }

    /// Kills it.
    pub async fn kill(&self) -> Result<()> {
        self.process.lock().await.kill().await
    }
}
