//! A workload cluster: its API server, and the stand-ins of a node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use crate::stack::apiserver::ApiServer;
use crate::stack::controller_manager::ControllerManager;
use crate::stack::kubelet::Kubelet;
use crate::stack::scheduler::Scheduler;

/// A Cluster of Cluster API, run by the provider.
pub struct Workload {
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// Its API server.
    pub api: Arc<ApiServer>,
    /// Whether that is the management API server, which outlives the Cluster.
    pub is_management: bool,
    /// The stand-in for its nodes' kubelets.
    pub kubelet: Kubelet,
    /// Its kube-controller-manager, where Nodes are drained or run Pods of real controllers.
    pub controller_manager: Option<ControllerManager>,
    /// Its kube-scheduler, where that places Pods.
    pub scheduler: Option<Scheduler>,
}

impl Workload {
    /// Puts an empty cluster in its place, behind the same address and credentials.
    pub async fn replace(&self) -> Result<()> {
        self.kubelet.end_kapp_controller().await?;
        self.api.lose_data().await
    }

    /// Ends kube-scheduler, kube-controller-manager, the kubelet, its processes, and the API server, unless that is the management API server.
    pub async fn stop(&self) -> Result<()> {
        if let Some(scheduler) = &self.scheduler {
            scheduler.kill().await?;
        }
        if let Some(controller_manager) = &self.controller_manager {
            controller_manager.kill().await?;
        }
        self.kubelet.stop().await?;
        if self.is_management {
            return Ok(());
        }
        self.api.kill().await
    }
}

/// All workload clusters of a provider, by the uid of the control plane object.
#[derive(Default)]
pub(super) struct Workloads {
    by_uid: Mutex<HashMap<String, Arc<Workload>>>,
}

impl Workloads {
    pub(super) fn get(&self, uid: &str) -> Option<Arc<Workload>> {
        self.lock().get(uid).cloned()
    }

    pub(super) fn insert(&self, uid: &str, workload: Arc<Workload>) {
        self.lock().insert(uid.to_owned(), workload);
    }

    pub(super) fn remove(&self, uid: &str) -> Option<Arc<Workload>> {
        self.lock().remove(uid)
    }

    pub(super) fn all(&self) -> Vec<Arc<Workload>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn of_cluster(&self, namespace: &str, cluster: &str) -> Option<Arc<Workload>> {
        self.lock()
            .values()
            .find(|workload| workload.namespace == namespace && workload.cluster == cluster)
            .cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Workload>>> {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
