//! Clients of workload clusters, kept between the reconciles of a hot Cluster.
//!
//! A gate reads a few objects every few seconds during an upgrade, and nothing between upgrades. The watches of a hold live no longer than
//! the client that they use.

mod kinds;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kube::Client;
use sluice_core::protocol::{Failure, Key, ParsedKubeconfig, Server};

use self::kinds::Kinds;

use super::watches::Watches;
use crate::{
    lock::lock,
    queue::requeues::{ClusterRef, Requeues},
    workload::Remotes,
};

/// Time without use after which a client is dropped.
const UNUSED: Duration = Duration::from_mins(10);

/// Time to the next reconcile from which a Cluster counts as cold, so that its client is dropped. A Cluster that is being upgraded is
/// reconciled every few seconds.
const COLD: Duration = Duration::from_mins(1);

/// Kept clients, by UID of the Cluster.
pub(crate) struct Clients {
    remotes: Arc<Remotes>,
    kept: Mutex<HashMap<String, Kept>>,
    /// Discovered kinds of the management cluster.
    management: Arc<Kinds>,
    /// Last failure of each workload cluster that did not respond, by UID of the Cluster.
    silent: Mutex<HashMap<String, Failure>>,
}

struct Kept {
    /// Digest of the kubeconfig of the client.
    digest: String,
    client: Client,
    used: Instant,
    /// Discovered kinds of the workload cluster.
    kinds: Arc<Kinds>,
    /// Watches of checked objects, while there are any.
    watches: Option<Watches>,
}

impl Clients {
    /// Creates an empty set. A client of `remotes` with the same kubeconfig is shared.
    pub(crate) fn new(remotes: Arc<Remotes>) -> Self {
        Self {
            remotes,
            kept: Mutex::default(),
            management: Arc::default(),
            silent: Mutex::default(),
        }
    }

    /// Returns the client of a Cluster, a new one for another kubeconfig.
    ///
    /// # Errors
    /// The kubeconfig has content that makes no valid client: the name of the field and its fault.
    pub(super) fn client(&self, uid: &str, by: &ParsedKubeconfig, now: Instant) -> Result<Client, String> {
        let make = || self.remotes.client(uid, by).map_err(|error| error.to_string());
        self.client_with(uid, &by.digest, now, make)
    }

    /// Returns the client of a Cluster, or keeps the one that `make` builds. Building it parses certificates, so no lock is held meanwhile.
    fn client_with(
        &self,
        uid: &str,
        digest: &str,
        now: Instant,
        make: impl FnOnce() -> Result<Client, String>,
    ) -> Result<Client, String> {
        if let Some(kept) = lock(&self.kept).get_mut(uid)
            && kept.digest == digest
        {
            kept.used = now;
            return Ok(kept.client.clone());
        }
        let client = make()?;
        let kept = Kept {
            digest: digest.to_owned(),
            client: client.clone(),
            used: now,
            kinds: Arc::default(),
            watches: None,
        };
        let before = lock(&self.kept).insert(uid.to_owned(), kept);
        // No lock is held any more.
        drop(before);
        Ok(client)
    }

    /// Watches these objects of a Cluster with a kept client, and no others. Their changes requeue the Cluster.
    pub(super) fn watch(&self, uid: &str, cluster: &ClusterRef, watched: &[Key], triggers: &Requeues) {
        if watched.is_empty() {
            self.unwatch(uid);
        } else if let Some(kept) = lock(&self.kept).get_mut(uid) {
            let (client, open) = (&kept.client, &mut kept.watches);
            let new = || Watches::new(cluster.clone(), client, triggers.clone());
            open.get_or_insert_with(new).set(watched);
        }
    }

    /// Ends the watches of a Cluster.
    pub(super) fn unwatch(&self, uid: &str) {
        let ended = lock(&self.kept).get_mut(uid).map(|kept| kept.watches.take());
        // No lock is held any more.
        drop(ended);
    }

    /// Returns the discovered kinds of a server. Those of a workload cluster are kept with its client.
    pub(super) fn kinds(&self, server: Server, uid: &str) -> Arc<Kinds> {
        match server {
            Server::Management => Arc::clone(&self.management),
            Server::Workload => {
                let kept = lock(&self.kept);
                kept.get(uid)
                    .map(|kept| Arc::clone(&kept.kinds))
                    .unwrap_or_default()
            }
        }
    }

    /// Drops the client of a Cluster whose next reconcile without an event is in this time, if that is long.
    pub(super) fn rests(&self, uid: &str, again: Option<Duration>) {
        if again.is_none_or(|again| again >= COLD) {
            self.forget(uid);
        }
    }

    /// Notes that the workload cluster of a Cluster responded, or its failure if it did not.
    pub(super) fn heard(&self, uid: &str, failure: Option<Failure>) {
        let mut silent = lock(&self.silent);
        match failure {
            Some(failure) => drop(silent.insert(uid.to_owned(), failure)),
            None => drop(silent.remove(uid)),
        }
    }

    /// Returns the last failure of a workload cluster that did not respond.
    pub(super) fn silence(&self, uid: &str) -> Option<Failure> {
        lock(&self.silent).get(uid).cloned()
    }

    /// Keeps this client for a Cluster with this kubeconfig.
    #[cfg(test)]
    pub(super) fn adopt(&self, uid: &str, digest: &str, client: Client) {
        let made = self.client_with(uid, digest, crate::clock::now(), || Ok(client));
        assert!(made.is_ok());
    }

    /// Drops the client of a Cluster.
    pub(super) fn forget(&self, uid: &str) {
        let dropped = lock(&self.kept).remove(uid);
        drop(dropped);
    }

    /// Drops the clients that were not used for a while.
    pub(super) fn forget_unused(&self, now: Instant) {
        let is_unused = |kept: &Kept| now.duration_since(kept.used) >= UNUSED;
        let dropped: Vec<_> = {
            let mut kept = lock(&self.kept);
            kept.extract_if(|_, kept| is_unused(kept)).collect()
        };
        drop(dropped);
    }

    /// Returns the number of kept clients.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.kept).len()
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::protocol::ReadResult;

    use super::*;
    use crate::{
        clock::now,
        controllers::bootstrap::object_server::ObjectServer,
        kube_client::fence::Fence,
        queue::{dependents::Dependents, requeues::Requeues},
    };

    fn clients() -> Clients {
        let remotes = Remotes::new(
            "system".to_owned(),
            Requeues::default(),
            Dependents::default(),
            Fence::open(),
        );
        Clients::new(Arc::new(remotes))
    }

    /// Uses the client of a Cluster with this kubeconfig. Returns whether it was built.
    fn builds(clients: &Clients, uid: &str, digest: &str, now: Instant) -> bool {
        let mut is_built = false;
        let client = clients.client_with(uid, digest, now, || {
            is_built = true;
            Ok(ObjectServer::default().client())
        });
        assert!(client.is_ok());
        is_built
    }

    #[tokio::test]
    async fn a_hot_cluster_keeps_one_client() {
        let (clients, began) = (clients(), now());
        assert!(builds(&clients, "uid", "a", began));
        assert!(!builds(&clients, "uid", "a", began));
        assert!(builds(&clients, "uid", "b", began), "its kubeconfig has changed");
        assert_eq!(clients.len(), 1);
        clients.rests("uid", Some(Duration::from_secs(5)));
        assert!(!builds(&clients, "uid", "b", began));
    }

    /// Another kubeconfig may lead to another API server.
    #[tokio::test]
    async fn kinds_are_kept_with_the_client() {
        let (clients, began) = (clients(), now());
        let knows = |server| {
            let kinds = clients.kinds(server, "uid");
            kinds.get("apps/v1", "DaemonSet", began).is_some()
        };
        builds(&clients, "uid", "a", began);
        let of_workload = clients.kinds(Server::Workload, "uid");
        of_workload.keep("apps/v1", "DaemonSet", ReadResult::Absent, began);
        assert!(knows(Server::Workload) && !knows(Server::Management));
        builds(&clients, "uid", "b", began);
        assert!(!knows(Server::Workload));
    }

    #[tokio::test]
    async fn a_settled_cluster_keeps_none() {
        let (clients, began) = (clients(), now());
        for again in [Some(Duration::from_mins(10)), None] {
            builds(&clients, "uid", "a", began);
            clients.rests("uid", again);
            assert_eq!(clients.len(), 0, "{again:?}");
        }
    }

    #[tokio::test]
    async fn unused_clients_are_dropped() {
        let (clients, began) = (clients(), now());
        for uid in ["a", "b"] {
            builds(&clients, uid, "a", began);
        }
        assert!(!builds(&clients, "b", "a", began + UNUSED / 2));
        clients.forget_unused(began + UNUSED);
        assert_eq!(clients.len(), 1);
        assert!(!builds(&clients, "b", "a", began + UNUSED), "it was used since");
        clients.forget("b");
        assert_eq!(clients.len(), 0);
    }

    #[tokio::test]
    async fn a_kubeconfig_without_a_client_keeps_none() {
        let clients = clients();
        let refused = clients.client_with("uid", "a", now(), || Err("field server is not a URL".to_owned()));
        assert_eq!(refused.err().as_deref(), Some("field server is not a URL"));
        assert_eq!(clients.len(), 0);
    }
}
