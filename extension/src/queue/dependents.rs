//! Dependencies of configurations, so that a change requeues exactly the dependent configurations.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures::{Stream, channel::mpsc};
use sluice_core::{
    providers::{Dependencies, Source},
    value_kinds::ConfigRef,
};

use crate::{lock::lock, queue::requeues::ClusterRef};

/// Dependencies of all configurations, by source. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Dependents(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    dependencies: Dependencies<ConfigRef>,
    queues: HashMap<Arc<str>, mpsc::UnboundedSender<ClusterRef>>,
}

impl Inner {
    /// Requeues a configuration in the queue of its kind, which merges duplicates.
    fn enqueue(&self, config: &ConfigRef) {
        if let Some(queue) = self.queues.get(&config.kind) {
            let _gone_at_shutdown = queue.unbounded_send(config.object.clone());
        }
    }
}

impl Dependents {
    /// Requeues the dependents of a Cluster.
    pub fn cluster_changed(&self, cluster: &ClusterRef) {
        self.changed(&[Source::cluster(cluster.namespace(), cluster.name())]);
    }

    /// Requeues the dependents of these sources.
    pub(crate) fn changed(&self, sources: &[Source]) {
        let inner = lock(&self.0);
        for config in sources.iter().flat_map(|source| inner.dependencies.on(source)) {
            inner.enqueue(config);
        }
    }

    /// Replaces the dependencies of a configuration.
    pub(crate) fn set(&self, config: &ConfigRef, sources: &[Source]) {
        lock(&self.0).dependencies.set(config, sources);
    }

    /// Adds a dependency of a configuration. Called before the source is read, so that no change is lost in between.
    pub(crate) fn add(&self, config: &ConfigRef, source: &Source) {
        lock(&self.0).dependencies.add(config, source);
    }

    /// Returns the requeues of a kind.
    pub(crate) fn requeues(&self, kind: &Arc<str>) -> impl Stream<Item = ClusterRef> + Send + use<> {
        let (sender, receiver) = mpsc::unbounded();
        lock(&self.0).queues.insert(Arc::clone(kind), sender);
        receiver
    }

    /// Requeues a configuration that has changed, or whose values a reconcile of its Cluster lacks.
    pub(crate) fn enqueue(&self, config: &ConfigRef) {
        lock(&self.0).enqueue(config);
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    fn config(kind: &str, name: &str) -> ConfigRef {
        ConfigRef {
            kind: kind.into(),
            object: ClusterRef::new("ns", name),
        }
    }

    #[test]
    fn a_change_requeues_current_dependents() {
        let dependents = Dependents::default();
        let mut antrea = Box::pin(dependents.requeues(&"Antrea".into()));
        let mut calico = Box::pin(dependents.requeues(&"Calico".into()));
        let (one, two) = (Source::cluster("ns", "one"), Source::cluster("ns", "two"));
        dependents.set(&config("Antrea", "a"), slice::from_ref(&one));
        dependents.set(&config("Calico", "b"), slice::from_ref(&one));
        dependents.add(&config("Calico", "b"), &two);

        dependents.changed(slice::from_ref(&two));
        assert_eq!(antrea.next().now_or_never(), None);
        assert_eq!(
            calico.next().now_or_never(),
            Some(Some(config("Calico", "b").object))
        );

        dependents.set(&config("Calico", "b"), &[two]);
        dependents.changed(slice::from_ref(&one));
        assert_eq!(
            antrea.next().now_or_never(),
            Some(Some(config("Antrea", "a").object))
        );
        assert_eq!(calico.next().now_or_never(), None);

        dependents.set(&config("Antrea", "a"), &[]);
        dependents.set(&config("Calico", "b"), &[]);
        dependents.changed(slice::from_ref(&one));
        assert_eq!(antrea.next().now_or_never(), None);
    }
}
