//! The status service: what this replica knows of upgrades, over gRPC, as `proto/sluice/status/v1/status.proto` says.
//!
//! It has a listener and a thread of its own. It reads what hooks are answered from and writes nothing.

mod access;
mod answers;
mod follow;
mod message;
mod metrics;
mod page;
mod routes;
mod service;
mod streams;

use std::{fmt, sync::Arc, sync::Mutex};

use bytes::Bytes;
use kube::Client;
use sluice_core::{cache::stored_kind::StoredKind, gate::unsynced::Unsynced, status::SnapshotStore};
use tokio::sync::{SetOnce, watch};

use self::{access::Access, streams::Streams};
pub use self::{metrics::StatusMetrics, routes::Life};
use crate::{cache::stores::Stores, server::shares::Shares};

/// Answers with a page, or with one Cluster, that wait to be read. A user leaves as many to others as it takes.
const ANSWERS: usize = 16;

/// What the service answers from. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Status(Arc<Inner>);

struct Inner {
    /// Unset until the stores are being filled.
    world: SetOnce<World>,
    /// Set once every Cluster is on the board.
    filled: SetOnce<()>,
    /// Each Cluster as an encoded message, so that one costs about a kilobyte.
    board: Mutex<SnapshotStore<Bytes>>,
    /// Changes after the board did.
    changes: watch::Sender<u64>,
    streams: Streams,
    /// Answers by the names of users.
    answers: Shares<String>,
}

/// What is in memory, and who may see it.
struct World {
    stores: Stores,
    access: Access,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").finish_non_exhaustive()
    }
}

impl Status {
    /// A service that knows nothing yet and answers UNAVAILABLE.
    #[must_use]
    pub fn new(metrics: StatusMetrics) -> Self {
        Self(Arc::new(Inner {
            world: SetOnce::new(),
            filled: SetOnce::new(),
            board: Mutex::default(),
            changes: watch::Sender::new(0),
            streams: Streams::new(metrics),
            answers: Shares::of(ANSWERS),
        }))
    }

    /// From now on it follows `stores`, and asks the management API server, by `client`, who may see what. Callers decide how much is asked,
    /// so nothing else uses the connections of `client`.
    pub fn set_caches(&self, stores: Stores, client: Client) {
        let access = Access::new(client);
        let _known_before = self.0.world.set(World { stores, access });
    }

    /// Why nothing may be answered from memory, if there is a reason.
    fn unsynced(&self) -> Option<Unsynced> {
        match self.0.world.get().filter(|_| self.0.filled.get().is_some()) {
            Some(world) => Unsynced::of(world.stores.ages()),
            None => Some(Unsynced::Unlisted(StoredKind::Cluster)),
        }
    }
}

#[cfg(test)]
mod tests;
