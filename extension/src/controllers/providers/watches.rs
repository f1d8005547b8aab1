//! Objects that values are computed from, of kinds that are only known when somebody asks for them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use sluice_core::providers::Source;
use tokio::{
    sync::{Mutex, OnceCell},
    task::AbortHandle,
};
use tracing::warn;

use super::{Error, dependents::Dependents, evaluate::Read};
use crate::{
    controllers::served,
    watch::{Seen, follow},
};

/// How long a watch may take to list what there is.
const LISTING: Duration = Duration::from_secs(10);

/// Watches every kind that some configuration depends on, from the first one on.
pub(super) struct Watches {
    client: Client,
    dependents: Dependents,
    /// By group, kind and, where only one object is watched, its namespace and name.
    watched: Mutex<HashMap<Key, Arc<OnceCell<Watched>>>>,
}

type Key = (String, String, Option<Single>);

#[derive(PartialEq, Eq, Hash)]
struct Single {
    namespace: Option<String>,
    name: String,
}

struct Watched {
    resource: ApiResource,
    store: Store<DynamicObject>,
    watch: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Watches {
    pub(super) fn new(client: Client, dependents: Dependents) -> Self {
        Self {
            client,
            dependents,
            watched: Mutex::default(),
        }
    }

    /// What is there. Secrets are asked for by name; everything else is watched from the first time on. A kind that is not
    /// served has no objects, and is asked for again.
    pub(super) async fn read(&self, source: &Source) -> Result<Read, Error> {
        if let Source::Object {
            namespace: Some(namespace),
            name,
            ..
        } = source
            && source.is_secret()
        {
            return self.secret(namespace, name).await;
        }
        let cell = self.cell(source).await;
        let watched = cell.get_or_try_init(|| self.open(source)).await;
        let watched = match watched {
            Ok(watched) => watched,
            Err(NotWatched::Unserved) => {
                return Ok(Read {
                    objects: Vec::new(),
                    watched: false,
                });
            }
            Err(NotWatched::Failed(error)) => return Err(error),
        };
        let as_value = |object: &DynamicObject| {
            let mut value = serde_json::to_value(object).unwrap_or_default();
            // Objects of a list do not say what they are.
            value["apiVersion"] = watched.resource.api_version.as_str().into();
            value["kind"] = watched.resource.kind.as_str().into();
            value
        };
        let objects = match source {
            Source::Every { .. } => watched
                .store
                .state()
                .iter()
                .map(|object| as_value(object))
                .collect(),
            Source::Object { namespace, name, .. } => {
                let mut key = ObjectRef::new_with(name, watched.resource.clone());
                key.namespace.clone_from(namespace);
                watched
                    .store
                    .get(&key)
                    .iter()
                    .map(|object| as_value(object))
                    .collect()
            }
        };
        Ok(Read {
            objects,
            watched: true,
        })
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Read, Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await?;
        Ok(Read {
            objects: found
                .iter()
                .filter_map(|secret| serde_json::to_value(secret).ok())
                .collect(),
            watched: false,
        })
    }

    /// The place of the watch that shows `source`. The lock is held for no longer than it takes to look it up.
    async fn cell(&self, source: &Source) -> Arc<OnceCell<Watched>> {
        let (group, kind) = source.group_kind();
        let key = (group.to_owned(), kind.to_owned(), single(source));
        Arc::clone(self.watched.lock().await.entry(key).or_default())
    }

    async fn open(&self, source: &Source) -> Result<Watched, NotWatched> {
        let (group, kind) = source.group_kind();
        let resource = served(&self.client, group, kind)
            .await?
            .ok_or(NotWatched::Unserved)?;
        let everything = || Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let (api, config) = match single(source) {
            None => (everything(), watcher::Config::default()),
            Some(Single { namespace, name }) => (
                namespace.map_or_else(everything, |namespace| {
                    Api::namespaced_with(self.client.clone(), &namespace, &resource)
                }),
                watcher::Config::default().fields(&format!("metadata.name={name}")),
            ),
        };
        let dependents = self.dependents.clone();
        let (group, kind) = (group.to_owned(), kind.to_owned());
        let what = source.to_string();
        let (store, run) = follow(api, config, resource.clone(), move |seen| match seen {
            Seen::Touched(object) | Seen::Gone(object) => {
                let every = Source::Every {
                    group: group.clone(),
                    kind: kind.clone(),
                };
                dependents.changed(&every);
                dependents.changed(&Source::Object {
                    group: group.clone(),
                    kind: kind.clone(),
                    namespace: object.namespace(),
                    name: object.name_any(),
                });
            }
            Seen::Failed(error) => warn!(kind, %error, "Watching what configurations depend on"),
            Seen::Synced => {}
        });
        let watched = Watched {
            resource,
            store,
            watch: tokio::spawn(run).abort_handle(),
        };
        let listed = tokio::time::timeout(LISTING, watched.store.wait_until_ready()).await;
        match listed {
            Ok(Ok(())) => Ok(watched),
            _ => Err(NotWatched::Failed(Error::Unlisted(what))),
        }
    }
}

/// Why there is no watch.
enum NotWatched {
    /// The kind is not served.
    Unserved,
    Failed(Error),
}

impl From<kube::Error> for NotWatched {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The one object that is watched, where there are many others of its kind that nobody asks for. Namespaces are few and
/// small, and every tenant asks for another one.
fn single(source: &Source) -> Option<Single> {
    match source {
        Source::Object {
            group,
            kind,
            namespace,
            name,
        } if (group.is_empty() && kind != "Namespace") || group == "rbac.authorization.k8s.io" => {
            Some(Single {
                namespace: namespace.clone(),
                name: name.clone(),
            })
        }
        _ => None,
    }
}
