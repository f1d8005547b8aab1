//! kube-controller-manager. For the management cluster: garbage collection, namespaces and what else Cluster API leans on. For a workload
//! cluster: the status of PodDisruptionBudgets, DaemonSets with their Pods, or all kinds of workloads.

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

/// Those of a workload cluster beside [`OF_DAEMON_SETS`] that has Pods of all kinds of workloads. The last one deletes finished Jobs.
const OF_WORKLOADS: [&str; 5] = [
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "ttl-after-finished-controller",
];

/// Which controllers a workload cluster has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controllers {
    /// Those for drained Nodes.
    pub drains: bool,
    /// Those of DaemonSets.
    pub daemon_sets: bool,
    /// Those of DaemonSets, Deployments, StatefulSets and Jobs.
    pub workloads: bool,
}

impl Controllers {
    /// Their names.
    fn names(self) -> Vec<&'static str> {
        let drains = self.drains.then_some(OF_DRAINS);
        let daemon_sets = (self.daemon_sets || self.workloads).then_some(OF_DAEMON_SETS);
        let workloads = self.workloads.then_some(OF_WORKLOADS);
        let mut names = Vec::new();
        names.extend(drains.into_iter().flatten());
        names.extend(daemon_sets.into_iter().flatten());
        names.extend(workloads.into_iter().flatten());
        names
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

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

    /// Starts one with these controllers for the API server of a workload cluster, and waits until it is healthy.
    pub async fn start_for_workload(
        core: &Arc<StackCore>,
        api: &ApiServer,
        controllers: Controllers,
    ) -> Result<Self> {
        let name = format!("controllers-{}", api.name());
        Self::start_with(core, api, &name, &controllers.names()).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_workloads_need_the_controllers_of_daemon_sets_once() {
        let of = |daemon_sets, workloads| Controllers {
            drains: false,
            daemon_sets,
            workloads,
        };
        assert_eq!(of(true, false).names(), OF_DAEMON_SETS);
        assert_eq!(of(false, true).names(), of(true, true).names());
        let names = of(false, true).names();
        assert!(names.contains(&"daemonset-controller") && names.contains(&"job-controller"));
        assert!(of(false, false).is_empty());
    }
}
