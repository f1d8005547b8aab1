//! Requeues of Clusters for changes that no watch of the management cluster shows.

use futures::Stream;
use kube::core::ObjectMeta;
use sluice_core::cache::stores::OfCluster;
pub use sluice_core::cluster::ClusterRef;

use crate::queue::work_queue::Feed;

/// Requeue of one Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue {
    /// Cluster to reconcile.
    pub cluster: ClusterRef,
    /// Whether the change is missing in the stores, so that the reconcile has to read it.
    pub needs_read: bool,
}

/// Sender of requeues of Clusters. Clones share the queue.
#[derive(Debug, Clone, Default)]
pub struct Requeues(Feed<Requeue>);

impl Requeues {
    /// Returns the requeues from now on, see [`Feed::listen`].
    pub fn listen(&self) -> impl Stream<Item = Requeue> + Send + Unpin + 'static + use<> {
        self.0.listen()
    }

    /// Requeues a Cluster after a change that the stores show.
    pub fn enqueue(&self, cluster: ClusterRef) {
        self.0.send(Requeue {
            cluster,
            needs_read: false,
        });
    }

    /// Requeues a Cluster whose values sources may have changed, which no store shows.
    pub fn enqueue_with_reads(&self, cluster: ClusterRef) {
        self.0.send(Requeue {
            cluster,
            needs_read: true,
        });
    }

    /// Requeues the Cluster that an object of kind `K` with this metadata belongs to.
    pub fn enqueue_owner<K: OfCluster>(&self, meta: &ObjectMeta) {
        if let Some(name) = K::cluster_in(meta) {
            self.enqueue(ClusterRef::new(
                meta.namespace.as_deref().unwrap_or_default(),
                &name,
            ));
        }
    }
}
