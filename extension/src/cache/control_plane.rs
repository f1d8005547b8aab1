//! Watches of control planes of any provider.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{Client, core::ObjectMeta};
use sluice_core::{
    cache::{Asker, Attempts, Discoveries, NamedKind, NamedKinds, Standing, Turn, Waiting},
    reconcile::cluster::Unknown,
    upgrade::hop::{ControlPlane, ControlPlaneFacts},
};
use sluice_crds::foreign::cluster::ObjectReference;

use tokio::runtime::Handle;

use crate::{
    cache::{
        contract::Contract,
        kind_watch::{KindWatch, State},
        watch::reporting,
    },
    clock::now,
    lock::lock,
    queue::requeues::{ClusterRef, Requeues},
};

/// A kind that no Cluster has asked for in this time is watched no more. Clusters at rest ask within a sync period.
const KEPT: Duration = Duration::from_hours(1);

/// Watches every kind of control plane that some Cluster uses, from the first Cluster on.
pub struct ControlPlanes {
    contract: Contract,
    triggers: Requeues,
    /// Reviews ask, too, and have a thread of their own, on which nothing of others is to run.
    runtime: Handle,
    kinds: Mutex<NamedKinds<NamedKind, Kind>>,
    /// Clusters that are woken when more is known of their kind.
    waiting: Arc<Mutex<Waiting>>,
    /// What reviews have caused.
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
}

impl ControlPlanes {
    /// No kind is watched yet; each will be by the runtime of the caller. Kinds of `groups` are read whatever their definitions say.
    ///
    /// # Panics
    /// The caller has no runtime.
    #[must_use]
    pub fn new(client: Client, triggers: Requeues, groups: Vec<String>) -> Self {
        Self {
            contract: Contract::new(client, groups),
            triggers,
            runtime: Handle::current(),
            kinds: Mutex::default(),
            waiting: Arc::default(),
            discoveries: Mutex::default(),
        }
    }

    /// The control plane that a Cluster in memory refers to, from memory; `None` while it does not exist. The Cluster is woken when more
    /// is known of the kind.
    ///
    /// # Errors
    /// Its kind is not in memory.
    pub fn get(
        &self,
        cluster: &ClusterRef,
        reference: &ObjectReference,
    ) -> Result<Option<ControlPlaneFacts>, Unknown> {
        let named = named(reference)?;
        let (asker, now) = (Asker::Reconcile, now());
        let mut kinds = lock(&self.kinds);
        if !kinds.knows(&named, asker, now, standing) {
            kinds.forget_unasked(KEPT, now);
        }
        let watch = |named: &_| self.watch(named, Attempts::default());
        let kind = kinds.ask(named, asker, now, standing, watch);
        let mut state = kind.watch.state();
        if !matches!(state, State::Readable { .. }) {
            lock(&self.waiting).add(cluster, &kind.named);
            // It may have changed before the Cluster was among those that are woken.
            state = kind.watch.state();
        }
        drop(kinds);
        found(state, cluster, reference)
    }

    /// The same for a review. No Cluster is woken, and no kind is read.
    ///
    /// # Errors
    /// Its kind is not in memory.
    pub fn known(
        &self,
        cluster: &ClusterRef,
        reference: &ObjectReference,
    ) -> Result<Option<ControlPlaneFacts>, Unknown> {
        let named = named(reference)?;
        let mut kinds = lock(&self.kinds);
        let kind = kinds.known(&named, Asker::Review, now(), standing);
        let state = kind.ok_or(Unknown::Reading)?.watch.state();
        drop(kinds);
        found(state, cluster, reference)
    }

    /// Ends when the control planes of the kind that a Cluster refers to were read for a review, cannot be, or are not read now because
    /// reviews have had too many kinds discovered.
    pub async fn read(&self, cluster: &ClusterRef, reference: &ObjectReference) {
        let Ok(named) = named(reference) else { return };
        let (asker, now) = (Asker::Review, now());
        let read = {
            let mut kinds = lock(&self.kinds);
            if !kinds.knows(&named, asker, now, standing) {
                kinds.forget_unasked(KEPT, now);
                let turn = lock(&self.discoveries).turn(&named, cluster.namespace(), now);
                if turn != Turn::Now(()) {
                    return;
                }
            }
            let watch = |named: &_| self.watch(named, Attempts::once());
            kinds.ask(named, asker, now, standing, watch).watch.read()
        };
        read.await;
    }

    /// Forgets Clusters that wait and are gone: those of a namespace and a name that `is_there` says no of.
    pub fn forget_gone(&self, is_there: impl Fn(&str, &str) -> bool) {
        lock(&self.waiting).forget_gone(is_there);
    }

    fn watch(&self, named: &NamedKind, attempts: Attempts) -> Kind {
        let named = Arc::new(named.clone());
        let on = {
            let triggers = self.triggers.clone();
            let touched = move |meta: &ObjectMeta, _| triggers.enqueue_owner::<ControlPlane>(meta);
            reporting(named.kind.clone(), "Watching control planes", touched)
        };
        let changed = {
            let (triggers, waiting) = (self.triggers.clone(), Arc::clone(&self.waiting));
            let named = Arc::clone(&named);
            move || {
                let woken = lock(&waiting).take(&named);
                for cluster in woken {
                    triggers.wake(cluster);
                }
            }
        };
        let _entered = self.runtime.enter();
        let watch = KindWatch::open(
            self.contract.clone(),
            NamedKind::clone(&named),
            attempts,
            on,
            changed,
        );
        Kind { named, watch }
    }
}

/// The kind of the control plane that is referred to.
fn named(reference: &ObjectReference) -> Result<NamedKind, Unknown> {
    let too_long = || Unknown::unreadable(reference, "its name is longer than that of any kind");
    NamedKind::referred(reference).ok_or_else(too_long)
}

/// What a kind in this state has of the control plane of a Cluster.
fn found(
    state: State<ControlPlane>,
    cluster: &ClusterRef,
    reference: &ObjectReference,
) -> Result<Option<ControlPlaneFacts>, Unknown> {
    match state {
        State::Readable { store, .. } => {
            let found = store.found(Some(cluster.namespace()), &reference.name);
            let found = found.map_err(|object| Unknown::Unreadable(object.hold()))?;
            Ok(found.map(|found| ControlPlaneFacts::of(&found)))
        }
        State::Reading => Err(Unknown::Reading),
        State::Unserved => Err(Unknown::unreadable(reference, "the API server does not serve it")),
        State::Unreadable(why) => Err(Unknown::unreadable(reference, &why)),
    }
}

fn standing(kind: &Kind) -> Standing {
    kind.watch.state().standing()
}

#[cfg(test)]
pub(crate) mod tests;
