//! Control plane objects of any provider, reduced to their versions.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{
    Api, Client, ResourceExt,
    api::ApiResource,
    core::Object,
    runtime::{reflector::ObjectRef, watcher},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::{
    hold::{GateReason, Hold},
    hop::ControlPlaneFacts,
    pass::Unknown,
    version::older,
};
use sluice_crds::{foreign::cluster::ObjectReference, labels::label};

use crate::{
    contract::Contract,
    kind_watch::{KindWatch, NamedKinds, Standing, State},
    triggers::{ClusterRef, Triggers},
    watch::Seen,
};

/// A control plane object as far as Cluster API's contract makes it readable for everybody. What does not fit is absent, so that
/// one object hides no others of its kind.
pub type ControlPlane = Object<Option<Spec>, Status>;

/// What the control plane shall be.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Value")]
pub struct Spec {
    version: Option<String>,
}

/// What the control plane is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Value")]
pub struct Status {
    version: Option<String>,
    /// Of its machines, while they run several.
    oldest: Option<String>,
}

impl From<Value> for Spec {
    fn from(spec: Value) -> Self {
        Self {
            version: text(&spec["version"]),
        }
    }
}

impl From<Value> for Status {
    fn from(status: Value) -> Self {
        Self {
            version: text(&status["version"]),
            // The list begins with it.
            oldest: text(&status["versions"][0]["version"]),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The facts of one control plane. While machines of several versions run, the oldest counts. Nodes may run a later patch than their
/// machines, also before these are replaced.
#[must_use]
pub fn facts(control_plane: &ControlPlane) -> ControlPlaneFacts {
    let status = control_plane.status.clone().unwrap_or_default();
    ControlPlaneFacts {
        spec_version: control_plane.spec.as_ref().and_then(|spec| spec.version.clone()),
        status_version: match (status.oldest, status.version) {
            (Some(oldest), Some(version)) => Some(older(oldest, version)),
            (oldest, version) => oldest.or(version),
        },
    }
}

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
            kinds.forget_unasked(KEPT);
        }
        let kind = kinds.ask(key, Kind::standing, |key| self.watch(key));
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
                Ok(store.get(&key).map(|found| facts(&found)))
            }
            State::Reading => Err(Unknown::Reading),
            State::Unserved => Err(unreadable(reference, "the API server does not serve it")),
            State::Unreadable(why) => Err(unreadable(reference, &why)),
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
                Seen::Touched(object) | Seen::Gone(object) => {
                    if let Some(cluster) = object.labels().get(label::CAPI_CLUSTER_NAME) {
                        triggers
                            .wake(ObjectRef::new(cluster).within(&object.namespace().unwrap_or_default()));
                    }
                }
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

fn unreadable(reference: &ObjectReference, why: &str) -> Unknown {
    let (group, kind) = (reference.group(), &reference.kind);
    Unknown::Unreadable(Hold::new(
        GateReason::ControlPlaneKindUnreadable,
        format!("control plane kind {kind} in group {group:?} of spec.controlPlaneRef: {why}"),
    ))
}

#[cfg(test)]
pub(crate) mod tests;
