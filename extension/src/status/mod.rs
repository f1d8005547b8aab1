//! Status service: upgrades known to this replica, over gRPC, see `proto/sluice/status/v1/status.proto`.
//!
//! It has a listener and a thread of its own. It reads the caches of the hooks and writes nothing.

mod access;
mod answers;
mod follow;
mod message;
mod metrics;
mod page;
mod routes;
mod service;
mod streams;

use std::{fmt, sync::Arc, sync::Mutex, time::Duration};

use bytes::Bytes;
use kube::Client;
use sluice_core::{limits::Shares, status::SnapshotStore};
use tokio::sync::{SetOnce, watch};

use self::{access::Access, streams::Streams};
pub use self::{metrics::StatusMetrics, routes::Lifecycle};
use crate::{cache::stores::Stores, kube_client::last_response::LastResponse};

/// Responses with a page or one Cluster that wait to be read. A user gets at most as many as remain for others.
const ANSWERS: usize = 16;

/// Time without anything from the management API server after which the service does not answer from its caches. Watches receive a
/// bookmark every minute.
const SILENT: Duration = Duration::from_secs(90);

/// State of the service. Clones share it.
#[derive(Clone)]
pub struct Status(Arc<Inner>);

struct Inner {
    /// Caches; unset until their watches start.
    caches: SetOnce<Caches>,
    /// Set once the snapshot store holds every Cluster.
    filled: SetOnce<()>,
    /// Snapshot of each Cluster as an encoded message, about a kilobyte each.
    board: Mutex<SnapshotStore<Bytes>>,
    /// Revision, which changes after the snapshot store.
    changes: watch::Sender<u64>,
    streams: Streams,
    /// Unread responses by user name.
    answers: Shares<String>,
}

/// Caches, and the authorization of callers.
struct Caches {
    stores: Stores,
    access: Access,
    last_response: LastResponse,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").finish_non_exhaustive()
    }
}

impl Status {
    /// Creates a service without caches, which responds with UNAVAILABLE.
    #[must_use]
    pub fn new(metrics: StatusMetrics) -> Self {
        Self(Arc::new(Inner {
            caches: SetOnce::new(),
            filled: SetOnce::new(),
            board: Mutex::default(),
            changes: watch::Sender::new(0),
            streams: Streams::new(metrics),
            answers: Shares::of(ANSWERS),
        }))
    }

    /// Sets the caches, and the `client` that authorizes callers at the management API server. Callers determine the number of requests, so
    /// `client` has no other user.
    pub fn set_caches(&self, stores: Stores, client: Client, last_response: LastResponse) {
        let caches = Caches {
            stores,
            access: Access::new(client),
            last_response,
        };
        let _known_before = self.0.caches.set(caches);
    }

    /// Returns the reason why the caches may not be used, if any.
    fn unusable(&self) -> Option<Unusable> {
        match self.0.caches.get().filter(|_| self.0.filled.get().is_some()) {
            Some(caches) if caches.last_response.silent_for() <= SILENT => None,
            Some(_) => Some(Unusable::Silent),
            None => Some(Unusable::Unlisted),
        }
    }
}

/// Reason why the caches may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusable {
    /// Not all Clusters are listed yet.
    Unlisted,
    /// The management API server is [`SILENT`].
    Silent,
}

#[cfg(test)]
mod tests;
