//! Control plane objects of any provider, reduced to their versions.

use std::{collections::HashMap, sync::Arc};

use kube::{
    Api, Client, ResourceExt,
    api::ApiResource,
    core::Object,
    discovery,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use serde::{Deserialize, Serialize};
use sluice_core::hop::ControlPlaneFacts;
use sluice_crds::{foreign::cluster::ObjectReference, labels::label};
use tokio::{sync::Mutex, task::AbortHandle};

use crate::{
    triggers::Triggers,
    watch::{Seen, follow},
};

/// A control plane object as far as Cluster API's contract makes it readable for everybody.
pub type ControlPlane = Object<Spec, Status>;

/// What the control plane shall be.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Spec {
    version: Option<String>,
}

/// What the control plane is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Status {
    version: Option<String>,
    #[serde(default)]
    versions: Vec<VersionReplicas>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct VersionReplicas {
    version: String,
}

/// The facts of one control plane. While machines of several versions run, the oldest counts (the list begins with it).
#[must_use]
pub fn facts(control_plane: &ControlPlane) -> ControlPlaneFacts {
    let status = control_plane.status.as_ref();
    ControlPlaneFacts {
        spec_version: control_plane.spec.version.clone(),
        status_version: status
            .and_then(|status| status.versions.first().map(|oldest| oldest.version.clone()))
            .or_else(|| status.and_then(|status| status.version.clone())),
    }
}

/// Watches every kind of control plane that some Cluster uses, from the first Cluster on.
pub struct ControlPlanes {
    client: Client,
    triggers: Triggers,
    kinds: Mutex<HashMap<(String, String), Arc<Kind>>>,
}

struct Kind {
    resource: ApiResource,
    store: Store<ControlPlane>,
    watch: AbortHandle,
}

impl Drop for Kind {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl ControlPlanes {
    /// No kind is watched yet.
    #[must_use]
    pub fn new(client: Client, triggers: Triggers) -> Self {
        Self {
            client,
            triggers,
            kinds: Mutex::default(),
        }
    }

    /// The control plane that a Cluster refers to; `None` while it does not exist.
    ///
    /// # Errors
    /// The kind is not served, or the API server does not answer.
    pub async fn get(
        &self,
        namespace: &str,
        reference: &ObjectReference,
    ) -> kube::Result<Option<ControlPlaneFacts>> {
        let kind = self.kind(reference).await?;
        let key = ObjectRef::new_with(&reference.name, kind.resource.clone()).within(namespace);
        Ok(kind.store.get(&key).map(|found| facts(&found)))
    }

    async fn kind(&self, reference: &ObjectReference) -> kube::Result<Arc<Kind>> {
        let key = (reference.group().to_owned(), reference.kind.clone());
        // Held across the discovery on purpose: a hundred Clusters of one kind discover it once. No hook takes this lock.
        let mut kinds = self.kinds.lock().await;
        if let Some(kind) = kinds.get(&key) {
            return Ok(Arc::clone(kind));
        }
        let group = discovery::group(&self.client, &key.0).await?;
        let resource = group
            .recommended_kind(&key.1)
            .map(|(resource, _)| resource)
            .ok_or(kube::error::DiscoveryError::MissingKind(key.1.clone()))
            .map_err(kube::Error::Discovery)?;
        let triggers = self.triggers.clone();
        let api = Api::<ControlPlane>::all_with(self.client.clone(), &resource);
        let (store, run) = follow(
            api,
            watcher::Config::default(),
            resource.clone(),
            move |seen| match seen {
                Seen::Touched(object) | Seen::Gone(object) => {
                    if let Some(cluster) = object.labels().get(label::CAPI_CLUSTER_NAME) {
                        triggers
                            .wake(ObjectRef::new(cluster).within(&object.namespace().unwrap_or_default()));
                    }
                }
                Seen::Failed(error) => tracing::warn!(%error, "Watching control planes"),
                Seen::Synced => {}
            },
        );
        let kind = Arc::new(Kind {
            resource,
            store,
            watch: tokio::spawn(run).abort_handle(),
        });
        // The Clusters are woken when the store is filled; until then an absent control plane reads as not created.
        kind.store
            .wait_until_ready()
            .await
            .map_err(|_| kube::Error::Service("the watch ended".into()))?;
        kinds.insert(key, Arc::clone(&kind));
        Ok(kind)
    }
}
