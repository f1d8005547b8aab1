//! Which Clusters are woken because something was edited that their packages take values from: a Secret, or an object of a kind of another
//! project. A Cluster at rest reads its values otherwise only at its next look.
//!
//! Of both only metadata is watched, of objects that name their Cluster in a label. The binary lists and watches; whom that wakes, what is
//! watched at all and when it is tried again is said here.

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

use kube::{Resource, core::ApiResource};
use sluice_crds::{foreign::Cluster, run::ClusterBootstrap};

use self::{
    kinds::Kinds,
    pending_requeues::PendingRequeues,
    tries::Tries,
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
    cache::{Brought, Ended, FollowedKind},
    cluster::ClusterRef,
    protocol::{Object, Write},
};

/// What is watched, what was seen of it, and whom that wakes.
#[derive(Debug)]
pub struct Edits {
    watches: BTreeMap<Watched, Watch>,
    kinds: Kinds,
    wakes: PendingRequeues,
    hashes: RandomState,
    /// Whether it was said that more kinds are named than are watched.
    said_limit: bool,
}

/// One watch.
#[derive(Debug)]
struct Watch {
    versions: Versions,
    tries: Tries,
    /// How many Clusters name it.
    named_by: usize,
    is_open: bool,
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Exactly this is watched.
    pub watched: BTreeSet<Watched>,
    /// These Clusters are woken.
    pub woken: Vec<ClusterRef>,
    /// A line for the log.
    pub warning: Option<String>,
    /// When there is something to do again at the latest, if nothing happens before.
    pub at: Option<Instant>,
}

impl Default for Edits {
    /// Secrets of all namespaces are watched.
    fn default() -> Self {
        Self::of(&[])
    }
}

impl Edits {
    /// Secrets of these namespaces are watched; of all, if none is named.
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
            wakes: PendingRequeues::default(),
            hashes,
            said_limit: false,
        }
    }

    /// This process leads from now on. What was edited a moment ago may have been seen by no leader.
    pub fn lead(&mut self) {
        self.wakes.lead();
    }

    /// A Cluster is there, or was.
    pub fn cluster(&mut self, cluster: &Cluster, is_there: bool) {
        let is_managed = is_there && cluster.spec.topology.is_some();
        self.kinds.cluster(&ClusterRef::of(cluster), is_managed);
    }

    /// A ClusterBootstrap is there, or was.
    pub fn bootstrap(&mut self, bootstrap: &ClusterBootstrap, is_there: bool) {
        self.kinds.bootstrap(bootstrap, is_there);
    }

    /// This process has written an object, which its Cluster need not be woken for.
    pub fn wrote(&mut self, write: &Write, written: &Object, now: Instant) {
        if let Some(meta) = own_write(write, written) {
            self.wakes.withdraw(versions::version(&self.hashes, &meta), now);
        }
    }

    /// Something that is watched, and served so, is tried from now on.
    #[must_use]
    pub fn begin(&self, watched: &Watched, resource: &ApiResource, now: Instant) -> FollowedKind {
        let tries = self.watches.get(watched).map(|watch| &watch.tries);
        tries.map_or_else(
            || Tries::default().begin(resource, now),
            |tries| tries.begin(resource, now),
        )
    }

    /// Takes in what the list or watch has brought. A list that is over may say that objects are gone; whose they were has to be looked up.
    pub fn took<K: Resource>(
        &mut self,
        watched: &Watched,
        brought: &Brought<'_, K>,
        now: Instant,
    ) -> Option<Gone> {
        let watch = self.watches.get_mut(watched)?;
        match watch.versions.take(brought) {
            // A label can name any Cluster. One that is made later reads its values in its first pass.
            Taken::Edited(edit) if self.kinds.has_cluster(&edit.cluster) => {
                self.wakes.edited(edit, now);
                None
            }
            Taken::Edited(_) | Taken::Nothing => None,
            Taken::Gone(gone) => Some(gone),
        }
    }

    /// An object of this Cluster is gone.
    pub fn gone(&mut self, cluster: ClusterRef, now: Instant) {
        let edit = Edit {
            cluster,
            version: None,
        };
        self.wakes.edited(edit, now);
    }

    /// All of what is watched was listed, and a watch of it is answered where one was refused before. A line for the log, if that is news.
    pub fn readable(&mut self, watched: &Watched) -> Option<String> {
        let healed = self.watches.get_mut(watched)?.tries.readable();
        healed.then(|| format!("{watched} can be watched again"))
    }

    /// Nothing is known of what is watched for a while: another kind may have its place.
    pub fn troubled(&mut self, watched: &Watched, now: Instant) {
        if let Some(watch) = self.watches.get_mut(watched) {
            watch.tries.troubled(now);
        }
    }

    /// A try has ended so, and why. A line for the log, if that is news.
    pub fn ended(
        &mut self,
        watched: &Watched,
        ended: Ended,
        trouble: &Trouble,
        now: Instant,
    ) -> Option<String> {
        let watch = self.watches.get_mut(watched)?;
        watch.is_open = false;
        watch.tries.ended(watched, ended, trouble, now)
    }

    /// What is to be done now.
    pub fn next(&mut self, now: Instant) -> Next {
        let warning = self.follow_names();
        self.choose(now);
        let (open, closed): (Vec<_>, Vec<_>) = self.watches.iter().partition(|(_, watch)| watch.is_open);
        let again = closed
            .into_iter()
            .filter_map(|(_, watch)| watch.tries.not_before());
        let again = again.filter(|at| *at > now).min();
        let watched = open.into_iter().map(|(watched, _)| watched.clone()).collect();
        let woken = self.wakes.due(now);
        Next {
            watched,
            woken,
            warning,
            at: [again, self.wakes.next_at()].into_iter().flatten().min(),
        }
    }

    /// Forgets kinds that no Cluster names any more, and gets to know others. Says once that there are too many.
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

    /// Says which watches are open: those of Secrets, and [`LIMIT`] of kinds. One that is open stays so while something is known of it.
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
            tries: Tries::default(),
            named_by: 0,
            is_open: false,
        }
    }
}

#[cfg(test)]
mod tests;
