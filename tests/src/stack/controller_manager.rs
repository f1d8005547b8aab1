//! kube-controller-manager for the management cluster: garbage collection, namespaces and what else Cluster
//! API leans on.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;

const CONTROLLERS: [&str; 7] = [
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "replicaset-controller",
];

/// A running kube-controller-manager.
#[derive(Debug)]
pub struct ControllerManager {
    _port: Port,
    process: Process,
}

impl ControllerManager {
    /// Starts it for `api` and waits until it is healthy.
    pub async fn start(core: &Arc<StackCore>, api: &ApiServer) -> Result<Self> {
        Self::start_named(core, api, "kube-controller-manager").await
    }

    /// [`Self::start`] with a log of this name, unique in the stack.
    pub async fn start_named(core: &Arc<StackCore>, api: &ApiServer, name: &str) -> Result<Self> {
        let port = Port::reserve()?;
        let directory = core.directory().subdirectory(format!("kcm-{name}"))?;
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, api.admin_kubeconfig())
            .context("write the kubeconfig of kube-controller-manager")?;
        let kubeconfig = kubeconfig.display();
        let launch = Launch::new(name, core.binaries().kube_controller_manager()).args([
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", port.number()),
            // Its default is a directory that only root may write.
            format!("--cert-dir={}", directory.display()),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                api.pki().file("sa.key").display()
            ),
            format!("--root-ca-file={}", api.pki().file("ca.crt").display()),
            "--profiling=false".to_owned(),
            format!("--controllers={}", CONTROLLERS.join(",")),
        ]);
        let process = Process::start(core.directory(), launch)?;
        let healthz = Probe::new(&format!("https://127.0.0.1:{}", port.number()), "/healthz")?;
        process
            .until("to be healthy", Duration::from_mins(2), || healthz.get())
            .await?;
        Ok(Self { _port: port, process })
    }

    /// Stops it in mid-work, so that nothing is collected.
    pub fn freeze(&self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Has it go on where it stood.
    pub fn thaw(&self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }
}
