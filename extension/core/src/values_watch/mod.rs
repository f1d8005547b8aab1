//! Requeues of Clusters after changes of their values sources: Secrets, and objects of kinds of other projects. Without a watch, a settled
//! Cluster reads its values only at its next resync.
//!
//! Sluice watches only metadata, of objects that name their Cluster in a label. The binary lists and watches. This module decides which
//! watches are open, when a failed watch is retried, and which Clusters are requeued.

mod kinds;
mod own;
mod pending_requeues;
mod tries;
mod versions;
mod watched;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::RandomState,
    time::Instant,
};

use kube::{Resource, core::ObjectMeta};
use sluice_crds::{foreign::Cluster, run::ClusterBootstrap};

use self::{
    kinds::Kinds,
    pending_requeues::PendingRequeues,
    tries::WatchAttempts,
    versions::{Edit, Taken, Versions},
};
pub use self::{
    kinds::LIMIT,
    own::own_write,
    tries::Trouble,
    versions::Gone,
    watched::{GroupKind, LABEL, Watched},
};
use crate::{
    cache::Brought,
    cluster::ClusterRef,
    protocol::{Object, SecretVersion, Write},
};

/// Watched values sources, their observed versions, and the pending requeues.
#[derive(Debug)]
pub struct ValuesWatches {
    watches: BTreeMap<Watched, Watch>,
    kinds: Kinds,
    pending_requeues: PendingRequeues,
    hashes: RandomState,
    /// Whether the excess over the limit of watched kinds was logged.
    said_limit: bool,
}

/// State of one watch.
#[derive(Debug)]
struct Watch {
    versions: Versions,
    tries: WatchAttempts,
    /// Number of Clusters that name the kind.
    named_by: usize,
    is_open: bool,
    /// Whether it is listed and followed, so that its versions are current but for the delay of an event.
    is_readable: bool,
    /// Whether its last request failed. Events may be missing until the next watch request is accepted.
    fails: bool,
}

/// Actions that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Complete set of watches to keep open.
    pub watched: BTreeSet<Watched>,
    /// Clusters to requeue.
    pub requeued: Vec<ClusterRef>,
    /// Message to log.
    pub warning: Option<String>,
    /// Time of the next due action without further events.
    pub at: Option<Instant>,
}

impl Default for ValuesWatches {
    /// Watches Secrets of all namespaces.
    fn default() -> Self {
        Self::of(&[])
    }
}

impl ValuesWatches {
    /// Watches Secrets of these namespaces, or of all namespaces if the list is empty.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Self {
        let hashes = RandomState::new();
        let named = namespaces.iter().cloned().map(Some);
        let all = namespaces.is_empty().then_some(None);
        let secrets = named.chain(all).map(|namespace| {
            let watch = Watch::new(&hashes);
            (Watched::Secrets(namespace), watch)
        });
        Self {
            watches: secrets.collect(),
            kinds: Kinds::default(),
            pending_requeues: PendingRequeues::default(),
            hashes,
            said_limit: false,
        }
    }

    /// Starts requeues of this process as the leader, including those for recent edits: no earlier leader may have observed them.
    pub fn lead(&mut self) {
        self.pending_requeues.lead();
    }

    /// Observes an existing or deleted Cluster.
    pub fn cluster(&mut self, cluster: &Cluster, is_there: bool) {
        let is_managed = is_there && cluster.spec.topology.is_some();
        self.kinds.cluster(&ClusterRef::of(cluster), is_managed);
    }

    /// Observes an existing or deleted ClusterBootstrap.
    pub fn bootstrap(&mut self, bootstrap: &ClusterBootstrap, is_there: bool) {
        self.kinds.bootstrap(bootstrap, is_there);
    }

    /// Records a write of this process, which does not requeue the Cluster.
    pub fn wrote(&mut self, write: &Write, written: &Object, now: Instant) {
        if let Some(meta) = own_write(write, written) {
            self.pending_requeues
                .withdraw(versions::version(&self.hashes, &meta), now);
        }
    }

    /// Whether the watch of Secrets is readable and has shown this version last. It shows no Secret without [`LABEL`].
    #[must_use]
    pub fn shows(&self, secret: &SecretVersion) -> bool {
        let meta = ObjectMeta {
            namespace: Some(secret.namespace.clone()),
            name: Some(secret.name.clone()),
            uid: Some(secret.uid.clone()),
            resource_version: Some(secret.resource_version.clone()),
            ..ObjectMeta::default()
        };
        let scopes = [None, meta.namespace.clone()];
        scopes.into_iter().any(|namespace| {
            let watch = self.watches.get(&Watched::Secrets(namespace));
            watch.is_some_and(|watch| watch.is_readable && !watch.fails && watch.versions.has(&meta))
        })
    }

    /// Observes an event of the list or watch. A completed list may return deleted objects, whose Clusters the caller must look up.
    pub fn took<K: Resource>(
        &mut self,
        watched: &Watched,
        brought: &Brought<'_, K>,
        now: Instant,
    ) -> Option<Gone> {
        let watch = self.watches.get_mut(watched)?;
        match watch.versions.take(brought) {
            // A label can name any Cluster. A Cluster that is created later reads its values in its first reconcile.
            Taken::Edited(edit) if self.kinds.has_cluster(&edit.cluster) => {
                self.pending_requeues.edited(edit, now);
                None
            }
            Taken::Edited(_) | Taken::Nothing => None,
            Taken::Gone(gone) => Some(gone),
        }
    }

    /// Observes a deleted object of this Cluster.
    pub fn gone(&mut self, cluster: ClusterRef, now: Instant) {
        let edit = Edit {
            cluster,
            version: None,
        };
        self.pending_requeues.edited(edit, now);
    }

    /// Records a completed list and a watch that was not refused. Returns a message to log if an earlier refusal was logged.
    pub fn readable(&mut self, watched: &Watched) -> Option<String> {
        let watch = self.watches.get_mut(watched)?;
        watch.is_readable = true;
        let healed = watch.tries.readable();
        healed.then(|| format!("{watched} can be watched again"))
    }

    /// Records a failed request of a watch.
    pub fn failed(&mut self, watched: &Watched) {
        if let Some(watch) = self.watches.get_mut(watched) {
            watch.fails = true;
        }
    }

    /// Records an accepted watch request.
    pub fn accepted(&mut self, watched: &Watched) {
        if let Some(watch) = self.watches.get_mut(watched) {
            watch.fails = false;
        }
    }

    /// Records a watch without data for some time, so that another kind may take its place.
    pub fn troubled(&mut self, watched: &Watched, now: Instant) {
        if let Some(watch) = self.watches.get_mut(watched) {
            watch.is_readable = false;
            watch.tries.troubled(now);
        }
    }

    /// Records that no watch runs any more. Each is started again.
    pub fn interrupted(&mut self) {
        for watch in self.watches.values_mut() {
            watch.is_readable = false;
        }
    }

    /// Records the end of an attempt. Returns a message to log if it differs from the last one.
    pub fn ended(&mut self, watched: &Watched, trouble: &Trouble, now: Instant) -> Option<String> {
        let watch = self.watches.get_mut(watched)?;
        (watch.is_open, watch.is_readable) = (false, false);
        watch.tries.ended(watched, trouble, now)
    }

    /// Returns the actions that are due.
    pub fn next(&mut self, now: Instant) -> Next {
        let warning = self.follow_names();
        self.choose(now);
        let (open, closed): (Vec<_>, Vec<_>) = self.watches.iter().partition(|(_, watch)| watch.is_open);
        let again = closed
            .into_iter()
            .filter_map(|(_, watch)| watch.tries.not_before());
        let again = again.filter(|at| *at > now).min();
        let watched = open.into_iter().map(|(watched, _)| watched.clone()).collect();
        let requeued = self.pending_requeues.due(now);
        Next {
            watched,
            requeued,
            warning,
            at: [again, self.pending_requeues.next_at()]
                .into_iter()
                .flatten()
                .min(),
        }
    }

    /// Drops kinds that no Cluster names any more, and adds new ones. Returns the message about too many kinds once.
    fn follow_names(&mut self) -> Option<String> {
        let named = self.kinds.changed()?;
        self.watches.retain(|watched, _| match watched {
            Watched::Secrets(_) => true,
            Watched::Kind(kind) => named.contains_key(kind),
        });
        let count = named.len();
        for (kind, named_by) in named {
            let watch = self.watches.entry(Watched::Kind(kind));
            watch.or_insert_with(|| Watch::new(&self.hashes)).named_by = named_by;
        }
        let before = std::mem::replace(&mut self.said_limit, count > LIMIT);
        (self.said_limit && !before).then(|| kinds::too_many(count))
    }

    /// Selects the open watches: those of Secrets, and [`LIMIT`] of kinds. An open watch with data stays open.
    fn choose(&mut self, now: Instant) {
        let due = |watch: &Watch| watch.is_open || watch.tries.not_before().is_none_or(|at| at <= now);
        let mut kinds = Vec::new();
        for (watched, watch) in &mut self.watches {
            match watched {
                Watched::Secrets(_) => watch.is_open = due(watch),
                Watched::Kind(kind) if due(watch) => kinds.push((kind, watch)),
                Watched::Kind(_) => {}
            }
        }
        kinds.sort_by_key(|(kind, watch)| {
            let troubled = watch.tries.troubled_at();
            let stays = watch.is_open && troubled.is_none();
            (!stays, troubled, std::cmp::Reverse(watch.named_by), *kind)
        });
        for (rank, (_, watch)) in kinds.into_iter().enumerate() {
            watch.is_open = rank < LIMIT;
        }
    }
}

impl Watch {
    fn new(hashes: &RandomState) -> Self {
        Self {
            versions: Versions::new(hashes.clone()),
            tries: WatchAttempts::default(),
            named_by: 0,
            is_open: false,
            is_readable: false,
            fails: false,
        }
    }
}

#[cfg(test)]
mod tests;
