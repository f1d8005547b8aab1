//! Local states of all Clusters, kept between reconciles.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use super::LocalState;
use crate::packages::build::Owner;

/// Local states of this process.
#[derive(Debug, Default)]
pub struct LocalStates {
    /// Local state of each managed Cluster, by UID.
    managed: HashMap<String, LocalState>,
    /// Namespaces and names of Clusters requeued since the start of their last reconcile.
    woken: HashSet<(String, String)>,
}

impl LocalStates {
    /// Notes a requeue of this Cluster for a change that the stores do not show to its next reconcile.
    pub fn woke(&mut self, namespace: &str, name: &str) {
        self.woken.insert((namespace.to_owned(), name.to_owned()));
    }

    /// Returns the local state for a reconcile of this managed Cluster. A requeue stays in effect until a reconcile completes.
    pub fn begin(&mut self, owner: &Owner) -> LocalState {
        let memory = self.managed.entry(owner.uid.clone()).or_default();
        if self.woken.remove(&(owner.namespace.clone(), owner.name.clone())) {
            memory.wake();
        }
        memory.clone()
    }

    /// Returns the local state of the Cluster with this UID.
    #[must_use]
    pub fn get(&self, uid: &str) -> LocalState {
        self.managed.get(uid).cloned().unwrap_or_default()
    }

    /// Stores the local state of the Cluster with this UID.
    pub fn keep(&mut self, uid: &str, memory: LocalState) {
        self.managed.insert(uid.to_owned(), memory);
    }

    /// Notes a status write for the Cluster with this UID at `now`, outside of a reconcile.
    pub fn wrote(&mut self, uid: &str, now: Instant) {
        self.managed.entry(uid.to_owned()).or_default().written = Some(now);
    }

    /// Removes the Cluster with this UID. Returns whether it was managed until now.
    pub fn forget(&mut self, uid: &str) -> bool {
        self.managed.remove(uid).is_some()
    }

    /// Returns the UIDs of all managed Clusters.
    pub fn managed(&self) -> impl Iterator<Item = &str> {
        self.managed.keys().map(String::as_str)
    }

    /// Removes requeues of Clusters that do not exist.
    pub fn forget_requeues(&mut self, is_there: impl Fn(&str, &str) -> bool) {
        self.woken.retain(|(namespace, name)| is_there(namespace, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::cluster::local_state::PlannedFrom;

    fn owner() -> Owner {
        Owner {
            name: "one".to_owned(),
            namespace: "team-a".to_owned(),
            uid: "uid".to_owned(),
        }
    }

    #[test]
    fn a_requeued_cluster_does_not_rest() {
        let (mut memories, now) = (LocalStates::default(), Instant::now());
        let mut memory = memories.begin(&owner());
        memory.rest(Some(PlannedFrom::default()));
        memories.keep("uid", memory);
        let rests = |memories: &mut LocalStates| memories.begin(&owner()).rests(PlannedFrom::default(), true);
        assert!(rests(&mut memories));
        memories.woke("team-b", "one");
        assert!(rests(&mut memories), "another Cluster was requeued");
        memories.woke("team-a", "one");
        assert!(!rests(&mut memories));
        assert!(!rests(&mut memories), "the reconcile did not complete");
        memories.wrote("uid", now);
        assert_eq!(memories.get("uid").written, Some(now));
    }

    #[test]
    fn deleted_clusters_are_removed() {
        let mut memories = LocalStates::default();
        memories.begin(&owner());
        memories.woke("team-a", "one");
        memories.forget_requeues(|namespace, name| (namespace, name) == ("team-a", "one"));
        assert_eq!(memories.woken.len(), 1);
        assert!(memories.managed().eq(["uid"]));
        memories.forget_requeues(|_, _| false);
        assert_eq!(memories.woken.len(), 0);
        assert!(memories.forget("uid"));
        assert!(!memories.forget("uid"), "it is no longer managed");
    }
}
