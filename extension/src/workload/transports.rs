//! Transports that clients of a workload cluster share.

use std::{collections::HashMap, sync::Mutex};

use crate::{
    kube_client::middleware::{Transport, WeakTransport},
    lock::lock,
};

/// Transports to workload API servers, by UID of the Cluster. All clients with a kubeconfig share one, with its connections and TLS
/// configuration, and none is kept without a client.
#[derive(Default)]
pub(super) struct Transports(Mutex<HashMap<String, Shared>>);

struct Shared {
    /// Digest of the kubeconfig.
    digest: String,
    transport: WeakTransport,
}

impl Transports {
    /// Returns the transport of a Cluster for the kubeconfig with this digest, or else that which `make` builds. Building it parses
    /// certificates, so no lock is held meanwhile.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn of<E>(
        &self,
        cluster_uid: &str,
        digest: &str,
        make: impl FnOnce() -> Result<Transport, E>,
    ) -> Result<Transport, E> {
        let used = |transports: &HashMap<String, Shared>| {
            let shared = transports.get(cluster_uid);
            shared
                .filter(|shared| shared.digest == digest)?
                .transport
                .upgrade()
        };
        let found = used(&lock(&self.0));
        if let Some(transport) = found {
            return Ok(transport);
        }
        let transport = make()?;
        let mut transports = lock(&self.0);
        if let Some(meanwhile) = used(&transports) {
            return Ok(meanwhile);
        }
        transports.retain(|_, shared| shared.transport.is_used());
        let shared = Shared {
            digest: digest.to_owned(),
            transport: transport.downgrade(),
        };
        transports.insert(cluster_uid.to_owned(), shared);
        Ok(transport)
    }

    /// Forgets the transport of a Cluster, so that its next client opens a new connection.
    pub(super) fn forget(&self, cluster_uid: &str) {
        lock(&self.0).remove(cluster_uid);
    }
}
