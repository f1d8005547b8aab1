//! Objects that values are computed from, of kinds that are only known once a configuration names them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::{reflector::ObjectRef, watcher},
};
use sluice_core::providers::Source;
use tracing::warn;

use super::{Error, dependents::Dependents, evaluate::Read};
use crate::{
    controllers::{chain, served},
    kind_watch::{KindWatch, State},
    watch::Seen,
};

/// Watches every kind that some configuration depends on, from the first one on.
pub(super) struct Watches {
    client: Client,
    dependents: Dependents,
    /// By group, kind and, where only one object is watched, its namespace and name.
    watched: Mutex<HashMap<Key, Arc<KindWatch<DynamicObject>>>>,
}

type Key = (String, String, Option<Single>);

#[derive(PartialEq, Eq, Hash)]
struct Single {
    namespace: Option<String>,
    name: String,
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
        let (resource, store) = match self.watch(source).settled().await {
            State::Readable { resource, store } => (resource, store),
            State::Unserved => {
                return Ok(Read {
                    objects: Vec::new(),
                    watched: false,
                });
            }
            State::Unreadable(why) => return Err(Error::Unreadable(source.to_string(), why)),
            State::Reading => return Err(Error::Unreadable(source.to_string(), "it is being listed".into())),
        };
        let as_value = |object: &DynamicObject| {
            let mut value = serde_json::to_value(object).unwrap_or_default();
            // Objects of a list do not say what they are.
            value["apiVersion"] = resource.api_version.as_str().into();
            value["kind"] = resource.kind.as_str().into();
            value
        };
        let objects = match source {
            Source::Every { .. } => store.state().iter().map(|object| as_value(object)).collect(),
            Source::Object { namespace, name, .. } => {
                let mut key = ObjectRef::new_with(name, resource.clone());
                key.namespace.clone_from(namespace);
                store.get(&key).iter().map(|object| as_value(object)).collect()
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

    /// The watch that shows `source`.
    fn watch(&self, source: &Source) -> Arc<KindWatch<DynamicObject>> {
        let (group, kind) = source.group_kind();
        let key = (group.to_owned(), kind.to_owned(), single(source));
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(watched.entry(key).or_insert_with(|| Arc::new(self.open(source))))
    }

    fn open(&self, source: &Source) -> KindWatch<DynamicObject> {
        let (group, kind) = source.group_kind();
        let (group, kind) = (group.to_owned(), kind.to_owned());
        let find = {
            let (client, group, kind) = (self.client.clone(), group.clone(), kind.clone());
            move || {
                let (client, group, kind) = (client.clone(), group.clone(), kind.clone());
                async move {
                    served(&client, &group, &kind)
                        .await
                        .map_err(|error| chain(&error))
                }
            }
        };
        let scope = {
            let (client, single) = (self.client.clone(), single(source));
            move |resource: &ApiResource| {
                let everything = || Api::<DynamicObject>::all_with(client.clone(), resource);
                match &single {
                    None => (everything(), watcher::Config::default()),
                    Some(Single { namespace, name }) => (
                        namespace.as_ref().map_or_else(everything, |namespace| {
                            Api::namespaced_with(client.clone(), namespace, resource)
                        }),
                        watcher::Config::default().fields(&format!("metadata.name={name}")),
                    ),
                }
            }
        };
        let every = Source::Every {
            group: group.clone(),
            kind: kind.clone(),
        };
        let on = {
            let (dependents, every) = (self.dependents.clone(), every.clone());
            move |seen: &Seen<'_, DynamicObject>| match seen {
                Seen::Touched(object) | Seen::Gone(object) => {
                    dependents.changed(&every);
                    dependents.changed(&Source::Object {
                        group: group.clone(),
                        kind: kind.clone(),
                        namespace: object.namespace(),
                        name: object.name_any(),
                    });
                }
                Seen::Failed(error) => warn!(kind, %error, "Watching what configurations depend on"),
                Seen::Synced | Seen::GivenUp(_) => {}
            }
        };
        let changed = {
            let (dependents, source) = (self.dependents.clone(), source.clone());
            move || {
                dependents.changed(&every);
                dependents.changed(&source);
            }
        };
        KindWatch::open(find, scope, on, changed)
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
