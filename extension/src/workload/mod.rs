//! Connections to workload clusters: one per Cluster and kubeconfig, open only while the cluster is hot.

mod client;
mod connection;
mod pace;
mod server;
mod tls;
mod transports;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use kube::Client;
use sluice_core::{
    kubeconfig::{Proxies, WorkloadKubeconfig},
    protocol::ParsedKubeconfig,
};

pub use connection::Remote;
pub use pace::Passing;

use client::connect;
use pace::Pace;
use transports::Transports;

use crate::{
    kube_client::{fence::Fence, middleware::Transport},
    lock::lock,
    queue::{
        dependents::Dependents,
        requeues::{ClusterRef, Requeues},
    },
};

/// Live connections, by UID of the Cluster.
pub struct Remotes {
    system_namespace: String,
    triggers: Requeues,
    /// Provider configurations: they re-read unwatched objects more often while their Cluster is connected.
    dependents: Dependents,
    fence: Fence,
    proxies: Proxies,
    transports: Transports,
    live: Mutex<HashMap<String, Arc<Remote>>>,
    /// Paces outlive connections: a server that forces frequent reconnects has a single pace.
    paces: Mutex<HashMap<String, Pace>>,
}

impl Remotes {
    /// Creates an empty set. PackageInstalls are watched in `system_namespace` of each workload cluster, and no write is sent there while
    /// `fence` is closed.
    #[must_use]
    pub fn new(system_namespace: String, triggers: Requeues, dependents: Dependents, fence: Fence) -> Self {
        Self {
            system_namespace,
            triggers,
            dependents,
            fence,
            proxies: Proxies::default(),
            transports: Transports::default(),
            live: Mutex::default(),
            paces: Mutex::default(),
        }
    }

    /// Connects through these proxies.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// Returns the connection of a cluster; opens a new one for a different kubeconfig.
    ///
    /// # Errors
    /// The kubeconfig has content that makes no valid client.
    pub fn open(
        &self,
        cluster_uid: &str,
        cluster: &ClusterRef,
        kubeconfig: &WorkloadKubeconfig,
        digest: &str,
    ) -> Result<Arc<Remote>, client::Error> {
        self.open_with(cluster_uid, cluster, digest, || {
            self.transport(cluster_uid, kubeconfig, digest)
        })
    }

    /// Returns the client of the connection with this kubeconfig, or else a new client.
    pub(crate) fn client(&self, cluster_uid: &str, by: &ParsedKubeconfig) -> Result<Client, client::Error> {
        let live = lock(&self.live).get(cluster_uid).cloned();
        let live = live.filter(|remote| remote.digest == by.digest);
        if let Some(remote) = live {
            return Ok(remote.client.clone());
        }
        let transport = self.transport(cluster_uid, &by.parsed, &by.digest)?;
        Ok(self.fence.guard(transport).into_client())
    }

    /// Returns the transport of a cluster for the kubeconfig with this digest.
    fn transport(
        &self,
        cluster_uid: &str,
        kubeconfig: &WorkloadKubeconfig,
        digest: &str,
    ) -> Result<Transport, client::Error> {
        let connect = || connect(kubeconfig, &self.proxies);
        self.transports.of(cluster_uid, digest, connect)
    }

    /// Opens a connection with the transport that `make` builds. Building it parses certificates, so no lock is held meanwhile.
    fn open_with(
        &self,
        cluster_uid: &str,
        cluster: &ClusterRef,
        digest: &str,
        make: impl FnOnce() -> Result<Transport, client::Error>,
    ) -> Result<Arc<Remote>, client::Error> {
        let is_same = |remote: &&Arc<Remote>| remote.digest == digest;
        if let Some(remote) = lock(&self.live).get(cluster_uid).filter(is_same) {
            return Ok(Arc::clone(remote));
        }
        let remote = self.connected(&make()?, cluster_uid, cluster, digest);
        let mut live = lock(&self.live);
        if let Some(meanwhile) = live.get(cluster_uid).filter(is_same) {
            return Ok(Arc::clone(meanwhile));
        }
        let before = live.insert(cluster_uid.to_owned(), Arc::clone(&remote));
        drop(live);
        // The old connection may be large.
        drop(before);
        self.dependents.cluster_changed(cluster);
        Ok(remote)
    }

    /// Returns the connection of the Cluster with this UID.
    pub(crate) fn get(&self, cluster_uid: &str) -> Option<Arc<Remote>> {
        lock(&self.live).get(cluster_uid).cloned()
    }

    /// Returns whether the Cluster with this UID has a connection.
    pub(crate) fn is_open(&self, cluster_uid: &str) -> bool {
        lock(&self.live).contains_key(cluster_uid)
    }

    fn connected(
        &self,
        transport: &Transport,
        cluster_uid: &str,
        cluster: &ClusterRef,
        digest: &str,
    ) -> Arc<Remote> {
        let pace = {
            let mut paces = lock(&self.paces);
            paces.retain(|uid, pace| uid == cluster_uid || !pace.is_over());
            let pace = paces
                .entry(cluster_uid.to_owned())
                .or_insert_with(|| Pace::new(cluster.clone(), self.triggers.clone()));
            pace.clone()
        };
        let digest = digest.to_owned();
        Arc::new(Remote::open(
            transport,
            &self.fence,
            &self.system_namespace,
            digest,
            pace,
        ))
    }

    /// Starts a reconcile of a Cluster. Until the returned guard is dropped, and a while longer, events of its workload cluster do not
    /// requeue it. `None` without an earlier connection.
    pub fn begin(&self, cluster_uid: &str) -> Option<Passing> {
        lock(&self.paces).get(cluster_uid).map(Pace::begin)
    }

    /// Closes the connection of a cluster that does not need one now.
    pub fn close(&self, cluster_uid: &str) {
        self.transports.forget(cluster_uid);
        let closed = lock(&self.live).remove(cluster_uid);
        // No lock is held any more.
        drop(closed);
    }
}

#[cfg(test)]
mod tests;
