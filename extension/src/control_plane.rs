//! Watches of control planes of any provider.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{Client, core::ObjectMeta};
use sluice_core::{
    hop::{ControlPlane, ControlPlaneFacts},
    pass::Unknown,
    walls::{NamedKind, NamedKinds, Standing},
};
use sluice_crds::foreign::cluster::ObjectReference;

use tokio::runtime::Handle;

use crate::{
    clock::now,
    contract::Contract,
    kind_watch::{KindWatch, State},
    lock::lock,
    triggers::{ClusterRef, Triggers},
    watch::reporting,
};

/// A kind that no Cluster has asked for in this time is watched no more. Clusters at rest ask within a sync period.
const KEPT: Duration = Duration::from_hours(1);

/// Watches every kind of control plane that some Cluster uses, from the first Cluster on.
pub struct ControlPlanes {
    contract: Contract,
    triggers: Triggers,
    /// Reviews ask, too, and have a thread of their own, on which nothing of others is to run.
    runtime: Handle,
    kinds: Mutex<NamedKinds<NamedKind, Kind>>,
}

impl fmt::Debug for ControlPlanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlanes").finish_non_exhaustive()
    }
}

struct Kind {
    watch: KindWatch<ControlPlane>,
    /// Clusters that are woken when more is known of it.
    waiting: Arc<Mutex<HashSet<ClusterRef>>>,
}

impl ControlPlanes {
    /// No kind is watched yet; each will be by the runtime of the caller. Kinds of `groups` are read whatever their definitions say.
    ///
    /// # Panics
    /// The caller has no runtime.
    #[must_use]
    pub fn new(client: Client, triggers: Triggers, groups: Vec<String>) -> Self {
        Self {
            contract: Contract::new(client, groups),
            triggers,
            runtime: Handle::current(),
            kinds: Mutex::default(),
        }
    }

    /// The control plane that a Cluster refers to, from memory; `None` while it does not exist.
    ///
    /// # Errors
    /// Its kind is not in memory.
    pub fn get(
        &self,
        cluster: &ClusterRef,
        reference: &ObjectReference,
    ) -> Result<Option<ControlPlaneFacts>, Unknown> {
        let named = NamedKind::given(reference.group(), &reference.kind);
        let mut kinds = lock(&self.kinds);
        if !kinds.knows(&named) {
            kinds.forget_unasked(KEPT, now());
        }
        let kind = kinds.ask(named, now(), standing, |named| self.watch(named));
        let mut state = kind.watch.state();
        if !matches!(state, State::Readable { .. }) {
            lock(&kind.waiting).insert(cluster.clone());
            // It may have changed before the Cluster was among those that are woken.
            state = kind.watch.state();
        }
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

    /// Ends when the control planes of the kind that is referred to were read, or cannot be.
    pub async fn read(&self, reference: &ObjectReference) {
        let named = NamedKind::given(reference.group(), &reference.kind);
        let read = {
            let mut kinds = lock(&self.kinds);
            let kind = kinds.ask(named, now(), standing, |named| self.watch(named));
            kind.watch.read()
        };
        read.await;
    }

    fn watch(&self, named: &NamedKind) -> Kind {
        let waiting = Arc::<Mutex<HashSet<ClusterRef>>>::default();
        let on = {
            let triggers = self.triggers.clone();
            let touched = move |meta: &ObjectMeta, _| triggers.wake_of::<ControlPlane>(meta);
            reporting(named.kind.clone(), "Watching control planes", touched)
        };
        let changed = {
            let (triggers, waiting) = (self.triggers.clone(), Arc::clone(&waiting));
            move || {
                let woken = std::mem::take(&mut *lock(&waiting));
                for cluster in woken {
                    triggers.wake(cluster);
                }
            }
        };
        let _entered = self.runtime.enter();
        let watch = KindWatch::open(self.contract.clone(), named.clone(), on, changed);
        Kind { watch, waiting }
    }
}

fn standing(kind: &Kind) -> Standing {
    kind.watch.state().standing()
}

#[cfg(test)]
pub(crate) mod tests;
