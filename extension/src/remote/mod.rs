//! Connections to workload clusters: one per Cluster and kubeconfig, and only while the cluster is hot.

mod breaker;
mod client;
mod connection;
mod ensured;
mod identity;
mod runs;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use sluice_core::kubeconfig::WorkloadKubeconfig;

pub use client::connect;
pub use connection::{Contact, Remote, Unread};
pub use identity::Served;

use crate::{
    fence::Fence,
    triggers::{ClusterRef, Triggers},
};

/// The live connections, by UID of the Cluster.
pub struct Remotes {
    system_namespace: String,
    triggers: Triggers,
    fence: Fence,
    live: Mutex<HashMap<String, Arc<Remote>>>,
}

impl Remotes {
    /// No connections yet. PackageInstalls are watched in `system_namespace` of each workload cluster, and nothing is
    /// written there while `fence` is closed.
    #[must_use]
    pub fn new(system_namespace: String, triggers: Triggers, fence: Fence) -> Self {
        Self {
            system_namespace,
            triggers,
            fence,
            live: Mutex::default(),
        }
    }

    /// The connection of a cluster; another one when the kubeconfig is another one.
    ///
    /// # Errors
    /// The kubeconfig holds something that no client can be made of.
    pub fn open(
        &self,
        cluster_uid: &str,
        cluster: &ClusterRef,
        kubeconfig: &WorkloadKubeconfig,
        digest: &str,
    ) -> Result<Arc<Remote>, client::Error> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(remote) = live.get(cluster_uid).filter(|remote| remote.digest() == digest) {
            return Ok(Arc::clone(remote));
        }
        let client = connect(kubeconfig)?;
        let wake = self.triggers.of(cluster.clone());
        let remote = Arc::new(Remote::open(
            &client,
            &self.fence,
            &self.system_namespace,
            digest.to_owned(),
            wake,
        ));
        live.insert(cluster_uid.to_owned(), Arc::clone(&remote));
        Ok(remote)
    }

    /// Closes the connection of a cluster that needs none for now.
    pub fn close(&self, cluster_uid: &str) {
        self.live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(cluster_uid);
    }

    /// How many connections are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether no connection is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
