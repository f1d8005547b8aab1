//! Wakes the reconciler of a Cluster for things that no watch of the management cluster shows.

use futures::Stream;
use kube::runtime::reflector::ObjectRef;
use sluice_crds::foreign::Cluster;
use tokio::sync::mpsc;

/// Names one Cluster.
pub type ClusterRef = ObjectRef<Cluster>;

/// The sending side. Unbounded: the controller takes every item at once and merges those of one Cluster.
#[derive(Debug, Clone)]
pub struct Triggers(mpsc::UnboundedSender<ClusterRef>);

impl Triggers {
    /// The sending side and the stream that the controller reads.
    pub fn new() -> (Self, impl Stream<Item = ClusterRef> + Send + 'static) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let stream = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|cluster| (cluster, receiver))
        });
        (Self(sender), stream)
    }

    /// Wakes one Cluster. Nobody listens while the process ends; that is no error.
    pub fn wake(&self, cluster: ClusterRef) {
        let _gone_at_shutdown = self.0.send(cluster);
    }

    /// The trigger of one Cluster.
    #[must_use]
    pub fn of(&self, cluster: ClusterRef) -> Wake {
        Wake {
            triggers: self.clone(),
            cluster,
        }
    }
}

/// Wakes one Cluster.
#[derive(Debug, Clone)]
pub struct Wake {
    triggers: Triggers,
    cluster: ClusterRef,
}

impl Wake {
    /// Wakes it.
    pub fn wake(&self) {
        self.triggers.wake(self.cluster.clone());
    }
}
