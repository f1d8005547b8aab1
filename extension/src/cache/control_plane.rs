//! Watches of control planes of any provider.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use kube::{Client, core::ObjectMeta};
use sluice_core::{
    cache::{Discoveries, NamedKind, NamedKinds, PERIOD, Standing, Turn, Waiting},
    reconcile::cluster::{CachedControlPlane, Key, Server, Unknown},
};
use sluice_crds::foreign::{ControlPlane, cluster::ObjectReference};

use tokio::runtime::Handle;

use crate::{
    cache::{
        contract::Contract,
        kind_watch::{KindWatch, State},
        rollbacks::Rollbacks,
        watch::reporting,
    },
    clock::now,
    lock::lock,
    queue::requeues::{ClusterRef, Requeues},
};

/// Time after which the watch of an unused kind ends. Idle Clusters use their kind at least once per sync period.
const IDLE: Duration = Duration::from_hours(1);

/// Watches of every kind of control plane that a Cluster uses, opened on first use.
pub struct ControlPlanes {
    contract: Contract,
    triggers: Requeues,
    rollbacks: Rollbacks,
    /// Runtime of the watches. Reviews call from a thread of their own, on which no other work may run.
    runtime: Handle,
    kinds: Mutex<NamedKinds<NamedKind, Kind>>,
    /// Clusters to requeue when the state of their kind changes.
    waiting: Arc<Mutex<Waiting>>,
    /// Discoveries that reviews have started.
    discoveries: Mutex<Discoveries<()>>,
}

impl fmt::Debug for ControlPlanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlanes").finish_non_exhaustive()
    }
}

struct Kind {
    named: Arc<NamedKind>,
    watch: KindWatch<ControlPlane>,
    /// Time since which only reviews, which anyone may send, name the kind.
    of_reviews: Option<Instant>,
}

impl Kind {
    fn standing(&self) -> Standing {
        self.watch.state().standing()
    }

    /// Returns whether the kind is tried once, because only reviews name it.
    fn is_tried_once(&self) -> bool {
        self.of_reviews.is_some() && self.standing() != Standing::Readable
    }

    /// Returns whether another review may start the discovery of the kind again.
    fn is_over(&self, now: Instant) -> bool {
        let is_old = |since| now.duration_since(since) >= PERIOD;
        self.of_reviews.is_some_and(is_old) && self.standing() == Standing::Unreadable
    }
}

/// Returns the watch of a kind. Before a new one opens, the watches of kinds that nothing has named for an hour end.
fn ask(
    kinds: &mut NamedKinds<NamedKind, Kind>,
    named: NamedKind,
    now: Instant,
    open: impl FnOnce(&NamedKind) -> Kind,
) -> &mut Kind {
    if kinds.get(&named, now).is_none() {
        kinds.forget_unasked(IDLE, now);
    }
    kinds.ask(named, now, Kind::standing, open)
}

impl ControlPlanes {
    /// Creates an empty set of watches, which run on the runtime of the caller. Kinds of `groups` are read whatever their definitions say.
    ///
    /// # Panics
    /// The caller has no runtime.
    #[must_use]
    pub fn new(client: Client, triggers: Requeues, groups: Vec<String>, rollbacks: Rollbacks) -> Self {
        Self {
            contract: Contract::new(client, groups),
            triggers,
            rollbacks,
            runtime: Handle::current(),
            kinds: Mutex::default(),
            waiting: Arc::default(),
            discoveries: Mutex::default(),
        }
    }

    /// Returns the cached control plane that a cached Cluster refers to; `None` while it does not exist. The Cluster is requeued when the
    /// state of its kind changes.
    ///
    /// # Errors
    /// Its kind is not cached.
    pub fn get(
        &self,
        cluster: &ClusterRef,
        reference: &ObjectReference,
    ) -> Result<Option<CachedControlPlane>, Unknown> {
        let named = named(reference)?;
        let (mut kinds, now) = (lock(&self.kinds), now());
        if kinds.get(&named, now).is_some_and(|kind| kind.is_tried_once()) {
            kinds.remove(&named);
        }
        let kind = ask(&mut kinds, named, now, |named| self.watch(named, true));
        kind.of_reviews = None;
        let mut state = kind.watch.state();
        if !matches!(state, State::Readable { .. }) {
            lock(&self.waiting).add(cluster, &kind.named);
            // The state may have changed before the Cluster was registered for requeues.
            state = kind.watch.state();
        }
        drop(kinds);
        found(state, cluster, reference)
    }

    /// Returns the same for a review: no Cluster is requeued, and no kind is read.
    ///
    /// # Errors
    /// Its kind is not cached.
    pub fn known(
        &self,
        cluster: &ClusterRef,
        reference: &ObjectReference,
    ) -> Result<Option<CachedControlPlane>, Unknown> {
        let named = named(reference)?;
        let mut kinds = lock(&self.kinds);
        let kind = kinds.get(&named, now());
        let state = kind.ok_or(Unknown::Reading)?.watch.state();
        drop(kinds);
        found(state, cluster, reference)
    }

    /// Completes when the kind of control plane that a Cluster refers to is listed for a review, or cannot be read, or is skipped because
    /// reviews have started too many discoveries.
    pub async fn read(&self, cluster: &ClusterRef, reference: &ObjectReference) {
        let Ok(named) = named(reference) else { return };
        let now = now();
        let read = {
            let mut kinds = lock(&self.kinds);
            kinds.retain(|kind| !kind.is_over(now));
            if kinds.get(&named, now).is_none() {
                let turn = lock(&self.discoveries).turn(&named, cluster.namespace(), now);
                if turn != Turn::Now(()) {
                    return;
                }
            }
            let watch = |named: &_| Kind {
                of_reviews: Some(now),
                ..self.watch(named, false)
            };
            ask(&mut kinds, named, now, watch).watch.read()
        };
        read.await;
    }

    /// Drops waiting Clusters that do not exist any more: those whose namespace and name `is_there` denies.
    pub fn forget_gone(&self, is_there: impl Fn(&str, &str) -> bool) {
        lock(&self.waiting).forget_gone(is_there);
    }

    fn watch(&self, named: &NamedKind, retries: bool) -> Kind {
        let named = Arc::new(named.clone());
        let on = {
            let triggers = self.triggers.clone();
            let touched = move |meta: &ObjectMeta, _| triggers.enqueue_owner_for_all::<ControlPlane>(meta);
            reporting(named.kind.clone(), "Failed to watch control planes", touched)
        };
        let changed = {
            let (triggers, waiting) = (self.triggers.clone(), Arc::clone(&self.waiting));
            let named = Arc::clone(&named);
            move || {
                let requeued = lock(&waiting).take(&named);
                for cluster in requeued {
                    triggers.enqueue_for_all(cluster);
                }
            }
        };
        let _entered = self.runtime.enter();
        let watch = KindWatch::open(
            self.contract.clone(),
            NamedKind::clone(&named),
            retries,
            self.rollbacks.clone(),
            on,
            changed,
        );
        Kind {
            named,
            watch,
            of_reviews: None,
        }
    }
}

/// Returns the kind of the referenced control plane.
fn named(reference: &ObjectReference) -> Result<NamedKind, Unknown> {
    let too_long = || Unknown::unreadable(reference, "its name is longer than that of any kind");
    NamedKind::referred(reference).ok_or_else(too_long)
}

/// Looks up the control plane of a Cluster in a kind with this state.
fn found(
    state: State<ControlPlane>,
    cluster: &ClusterRef,
    reference: &ObjectReference,
) -> Result<Option<CachedControlPlane>, Unknown> {
    match state {
        State::Readable { resource, store } => {
            let found = store.found(Some(cluster.namespace()), &reference.name);
            let found = found.map_err(|object| Unknown::Unreadable(object.hold()))?;
            let key = Key {
                server: Server::Management,
                resource: (&resource).into(),
                namespace: Some(cluster.namespace().to_owned()),
                name: reference.name.clone(),
            };
            Ok(found.map(|found| CachedControlPlane::of(key, &found)))
        }
        State::Reading => Err(Unknown::Reading),
        State::Unserved => Err(Unknown::unreadable(reference, "the API server does not serve it")),
        State::Unreadable(why) => Err(Unknown::unreadable(reference, &why)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
