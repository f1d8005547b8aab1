//! Stores of UpgradeGates and ClusterUpgrades. Nothing else waits for them, and their definitions may be missing.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    fmt,
    pin::pin,
    sync::{Arc, Mutex},
    time::Instant,
};

use futures::{
    FutureExt as _, StreamExt as _,
    channel::mpsc::{self, UnboundedReceiver},
    future::{BoxFuture, select},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource, ResourceExt as _, runtime::watcher};
use sluice_core::{
    cache::{DefinitionRead, FINDING, FollowedStore, OptionalKind, Sign, gate_kinds, stores::GateKinds},
    cluster::ClusterRef,
    decode::Undecodable,
    error_chain::error_chain,
};
use sluice_crds::lifecycle::{ClusterUpgrade, UpgradeGate};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{
    event_handlers::{EventHandlers, GateChange},
    kind_watch::reporting_watches,
    store::Store,
    streamed::streaming,
    watch::{Followed, Presence, Seen, follow},
};
use crate::{
    clock::{later, now},
    kube_client::responses::code,
    lock::lock,
};

/// An UpgradeGate, or its readable part.
pub(crate) type GateFound = Result<Arc<UpgradeGate>, Arc<Undecodable>>;

/// UpgradeGates and ClusterUpgrades. Clones share the objects.
#[derive(Clone, Debug)]
pub(crate) struct GateStores {
    /// All ClusterUpgrades.
    pub(crate) upgrades: Store<ClusterUpgrade>,
    by_namespace: Arc<Mutex<ByNamespace>>,
    states: Arc<Mutex<States>>,
}

/// State of each kind, and what both mean together.
#[derive(Debug)]
struct States {
    of_gates: OptionalKind,
    of_upgrades: OptionalKind,
    kinds: GateKinds,
    /// Time since which both kinds are listed.
    listed_since: Option<Instant>,
}

impl States {
    fn new() -> Self {
        let (of_gates, of_upgrades) = (
            OptionalKind::of::<UpgradeGate>(),
            OptionalKind::of::<ClusterUpgrade>(),
        );
        Self {
            kinds: gate_kinds(of_gates.state(), of_upgrades.state()),
            listed_since: None,
            of_gates,
            of_upgrades,
        }
    }
}

/// Selects the state of one kind.
type Select = fn(&mut States) -> &mut OptionalKind;

impl GateStores {
    /// Opens the stores. Returns them and the futures that keep them up to date, each with the name of its kind.
    pub(super) fn open(
        client: &Client,
        handlers: &EventHandlers,
    ) -> (Self, [(&'static str, BoxFuture<'static, ()>); 2]) {
        let by_namespace = Arc::<Mutex<ByNamespace>>::default();
        let states = Arc::new(Mutex::new(States::new()));
        let watching = |select: Select| Watching {
            states: Arc::clone(&states),
            handlers: handlers.clone(),
            select,
        };
        let (noted, changed) = (Arc::clone(&by_namespace), handlers.clone());
        // Reads of UpgradeGates are answered from `by_namespace`, whose objects are parsed.
        let (_, gates) = watching(|states| &mut states.of_gates).open::<UpgradeGate>(client, move |seen| {
            let seen = lock(&noted).take_in(seen);
            for change in seen {
                changed.gate(change);
            }
        });
        let changed = handlers.clone();
        let (upgrades, upgrading) =
            watching(|states| &mut states.of_upgrades).open::<ClusterUpgrade>(client, move |seen| {
                seen.each(|upgrade, _| changed.cluster_upgrade(&upgrade.metadata));
                seen.each_undecodable(|upgrade, _| changed.cluster_upgrade(&upgrade.metadata));
            });
        let stores = Self {
            upgrades,
            by_namespace,
            states,
        };
        (stores, [("UpgradeGate", gates), ("ClusterUpgrade", upgrading)])
    }

    /// Returns what the stores show.
    pub(crate) fn kinds(&self) -> GateKinds {
        lock(&self.states).kinds.clone()
    }

    /// Returns the time since which both kinds are listed.
    pub(crate) fn listed_since(&self) -> Option<Instant> {
        lock(&self.states).listed_since
    }

    /// Returns the UpgradeGates of a namespace, by name.
    pub(crate) fn of_namespace(&self, namespace: &str) -> Vec<GateFound> {
        lock(&self.by_namespace).of(namespace)
    }

    /// Returns the UpgradeGate of this name.
    pub(crate) fn found(&self, namespace: &str, name: &str) -> Option<GateFound> {
        let by_namespace = lock(&self.by_namespace);
        by_namespace.0.get(namespace)?.get(name).cloned()
    }

    /// Returns the namespaces with UpgradeGates.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        lock(&self.by_namespace).0.keys().cloned().collect()
    }
}

/// UpgradeGates by namespace and name, parsed: each hook call of a Cluster needs all of its namespace.
#[derive(Default)]
struct ByNamespace(HashMap<String, BTreeMap<String, GateFound>>);

impl fmt::Debug for ByNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByNamespace").finish_non_exhaustive()
    }
}

impl ByNamespace {
    fn of(&self, namespace: &str) -> Vec<GateFound> {
        let found = self.0.get(namespace);
        found.map_or_else(Vec::new, |found| found.values().cloned().collect())
    }

    /// Takes in an event of the watch. Returns the changes that affect Clusters.
    fn take_in(&mut self, seen: &Seen<'_, UpgradeGate>) -> Vec<GateChange> {
        let mut changes = Vec::new();
        seen.each(|gate, presence| changes.extend(self.saw(gate, presence)));
        seen.each_undecodable(|gate, presence| changes.push(self.saw_undecodable(gate, presence)));
        changes
    }

    /// Observes an existing or deleted UpgradeGate. `None` if only its status has changed, or its labels.
    fn saw(&mut self, gate: &UpgradeGate, presence: Presence) -> Option<GateChange> {
        let named = ClusterRef::in_meta(&gate.metadata);
        let before = match presence {
            Presence::There => self.put(&named, Ok(Arc::new(gate.clone()))),
            Presence::Gone => self.remove(&named, |_| true),
        };
        let revision = |gate: &UpgradeGate| (gate.uid(), gate.metadata.generation);
        let is_same = presence == Presence::There
            && matches!(&before, Some(Ok(before)) if revision(before) == revision(gate));
        (!is_same).then_some(GateChange::One(named))
    }

    /// Observes an UpgradeGate that cannot be decoded, or that was one and is deleted or corrected.
    fn saw_undecodable(&mut self, gate: &Undecodable, presence: Presence) -> GateChange {
        let named = ClusterRef::in_meta(&gate.metadata);
        match presence {
            Presence::There => drop(self.put(&named, Err(Arc::new(gate.clone())))),
            // A corrected one is there by now.
            Presence::Gone => drop(self.remove(&named, Result::is_err)),
        }
        GateChange::Namespace(named.namespace().to_owned())
    }

    fn put(&mut self, named: &ClusterRef, found: GateFound) -> Option<GateFound> {
        let namespace = self.0.entry(named.namespace().to_owned()).or_default();
        namespace.insert(named.name().to_owned(), found)
    }

    /// Removes the UpgradeGate of this name, if it `is_meant`.
    fn remove(&mut self, named: &ClusterRef, is_meant: impl FnOnce(&GateFound) -> bool) -> Option<GateFound> {
        let namespace = self.0.get_mut(named.namespace())?;
        let removed = match namespace.entry(named.name().to_owned()) {
            Entry::Occupied(found) if is_meant(found.get()) => Some(found.remove()),
            Entry::Occupied(_) | Entry::Vacant(_) => None,
        };
        if namespace.is_empty() {
            self.0.remove(named.namespace());
        }
        removed
    }
}

/// Watch of one of the kinds.
struct Watching {
    states: Arc<Mutex<States>>,
    handlers: EventHandlers,
    select: Select,
}

impl Watching {
    /// Opens the store of kind `K`. `noted` observes each event before the state of the kind changes.
    fn open<K>(
        self,
        client: &Client,
        noted: impl Fn(&Seen<'_, K>) + Send + 'static,
    ) -> (Store<K>, BoxFuture<'static, ()>)
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        let (signs, seen) = mpsc::unbounded();
        let (accepts, accepted) = mpsc::unbounded();
        let watched = reporting_watches(streaming(client.clone()), accepts).into_client();
        let config = watcher::Config::default().streaming_lists();
        let restarts = self.handlers.rollbacks.restarts();
        let (store, run) = follow(
            Api::all(watched),
            config,
            FollowedStore::default(),
            restarts,
            move |event: &Seen<'_, K>| {
                noted(event);
                if let Seen::Failed(error) = event {
                    // Repeated for as long as the definition is missing. A change of the state is logged.
                    debug!(kind = %K::kind(&()), %error, "Failed to watch objects");
                }
                // The receiver lives as long as this future.
                let _sent = signs.unbounded_send(event.sign());
            },
        );
        let definitions = Api::<CustomResourceDefinition>::all(client.clone());
        let told = self.tell(definitions, seen, accepted);
        let both = async move {
            // The state is updated for as long as the watch runs.
            select(pin!(run), pin!(told)).await;
        };
        (store, both.boxed())
    }

    /// Updates the state from the signs of the watch and its accepted requests, for as long as it is polled.
    async fn tell(
        self,
        definitions: Api<CustomResourceDefinition>,
        mut seen: UnboundedReceiver<Sign>,
        mut accepted: UnboundedReceiver<()>,
    ) {
        loop {
            let wake_at = (self.select)(&mut lock(&self.states)).wake_at();
            let asks = tokio::select! {
                biased;
                Some(sign) = seen.next() => self.update(|kind| kind.saw(sign)),
                Some(()) = accepted.next() => self.update(|kind| {
                    kind.watching(now());
                    false
                }),
                () = later(wake_at) => self.update(|kind| {
                    kind.wake(now());
                    false
                }),
            };
            if asks {
                let name = (self.select)(&mut lock(&self.states)).definition().to_owned();
                let read = definition(&definitions, &name).await;
                self.update(|kind| {
                    kind.read(read);
                    false
                });
            }
        }
    }

    /// Changes the state of the kind, and reports a change of what both kinds show.
    fn update<T>(&self, change: impl FnOnce(&mut OptionalKind) -> T) -> T {
        let mut states = lock(&self.states);
        let changed = change((self.select)(&mut states));
        let kinds = gate_kinds(states.of_gates.state(), states.of_upgrades.state());
        let before = std::mem::replace(&mut states.kinds, kinds.clone());
        if before != kinds {
            states.listed_since = matches!(kinds, GateKinds::Listed).then(now);
        }
        drop(states);
        if before != kinds {
            self.handlers.gate_kinds(&kinds);
        }
        changed
    }
}

/// Reads the definition of a kind that the API server does not list. Only its own 404 means that it does not exist.
async fn definition(definitions: &Api<CustomResourceDefinition>, name: &str) -> DefinitionRead {
    let error = match timeout(FINDING, definitions.get_metadata(name)).await {
        Ok(Ok(_)) => return DefinitionRead::Exists,
        Ok(Err(error)) => error,
        Err(_elapsed) => return DefinitionRead::Failed(None),
    };
    if let kube::Error::Api(status) = &error
        && status.is_not_found()
        && status
            .details
            .as_ref()
            .is_some_and(|details| details.name == name)
    {
        return DefinitionRead::Missing;
    }
    warn!(
        name,
        error = error_chain(&error),
        "Failed to read CustomResourceDefinition"
    );
    DefinitionRead::Failed(code(&error))
}

#[cfg(test)]
mod tests;
