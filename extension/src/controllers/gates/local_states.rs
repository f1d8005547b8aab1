//! Local states of gated Clusters, kept between reconciles.

use std::collections::HashMap;

/// Local states by UID of the Cluster. They belong to one generation of the caches, and a rollback of the API server ends them: a state of
/// before may describe objects that exist no more.
#[derive(Debug)]
pub(crate) struct LocalStates<L> {
    states: HashMap<String, L>,
    /// Number of rollbacks that these states follow.
    rollbacks: u64,
}

impl<L> Default for LocalStates<L> {
    fn default() -> Self {
        Self {
            states: HashMap::new(),
            rollbacks: 0,
        }
    }
}

impl<L: Clone + Default> LocalStates<L> {
    /// Returns the local state for a reconcile of the Cluster with this UID, after this number of rollbacks.
    pub(super) fn begin(&mut self, uid: &str, rollbacks: u64) -> L {
        if rollbacks != self.rollbacks {
            self.rollbacks = rollbacks;
            self.states.values_mut().for_each(|state| *state = L::default());
        }
        self.states.entry(uid.to_owned()).or_default().clone()
    }

    /// Stores the local state of a reconcile that began after this number of rollbacks. One of before the last rollback is dropped.
    pub(super) fn keep(&mut self, uid: &str, rollbacks: u64, state: L) {
        if rollbacks == self.rollbacks {
            self.states.insert(uid.to_owned(), state);
        }
    }

    /// Drops the local state of the Cluster with this UID. Returns whether there was one.
    pub(super) fn forget(&mut self, uid: &str) -> bool {
        self.states.remove(uid).is_some()
    }

    /// Returns the UIDs of the Clusters with a local state.
    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        self.states.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_ends_local_states_and_those_of_running_reconciles() {
        let mut states = LocalStates::<u8>::default();
        assert_eq!(states.begin("uid", 0), 0);
        states.keep("uid", 0, 7);
        assert_eq!(states.begin("uid", 0), 7);
        assert_eq!(states.begin("uid", 1), 0, "the API server was rolled back");
        states.keep("uid", 0, 8);
        assert_eq!(states.begin("uid", 1), 0, "it began before");
        assert!(states.uids().eq(["uid"]), "it is still gated");
    }

    #[test]
    fn a_forgotten_cluster_has_no_state() {
        let mut states = LocalStates::<u8>::default();
        states.begin("uid", 0);
        assert!(states.forget("uid"));
        assert!(!states.forget("uid"));
        assert_eq!(states.uids().count(), 0);
    }
}
