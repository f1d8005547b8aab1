//! What is remembered of all Clusters from one pass to the next.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use super::LocalState;
use crate::packages::build::Owner;

/// The memories of this process.
#[derive(Debug, Default)]
pub struct LocalStates {
    /// By UID of each Cluster that is managed.
    managed: HashMap<String, LocalState>,
    /// Namespaces and names of Clusters that were woken since their last pass began.
    woken: HashSet<(String, String)>,
}

impl LocalStates {
    /// Something has happened to this Cluster that its next pass cannot see in the stores.
    pub fn woke(&mut self, namespace: &str, name: &str) {
        self.woken.insert((namespace.to_owned(), name.to_owned()));
    }

    /// A pass over this Cluster begins, which is managed. Until it comes to its end, what has woken the Cluster is not forgotten.
    pub fn begin(&mut self, owner: &Owner) -> LocalState {
        let memory = self.managed.entry(owner.uid.clone()).or_default();
        if self.woken.remove(&(owner.namespace.clone(), owner.name.clone())) {
            memory.wake();
        }
        memory.clone()
    }

    /// What is remembered of the Cluster with this UID.
    #[must_use]
    pub fn get(&self, uid: &str) -> LocalState {
        self.managed.get(uid).cloned().unwrap_or_default()
    }

    /// Remembers this of the Cluster with this UID.
    pub fn keep(&mut self, uid: &str, memory: LocalState) {
        self.managed.insert(uid.to_owned(), memory);
    }

    /// The status of the Cluster with this UID was written `now`, outside of a pass.
    pub fn wrote(&mut self, uid: &str, now: Instant) {
        self.managed.entry(uid.to_owned()).or_default().written = Some(now);
    }

    /// Forgets the Cluster with this UID. Says whether it was managed until now.
    pub fn forget(&mut self, uid: &str) -> bool {
        self.managed.remove(uid).is_some()
    }

    /// UIDs of the Clusters that are managed.
    pub fn managed(&self) -> impl Iterator<Item = &str> {
        self.managed.keys().map(String::as_str)
    }

    /// Forgets what has woken Clusters that are not there.
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
    fn a_cluster_that_was_woken_does_not_rest() {
        let (mut memories, now) = (LocalStates::default(), Instant::now());
        let mut memory = memories.begin(&owner());
        memory.rest(Some(PlannedFrom::default()));
        memories.keep("uid", memory);
        let rests = |memories: &mut LocalStates| memories.begin(&owner()).rests(PlannedFrom::default(), true);
        assert!(rests(&mut memories));
        memories.woke("team-b", "one");
        assert!(rests(&mut memories), "another one was woken");
        memories.woke("team-a", "one");
        assert!(!rests(&mut memories));
        assert!(!rests(&mut memories), "the pass did not come to its end");
        memories.wrote("uid", now);
        assert_eq!(memories.get("uid").written, Some(now));
    }

    #[test]
    fn clusters_that_are_gone_are_forgotten() {
        let mut memories = LocalStates::default();
        memories.begin(&owner());
        memories.woke("team-a", "one");
        memories.forget_requeues(|namespace, name| (namespace, name) == ("team-a", "one"));
        assert_eq!(memories.woken.len(), 1);
        assert!(memories.managed().eq(["uid"]));
        memories.forget_requeues(|_, _| false);
        assert_eq!(memories.woken.len(), 0);
        assert!(memories.forget("uid"));
        assert!(!memories.forget("uid"), "it is managed no more");
    }
}
