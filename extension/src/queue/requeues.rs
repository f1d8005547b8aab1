//! Requeues of Clusters for both of their controllers: that of packages and that of UpgradeGates.

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

/// Sender of requeues of Clusters. Clones share the queues.
#[derive(Debug, Clone, Default)]
pub struct Requeues {
    of_packages: Feed<Requeue>,
    of_gates: Feed<ClusterRef>,
}

impl Requeues {
    /// Returns the requeues for packages from now on, see [`Feed::listen`].
    pub fn listen(&self) -> impl Stream<Item = Requeue> + Send + Unpin + 'static + use<> {
        self.of_packages.listen()
    }

    /// Returns the requeues for UpgradeGates from now on, see [`Feed::listen`].
    pub fn listen_gated(&self) -> impl Stream<Item = ClusterRef> + Send + Unpin + 'static + use<> {
        self.of_gates.listen()
    }

    /// Requeues a Cluster for its packages, after a change that the stores show.
    pub fn enqueue(&self, cluster: ClusterRef) {
        self.of_packages.send(Requeue {
            cluster,
            needs_read: false,
        });
    }

    /// Requeues a Cluster for its UpgradeGates.
    pub fn enqueue_gated(&self, cluster: ClusterRef) {
        self.of_gates.send(cluster);
    }

    /// Requeues a Cluster for both, after a change of itself, of its control plane or of its workers.
    pub fn enqueue_for_all(&self, cluster: ClusterRef) {
        self.enqueue_gated(cluster.clone());
        self.enqueue(cluster);
    }

    /// Requeues a Cluster whose values sources may have changed, which no store shows.
    pub fn enqueue_with_reads(&self, cluster: ClusterRef) {
        self.of_packages.send(Requeue {
            cluster,
            needs_read: true,
        });
    }

    /// Requeues the Cluster that an object of kind `K` with this metadata belongs to, for its packages.
    pub fn enqueue_owner<K: OfCluster>(&self, meta: &ObjectMeta) {
        if let Some(cluster) = owner::<K>(meta) {
            self.enqueue(cluster);
        }
    }

    /// Requeues the Cluster that an object of kind `K` with this metadata belongs to, for both.
    pub fn enqueue_owner_for_all<K: OfCluster>(&self, meta: &ObjectMeta) {
        if let Some(cluster) = owner::<K>(meta) {
            self.enqueue_for_all(cluster);
        }
    }
}

/// Returns the Cluster that an object of kind `K` with this metadata belongs to.
fn owner<K: OfCluster>(meta: &ObjectMeta) -> Option<ClusterRef> {
    let name = K::cluster_in(meta)?;
    Some(ClusterRef::new(
        meta.namespace.as_deref().unwrap_or_default(),
        &name,
    ))
}
