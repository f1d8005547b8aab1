//! UID of the management cluster: that of its namespace `kube-system`. It tells whether a kubeconfig leads to the management API server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use sluice_core::{error_chain::error_chain, limits::Backoff};
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};

use super::rollbacks::Restarts;
use crate::clock::now;

/// Delays between the attempts to read the namespace.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// UID of the management cluster, once it was read. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ManagementUid(Arc<watch::Sender<Option<Arc<str>>>>);

impl ManagementUid {
    /// Returns a UID that was read before.
    #[cfg(test)]
    pub(crate) fn of(uid: &str) -> Self {
        let known = Self::default();
        known.0.send_replace(Some(uid.into()));
        known
    }

    /// Returns the UID, if it is known.
    #[must_use]
    pub fn get(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Waits until the UID is known.
    pub async fn known(&self) {
        let mut uid = self.0.subscribe();
        // The sender lives as long as this value.
        let _known = uid.wait_for(Option::is_some).await;
    }

    /// Reads the UID with retries until it is known, and again after each restart of the watches: another API server may have taken over.
    pub(crate) async fn follow(&self, client: &Client, mut restarts: Restarts) {
        loop {
            let uid = self.read(client).await;
            info!(uid, "Read UID of the management cluster");
            self.0.send_replace(Some(uid.into()));
            restarts.next().await;
            self.0.send_replace(None);
        }
    }

    async fn read(&self, client: &Client) -> String {
        let namespaces = Api::<Namespace>::all(client.clone());
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        loop {
            let error = match namespaces.get_metadata("kube-system").await {
                Ok(namespace) => match namespace.uid() {
                    Some(uid) => return uid,
                    None => "it has none".to_owned(),
                },
                Err(error) => error_chain(&error),
            };
            warn!(%error, "Failed to read UID of namespace kube-system of the management cluster");
            sleep(backoff.failed(now())).await;
        }
    }
}
