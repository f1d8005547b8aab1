//! Watches of control planes of any provider.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{
    Api, Client,
    api::ApiResource,
    runtime::{reflector::ObjectRef, watcher},
};
use sluice_core::{
    hop::{ControlPlane, ControlPlaneFacts},
    pass::Unknown,
    walls::{NamedKinds, Standing},
};
use sluice_crds::foreign::cluster::ObjectReference;

use crate::{
    clock::now,
    contract::Contract,
    kind_watch::{KindWatch, State},
    triggers::{ClusterRef, Triggers},
    watch::Seen,
};

/// Watches every kind of control plane that some Cluster uses, from the first Cluster on.
pub struct ControlPlanes {
    client: Client,
    triggers: Triggers,
    contract: Contract,
    kinds: Mutex<NamedKinds<(String, String), Kind>>,
}

/// A kind that no Cluster has asked for in this time is watched no more. Clusters at rest ask within a sync period.
const KEPT: Duration = Duration::from_hours(1);

struct Kind {
    watch: KindWatch<ControlPlane>,
    waiting: Waiting,
}

impl Kind {
    fn standing(&self) -> Standing {
        self.watch.state().standing()
    }
}

/// Clusters that are woken when more is known of a kind.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<HashSet<ClusterRef>>>);

impl Waiting {
    fn add(&self, cluster: ClusterRef) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(cluster);
    }

    fn wake(&self, triggers: &Triggers) {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for cluster in waiting {
            triggers.wake(cluster);
        }
    }
}

impl ControlPlanes {
    /// No kind is watched yet. Kinds of `groups` are read whatever their definitions say.
    #[must_use]
    pub fn new(client: Client, triggers: Triggers, groups: Vec<String>) -> Self {
        Self {
            contract: Contract::new(client.clone(), groups),
            client,
            triggers,
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
        let key = (reference.group().to_owned(), reference.kind.clone());
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if !kinds.knows(&key) {
            kinds.forget_unasked(KEPT, now());
        }
        let kind = kinds.ask(key, now(), Kind::standing, |key| self.watch(key));
        let mut state = kind.watch.state();
        if !matches!(state, State::Readable { .. }) {
            kind.waiting.add(cluster.clone());
            // It may have changed before the Cluster was among those that are woken.
            state = kind.watch.state();
        }
        match state {
            State::Readable { resource, store } => {
                let namespace = cluster.namespace.as_deref().unwrap_or_default();
                let key = ObjectRef::new_with(&reference.name, resource).within(namespace);
                Ok(store.get(&key).map(|found| ControlPlaneFacts::of(&found)))
            }
            State::Reading => Err(Unknown::Reading),
            State::Unserved => Err(Unknown::unreadable(reference, "the API server does not serve it")),
            State::Unreadable(why) => Err(Unknown::unreadable(reference, &why)),
        }
    }

    fn watch(&self, (group, kind): &(String, String)) -> Kind {
        let waiting = Waiting::default();
        let find = {
            let (contract, group, kind) = (self.contract.clone(), group.clone(), kind.clone());
            move || contract.clone().find(group.clone(), kind.clone())
        };
        let scope = |client: Client, resource: &ApiResource| {
            (Api::all_with(client, resource), watcher::Config::default())
        };
        let on = {
            let (triggers, kind) = (self.triggers.clone(), kind.clone());
            move |seen: &Seen<'_, ControlPlane>| match seen {
                Seen::Touched(object) | Seen::Gone(object) => triggers.wake_of(*object),
                Seen::Failed(error) => tracing::warn!(%error, kind, "Watching control planes"),
                Seen::Synced | Seen::GivenUp(_) => {}
            }
        };
        let changed = {
            let (triggers, waiting) = (self.triggers.clone(), waiting.clone());
            move || waiting.wake(&triggers)
        };
        Kind {
            watch: KindWatch::open(self.client.clone(), find, scope, on, changed),
            waiting,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
