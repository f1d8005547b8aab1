//! A restore of etcd to an older state, without the step that has its revisions go on beyond those that were given out.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use futures::future::try_join_all;

use super::world::World;
use crate::provider::Workload;

/// State of all API servers of a stack at one moment: that of the management cluster, and those of its workload clusters.
pub struct Backup {
    data: PathBuf,
    /// Workload clusters, each with the version that its API server had.
    workloads: Vec<(Arc<Workload>, String)>,
}

impl World {
    /// Backs up etcd. All of the stack runs on.
    pub async fn back_up(&self) -> Result<Backup> {
        let with_version = |workload: Arc<Workload>| {
            let version = workload.api.version();
            (workload, version)
        };
        let workloads = self.provider().workloads();
        let workloads = workloads.into_iter().map(with_version).collect();
        let data = self.stack().core().etcd().back_up().await?;
        Ok(Backup { data, workloads })
    }

    /// Takes etcd back to `backup`, of which the same Clusters were part, and starts a new observer.
    ///
    /// Everything that watches an API server is stopped first and started again afterwards, so that it lists what is there now. Sluice
    /// runs on: nothing tells it.
    pub async fn restore(&self, backup: Backup) -> Result<()> {
        let Backup { data, workloads } = backup;
        let stack = self.stack();
        // Clients before their API servers: some end by themselves without one.
        self.provider().stop().await;
        try_join_all(self.provider().workloads().iter().map(|workload| workload.stop())).await?;
        stack.cluster_api().kill().await?;
        if stack.has_packages() {
            stack.kapp_controller()?.kill().await?;
        }
        stack.controller_manager().kill().await?;
        stack.management().kill().await?;

        stack.core().etcd().restore(&data).await?;
        // Before the first write.
        self.observe_anew().await?;
        // First and alone: the leader has to renew its lease in time.
        stack.management().restart().await?;
        let resumed = workloads.iter().map(|(workload, version)| async move {
            workload.api.swap(version).await?;
            workload.kubelet.restart().await
        });
        tokio::try_join!(
            stack.controller_manager().restart(),
            async {
                if stack.has_packages() {
                    stack.kapp_controller()?.restart().await
                } else {
                    Ok(())
                }
            },
            stack.cluster_api().restart(),
            try_join_all(resumed),
        )?;
        self.provider().restart().await;
        Ok(())
    }
}
