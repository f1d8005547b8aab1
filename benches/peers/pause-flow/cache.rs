//! Cache of the management cluster, kept up to date by watches.

use std::sync::Arc;

use anyhow::Result;
use futures::StreamExt as _;
use futures::future::try_join_all;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::objects::{BOOTSTRAP_SECRET, text};
use crate::queue::{Key, Queue};

/// Objects of all namespaces.
pub(crate) struct Cache {
    clusters: Store<DynamicObject>,
    bootstraps: Store<DynamicObject>,
    templates: Store<DynamicObject>,
    releases: Store<DynamicObject>,
    secrets: Store<DynamicObject>,
    installs: Store<DynamicObject>,
}

/// The Cluster that a change of an object requeues.
type Woken = fn(&DynamicObject) -> Option<Key>;

impl Cache {
    /// Begins to watch. Changes put their Clusters into `queue`.
    pub(crate) fn start(client: &Client, queue: &Arc<Queue>) -> Self {
        let watched = |group, version, kind, woken| {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            watched(client, kind, Arc::clone(queue), woken)
        };
        let (run, v1alpha3) = ("run.tanzu.vmware.com", "v1alpha3");
        Self {
            clusters: watched("cluster.x-k8s.io", "v1beta2", "Cluster", named_alike),
            bootstraps: watched(run, v1alpha3, "ClusterBootstrap", named_alike),
            templates: watched(run, v1alpha3, "ClusterBootstrapTemplate", no_cluster),
            releases: watched(run, v1alpha3, "TanzuKubernetesRelease", no_cluster),
            secrets: watched("", "v1", "Secret", owner),
            installs: watched("packaging.carvel.dev", "v1alpha1", "PackageInstall", no_cluster),
        }
    }

    /// Waits until everything was read once.
    pub(crate) async fn is_filled(&self) -> Result<()> {
        let all = [
            &self.clusters,
            &self.bootstraps,
            &self.templates,
            &self.releases,
            &self.secrets,
            &self.installs,
        ];
        try_join_all(all.map(Store::wait_until_ready)).await?;
        Ok(())
    }

    pub(crate) fn cluster(&self, namespace: &str, name: &str) -> Option<Value> {
        find(&self.clusters, namespace, name)
    }

    pub(crate) fn bootstrap(&self, namespace: &str, name: &str) -> Option<Value> {
        find(&self.bootstraps, namespace, name)
    }

    pub(crate) fn template(&self, namespace: &str, name: &str) -> Option<Value> {
        find(&self.templates, namespace, name)
    }

    pub(crate) fn release(&self, name: &str) -> Option<Value> {
        find(&self.releases, "", name)
    }

    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        find(&self.secrets, namespace, name)
    }

    pub(crate) fn install(&self, namespace: &str, name: &str) -> Option<Value> {
        find(&self.installs, namespace, name)
    }
}

fn watched(client: &Client, kind: ApiResource, queue: Arc<Queue>, woken: Woken) -> Store<DynamicObject> {
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let writer = reflector::store::Writer::new(kind);
    let store = writer.as_reader();
    let changes = watcher(objects, watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects();
    tokio::spawn(changes.for_each(move |changed| {
        // A watch that broke begins again by itself.
        if let Some(key) = changed.ok().as_ref().and_then(woken) {
            queue.add(key);
        }
        std::future::ready(())
    }));
    store
}

fn find(store: &Store<DynamicObject>, namespace: &str, name: &str) -> Option<Value> {
    let found = store
        .find(|object| object.name_any() == name && object.namespace().unwrap_or_default() == namespace)?;
    serde_json::to_value(&*found).ok()
}

fn no_cluster(_: &DynamicObject) -> Option<Key> {
    None
}

fn named_alike(object: &DynamicObject) -> Option<Key> {
    Some((object.namespace()?, object.name_any()))
}

/// The Cluster that owns a Secret with values.
fn owner(secret: &DynamicObject) -> Option<Key> {
    if text(&secret.data, "/type") != BOOTSTRAP_SECRET {
        return None;
    }
    let owners = secret.metadata.owner_references.iter().flatten();
    let cluster = owners.into_iter().find(|owner| owner.kind == "Cluster")?;
    Some((secret.namespace()?, cluster.name.clone()))
}
