//! Status service: upgrades known to this replica, over gRPC, see `proto/sluice/status/v1/status.proto`.
//!
//! It writes nothing. The process provides its [`Caches`], a client that authorizes callers, and the listener, which gives each request
//! its [`Connection`] and limits the time of an [`Unread`] response.

mod access;
mod answers;
mod connection;
mod follow;
mod message;
mod metrics;
mod page;
mod reauthorization;
mod reviews;
mod routes;
mod service;
mod snapshot_store;
mod streams;
mod uncached_callers;
mod view;

use std::{fmt, sync::Arc, sync::Mutex, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use kube::Client;
use sluice_core::{cluster::ClusterRef, limits::Shares};
use tokio::sync::{SetOnce, watch};

use self::{access::Access, snapshot_store::SnapshotStore, streams::Streams};
pub use self::{
    connection::{Connection, Unread},
    follow::Changed,
    metrics::StatusMetrics,
    routes::Lifecycle,
    view::{ClusterView, view},
};

/// Responses with a page or one Cluster that wait to be read. A user gets at most as many as remain for others.
const ANSWERS: usize = 16;

/// Time without anything from the management API server after which the service does not answer from its caches. Watches receive a
/// bookmark every minute.
const SILENT: Duration = Duration::from_secs(90);

/// Caches of the process, from which the service answers.
pub trait Caches: Send + Sync + 'static {
    /// Returns once the caches hold each Cluster, and whether it is managed.
    fn filled(&self) -> BoxFuture<'_, ()>;

    /// Returns all Clusters.
    fn clusters(&self) -> Vec<ClusterRef>;

    /// Returns the [`view()`] of a Cluster, if it exists.
    fn view(&self, cluster: &ClusterRef) -> Option<ClusterView>;

    /// Returns the time since anything has arrived from the management API server.
    fn silent_for(&self) -> Duration;
}

/// State of the service. Clones share it.
#[derive(Clone)]
pub struct Status(Arc<Inner>);

struct Inner {
    /// Unset until the watches of the caches start.
    sources: SetOnce<Sources>,
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
struct Sources {
    caches: Box<dyn Caches>,
    access: Access,
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
            sources: SetOnce::new(),
            filled: SetOnce::new(),
            board: Mutex::default(),
            changes: watch::Sender::new(0),
            streams: Streams::new(metrics),
            answers: Shares::of(ANSWERS),
        }))
    }

    /// Sets the caches, and the `client` that authorizes callers at the management API server. Callers determine the number of requests, so
    /// `client` has no other user, and limits the size of a response.
    pub fn set_caches(&self, caches: impl Caches, client: Client) {
        let sources = Sources {
            caches: Box::new(caches),
            access: Access::new(client),
        };
        let _known_before = self.0.sources.set(sources);
    }

    /// Returns the reason why the caches may not be used, if any.
    fn unusable(&self) -> Option<Unusable> {
        match self.0.sources.get().filter(|_| self.0.filled.get().is_some()) {
            Some(sources) if sources.caches.silent_for() <= SILENT => None,
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
