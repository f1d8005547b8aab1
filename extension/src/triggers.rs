//! Wakes the reconciler of a Cluster for things that no watch of the management cluster shows.

use std::sync::{Arc, OnceLock};

use futures::{Stream, channel::mpsc};
use kube::runtime::reflector::ObjectRef;
use sluice_core::stores::OfCluster;
use sluice_crds::foreign::Cluster;

/// Names one Cluster.
pub type ClusterRef = ObjectRef<Cluster>;

/// Why the reconciler of a Cluster is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// The Cluster.
    pub cluster: ClusterRef,
    /// Whether something has changed that the stores do not show, so that it has to be read.
    pub needs_read: bool,
}

/// The sending side. Before [`Self::listen`] nothing is kept: a replica that does not lead may run for months, and
/// a reconciler begins with every Cluster anyway.
///
/// Unbounded from then on: the controller takes every item at once and merges those of one Cluster.
#[derive(Debug, Clone, Default)]
pub struct Triggers(Arc<OnceLock<mpsc::UnboundedSender<Trigger>>>);

impl Triggers {
    /// What is woken from now on. The first caller gets it all, a later one nothing.
    pub fn listen(&self) -> impl Stream<Item = Trigger> + Send + 'static + use<> {
        let (sender, receiver) = mpsc::unbounded();
        // The sender of a later caller is dropped here, which ends its stream.
        let _listened_before = self.0.set(sender);
        receiver
    }

    /// Wakes one Cluster for what the stores show.
    pub fn wake(&self, cluster: ClusterRef) {
        self.send(Trigger {
            cluster,
            needs_read: false,
        });
    }

    /// Wakes one Cluster because what its packages take their values from may be something else, which no store shows.
    pub fn wake_to_read(&self, cluster: ClusterRef) {
        self.send(Trigger {
            cluster,
            needs_read: true,
        });
    }

    /// There is no reconciler before this process leads and while it ends; that is no error.
    fn send(&self, trigger: Trigger) {
        if let Some(sender) = self.0.get() {
            let _gone_at_shutdown = sender.unbounded_send(trigger);
        }
    }

    /// Wakes the Cluster that an object belongs to.
    pub fn wake_of(&self, object: &impl OfCluster) {
        if let Some(name) = object.cluster_name() {
            self.wake(ObjectRef::new(&name).within(&object.namespace().unwrap_or_default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    #[test]
    fn a_replica_that_does_not_listen_keeps_nothing() {
        let triggers = Triggers::default();
        for number in 0..1000 {
            triggers.wake(ObjectRef::new(&format!("early-{number}")));
        }
        let mut woken = Box::pin(triggers.listen());
        assert!(woken.next().now_or_never().is_none(), "nothing was kept");
        triggers.wake(ObjectRef::new("late"));
        let first = woken.next().now_or_never().flatten();
        assert_eq!(first.map(|trigger| trigger.cluster.name), Some("late".to_owned()));
    }

    #[test]
    fn who_listens_later_gets_nothing() {
        let triggers = Triggers::default();
        let mut first = Box::pin(triggers.listen());
        let mut second = Box::pin(triggers.listen());
        triggers.wake(ObjectRef::new("one"));
        assert_eq!(second.next().now_or_never(), Some(None));
        assert!(first.next().now_or_never().flatten().is_some());
    }
}
