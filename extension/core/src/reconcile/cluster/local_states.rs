//! Local states of all Clusters, kept between reconciles.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use super::LocalState;
use crate::{held_cause::Probed, packages::build::Owner};

/// Local states of this process.
#[derive(Debug, Default)]
pub struct LocalStates {
    /// Local state of each managed Cluster, by UID.
    managed: HashMap<String, LocalState>,
    /// Number of rollbacks of the API server that these states follow.
    rollbacks: u64,
    /// Namespaces and names of Clusters requeued since the start of their last reconcile.
    requeued: HashSet<(String, String)>,
}

impl LocalStates {
    /// Notes a requeue of this Cluster for a change that the stores do not show to its next reconcile.
    pub fn note_requeue(&mut self, namespace: &str, name: &str) {
        self.requeued.insert((namespace.to_owned(), name.to_owned()));
    }

    /// Returns the local state for a reconcile of this managed Cluster, after this number of rollbacks of the API server. Each of them ends
    /// all local states. A requeue stays in effect until a reconcile completes.
    pub fn begin(&mut self, owner: &Owner, rollbacks: u64) -> LocalState {
        if rollbacks != self.rollbacks {
            self.rollbacks = rollbacks;
            for local in self.managed.values_mut() {
                *local = local.after_rollback();
            }
        }
        let local = self.managed.entry(owner.uid.clone()).or_default();
        local.rollbacks = rollbacks;
        if self
            .requeued
            .remove(&(owner.namespace.clone(), owner.name.clone()))
        {
            local.end_rest();
        }
        local.clone()
    }

    /// Returns the local state of the Cluster with this UID.
    #[must_use]
    pub fn get(&self, uid: &str) -> LocalState {
        self.managed.get(uid).cloned().unwrap_or_default()
    }

    /// Stores the local state of the Cluster with this UID. Of a reconcile that began before the last rollback it stores only the gates that
    /// may have been opened: the cache may not show them yet.
    pub fn keep(&mut self, uid: &str, local: LocalState) {
        if local.rollbacks == self.rollbacks {
            self.managed.insert(uid.to_owned(), local);
        } else {
            let known = self.managed.entry(uid.to_owned()).or_default();
            known.may_also_have_opened(local);
        }
    }

    /// Notes a status write for the Cluster with this UID at `now`, outside of a reconcile.
    pub fn wrote(&mut self, uid: &str, now: Instant) {
        self.managed.entry(uid.to_owned()).or_default().written = Some(now);
    }

    /// Stores the result of a probe of the Cluster with this UID, outside of a reconcile.
    pub fn probed(&mut self, uid: &str, probed: Probed) {
        self.managed.entry(uid.to_owned()).or_default().was_probed(probed);
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
        self.requeued
            .retain(|(namespace, name)| is_there(namespace, name));
    }
}

#[cfg(test)]
mod tests {
    use sluice_crds::run::Hook;

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
        let (mut local_states, now) = (LocalStates::default(), Instant::now());
        let mut local = local_states.begin(&owner(), 0);
        local.rest(Some(PlannedFrom::default()));
        local_states.keep("uid", local);
        let rests = |local_states: &mut LocalStates| {
            local_states
                .begin(&owner(), 0)
                .rests(PlannedFrom::default(), true)
        };
        assert!(rests(&mut local_states));
        local_states.note_requeue("team-b", "one");
        assert!(rests(&mut local_states), "another Cluster was requeued");
        local_states.note_requeue("team-a", "one");
        assert!(!rests(&mut local_states));
        assert!(!rests(&mut local_states), "the reconcile did not complete");
        local_states.wrote("uid", now);
        assert_eq!(local_states.get("uid").written, Some(now));
    }

    #[test]
    fn a_rollback_ends_local_states_and_those_of_running_reconciles() {
        let (mut local_states, now) = (LocalStates::default(), Instant::now());
        let gate = |version: &str| (Hook::BeforeClusterUpgrade, version.to_owned());
        let mut kept = local_states.begin(&owner(), 0);
        kept.opened.push(gate("v1.35.4"));
        local_states.keep("uid", kept);
        let mut running = local_states.begin(&owner(), 0);
        local_states.wrote("uid", now);
        running.written = Some(now);
        running.opened.push(gate("v1.36.3"));
        let begun = local_states.begin(&owner(), 1);
        assert_eq!((begun.written, begun.opened), (None, vec![gate("v1.35.4")]));
        local_states.keep("uid", running);
        let known = local_states.get("uid");
        assert_eq!(known.written, None);
        assert_eq!(known.opened, [gate("v1.35.4"), gate("v1.36.3")]);
        assert!(local_states.managed().eq(["uid"]), "it is still managed");
    }

    #[test]
    fn deleted_clusters_are_removed() {
        let mut local_states = LocalStates::default();
        local_states.begin(&owner(), 0);
        local_states.note_requeue("team-a", "one");
        local_states.forget_requeues(|namespace, name| (namespace, name) == ("team-a", "one"));
        assert_eq!(local_states.requeued.len(), 1);
        assert!(local_states.managed().eq(["uid"]));
        local_states.forget_requeues(|_, _| false);
        assert_eq!(local_states.requeued.len(), 0);
        assert!(local_states.forget("uid"));
        assert!(!local_states.forget("uid"), "it is no longer managed");
    }
}
