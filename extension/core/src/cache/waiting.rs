//! Clusters that wait until more is known of a kind.

use std::{collections::HashMap, sync::Arc};

use crate::cache::named::NamedKind;
use crate::cluster::ClusterRef;

/// So many wait at most. One beyond is not woken, and reconciled again after its own time.
const MOST: usize = 16 * 1024;

/// Which kind each Cluster waits for. It is one, so that there are not more entries than Clusters.
#[derive(Debug, Default)]
pub struct Waiting(HashMap<ClusterRef, Arc<NamedKind>>);

impl Waiting {
    /// A Cluster that is in memory waits for a kind from now on.
    pub fn add(&mut self, cluster: &ClusterRef, kind: &Arc<NamedKind>) {
        if self.0.len() < MOST || self.0.contains_key(cluster) {
            self.0.insert(cluster.clone(), Arc::clone(kind));
        }
    }

    /// More is known of a kind: those that wait for it do so no more, and are returned.
    #[must_use]
    pub fn take(&mut self, kind: &NamedKind) -> Vec<ClusterRef> {
        let taken = self.0.extract_if(|_, of| **of == *kind);
        taken.map(|(cluster, _)| cluster).collect()
    }

    /// Forgets the Clusters that are not there any more, of a namespace and a name.
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
    fn those_that_are_gone_wait_no_more() {
        let mut waiting = Waiting::default();
        waiting.add(&cluster("one"), &kind("A"));
        waiting.add(&cluster("two"), &kind("A"));
        waiting.forget_gone(|namespace, name| (namespace, name) == ("team-a", "one"));
        assert_eq!(waiting.take(&kind("A")), [cluster("one")]);
    }

    #[test]
    fn however_many_there_are_so_many_wait() {
        let (mut waiting, of) = (Waiting::default(), kind("A"));
        for number in 0..2 * MOST {
            waiting.add(&cluster(&number.to_string()), &of);
        }
        assert_eq!(waiting.0.len(), MOST);
        waiting.add(&cluster("0"), &kind("B"));
        assert_eq!(
            waiting.take(&kind("B")),
            [cluster("0")],
            "one that waits may wait for another"
        );
    }
}
