//! Clusters that wait for a kind.

use std::{collections::HashMap, sync::Arc};

use crate::cache::named::NamedKind;
use crate::cluster::ClusterRef;

/// Limit of waiting Clusters. A Cluster beyond it is requeued only at its own resync.
const MOST: usize = 16 * 1024;

/// Kind that each Cluster waits for. One kind per Cluster bounds the number of entries by the number of Clusters.
#[derive(Debug, Default)]
pub struct Waiting(HashMap<ClusterRef, Arc<NamedKind>>);

impl Waiting {
    /// Adds a cached Cluster that waits for a kind.
    pub fn add(&mut self, cluster: &ClusterRef, kind: &Arc<NamedKind>) {
        if self.0.len() < MOST || self.0.contains_key(cluster) {
            self.0.insert(cluster.clone(), Arc::clone(kind));
        }
    }

    /// Removes and returns the Clusters that wait for a kind, after its state changed.
    #[must_use]
    pub fn take(&mut self, kind: &NamedKind) -> Vec<ClusterRef> {
        let taken = self.0.extract_if(|_, of| **of == *kind);
        taken.map(|(cluster, _)| cluster).collect()
    }

    /// Drops Clusters for which `is_there` returns false, by namespace and name.
    pub fn forget_gone(&mut self, is_there: impl Fn(&str, &str) -> bool) {
        self.0
            .retain(|cluster, _| is_there(cluster.namespace(), cluster.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Arc<NamedKind> {
        Arc::new(NamedKind::given("a.example.com", name))
    }

    fn cluster(name: &str) -> ClusterRef {
        ClusterRef::new("team-a", name)
    }

    #[test]
    fn a_cluster_waits_for_one_kind() {
        let mut waiting = Waiting::default();
        waiting.add(&cluster("one"), &kind("A"));
        waiting.add(&cluster("two"), &kind("A"));
        waiting.add(&cluster("one"), &kind("B"));
        assert_eq!(waiting.take(&kind("A")), [cluster("two")]);
        assert_eq!(waiting.take(&kind("A")), []);
        assert_eq!(waiting.take(&kind("B")), [cluster("one")]);
        assert_eq!(waiting.0.len(), 0);
    }

    #[test]
    fn deleted_clusters_do_not_wait() {
        let mut waiting = Waiting::default();
        waiting.add(&cluster("one"), &kind("A"));
        waiting.add(&cluster("two"), &kind("A"));
        waiting.forget_gone(|namespace, name| (namespace, name) == ("team-a", "one"));
        assert_eq!(waiting.take(&kind("A")), [cluster("one")]);
    }

    #[test]
    fn the_number_of_waiting_clusters_is_bounded() {
        let (mut waiting, of) = (Waiting::default(), kind("A"));
        for number in 0..2 * MOST {
            waiting.add(&cluster(&number.to_string()), &of);
        }
        assert_eq!(waiting.0.len(), MOST);
        waiting.add(&cluster("0"), &kind("B"));
        assert_eq!(
            waiting.take(&kind("B")),
            [cluster("0")],
            "a waiting Cluster may wait for another kind"
        );
    }
}
