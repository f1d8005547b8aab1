//! kube-controller-manager. For the management cluster: garbage collection, namespaces and what else Cluster API leans on. For a workload
//! cluster: the status of PodDisruptionBudgets, and DaemonSets with their Pods.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::processes::run_directory::RunDirectory;
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

/// Those of a workload cluster whose Nodes are drained. The first one computes how many Pods of a PodDisruptionBudget may be evicted.
const OF_DRAINS: [&str; 2] = ["disruption-controller", "serviceaccount-controller"];

/// Those of a workload cluster that has Pods of DaemonSets. The second one deletes Pods whose Node is gone, and the third one those of a
/// deleted DaemonSet.
const OF_DAEMON_SETS: [&str; 3] = [
    "daemonset-controller",
    "pod-garbage-collector-controller",
    "garbage-collector-controller",
];

/// A kube-controller-manager: a port for its whole life, and a process that may be replaced.
#[derive(Debug)]
pub struct ControllerManager {
    port: Port,
    launch: Launch,
    process: Mutex<Option<Process>>,
    // Last, so that the process is killed before the directory is removed.
    directory: Arc<RunDirectory>,
}

impl ControllerManager {
    /// Starts it for `api` and waits until it is healthy.
    pub async fn start(core: &Arc<StackCore>, api: &ApiServer) -> Result<Self> {
        Self::start_named(core, api, "kube-controller-manager").await
    }

    /// [`Self::start`] with a log of this name, unique in the stack.
    pub async fn start_named(core: &Arc<StackCore>, api: &ApiServer, name: &str) -> Result<Self> {
        Self::start_with(core, api, name, &CONTROLLERS).await
    }

    /// Starts one for the API server of a workload cluster, and waits until it is healthy: with the controllers for drained Nodes, for
    /// DaemonSets, or for both.
    pub async fn start_for_workload(
        core: &Arc<StackCore>,
        api: &ApiServer,
        drains: bool,
        daemon_sets: bool,
    ) -> Result<Self> {
        let name = format!("controllers-{}", api.name());
        let mut controllers = Vec::new();
        if drains {
            controllers.extend(OF_DRAINS);
        }
        if daemon_sets {
            controllers.extend(OF_DAEMON_SETS);
        }
        Self::start_with(core, api, &name, &controllers).await
    }

    async fn start_with(
        core: &Arc<StackCore>,
        api: &ApiServer,
        name: &str,
        controllers: &[&str],
    ) -> Result<Self> {
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
            format!("--controllers={}", controllers.join(",")),
        ]);
        let manager = Self {
            port,
            launch,
            process: Mutex::default(),
            directory: core.directory().clone(),
        };
        manager.restart().await?;
        Ok(manager)
    }

    /// Kills it if it runs, starts it again and waits until it is healthy.
    pub async fn restart(&self) -> Result<()> {
        self.kill().await?;
        let process = Process::start(&self.directory, self.launch.clone())?;
        let server = format!("https://127.0.0.1:{}", self.port.number());
        let healthz = Probe::new(&server, "/healthz")?;
        process
            .until("to be healthy", Duration::from_mins(2), || healthz.get())
            .await?;
        *self.process() = Some(process);
        Ok(())
    }

    /// Kills it.
    pub async fn kill(&self) -> Result<()> {
        let process = self.process().take();
        match process {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Stops it in mid-work, so that nothing is collected.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Has it go on where it stood.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        self.process()
            .as_ref()
            .context("kube-controller-manager does not run")?
            .signal(signal)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
