//! Wakes the reconciler of a Cluster for things that no watch of the management cluster shows.

use futures::Stream;
use kube::core::ObjectMeta;
use sluice_core::cache::stores::OfCluster;
pub use sluice_core::cluster::ClusterRef;

use crate::queue::work_queue::Feed;

/// Why the reconciler of a Cluster is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeue {
    /// The Cluster.
    pub cluster: ClusterRef,
    /// Whether something has changed that the stores do not show, so that it has to be read.
    pub needs_read: bool,
}

/// Wakes Clusters. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Requeues(Feed<Requeue>);

impl Requeues {
    /// What is woken from now on: see [`Feed::listen`].
    pub fn listen(&self) -> impl Stream<Item = Requeue> + Send + Unpin + 'static + use<> {
        self.0.listen()
    }

    /// Wakes one Cluster for what the stores show.
    pub fn wake(&self, cluster: ClusterRef) {
        self.0.send(Requeue {
            cluster,
            needs_read: false,
        });
    }

    /// Wakes one Cluster because what its packages take their values from may be something else, which no store shows.
    pub fn enqueue_with_reads(&self, cluster: ClusterRef) {
        self.0.send(Requeue {
            cluster,
            needs_read: true,
        });
    }

    /// Wakes the Cluster that an object of kind `K` with this metadata belongs to.
    pub fn enqueue_owner<K: OfCluster>(&self, meta: &ObjectMeta) {
        if let Some(name) = K::cluster_in(meta) {
            self.wake(ClusterRef::new(
                meta.namespace.as_deref().unwrap_or_default(),
                &name,
            ));
        }
    }
}
