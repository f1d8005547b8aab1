//! Objects that values are computed from, of kinds that are only known once a configuration names them.

use std::sync::{Arc, Mutex, PoisonError};

use kube::{
    Api, Client, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::{reflector::ObjectRef, watcher},
};
use sluice_core::{
    chain::chain,
    providers::{Single, Source},
    step::{Answer, Object},
    walls::NamedKinds,
};
use tracing::warn;

use super::dependents::Dependents;
use crate::{clock::now, contract::Contract, kind_watch::KindWatch, runner::reads::served, watch::Seen};

/// Watches every kind that some configuration depends on, from the first one on.
pub(super) struct Watches {
    client: Client,
    dependents: Dependents,
    contract: Contract,
    /// By group, kind, whether a Cluster names that and, where only one object is watched, its namespace and name.
    watched: Mutex<NamedKinds<Key, Arc<KindWatch<DynamicObject>>>>,
}

type Key = (String, String, bool, Option<Single>);

impl Watches {
    pub(super) fn new(client: Client, dependents: Dependents) -> Self {
        Self {
            contract: Contract::new(client.clone(), Vec::new()),
            client,
            dependents,
            watched: Mutex::default(),
        }
    }

    /// Kinds of `groups` may be named by a Cluster whatever their definitions say.
    pub(super) fn allow(&mut self, groups: Vec<String>) {
        self.contract = Contract::new(self.client.clone(), groups);
    }

    /// What is there, watched from the first time on.
    pub(super) async fn read(&self, source: &Source) -> Answer {
        let (resource, store) = match self.watch(source).settled().await {
            Ok(Some(settled)) => settled,
            Ok(None) => return Answer::Absent,
            Err(why) => return Answer::Unwatchable(why),
        };
        let as_value = |object: &Arc<DynamicObject>| {
            let mut value = serde_json::to_value(object.as_ref()).unwrap_or_default();
            // Objects of a list do not say what they are.
            value["apiVersion"] = resource.api_version.as_str().into();
            value["kind"] = resource.kind.as_str().into();
            Object(value)
        };
        Answer::Listed(match source {
            Source::Every { .. } => store.state().iter().map(as_value).collect(),
            Source::Object { namespace, name, .. } => {
                let mut key = ObjectRef::new_with(name, resource.clone());
                key.namespace.clone_from(namespace);
                store.get(&key).iter().map(as_value).collect()
            }
        })
    }

    /// The watch that shows `source`.
    fn watch(&self, source: &Source) -> Arc<KindWatch<DynamicObject>> {
        let (group, kind) = source.group_kind();
        let key = (
            group.to_owned(),
            kind.to_owned(),
            source.kind_is_given(),
            source.single(),
        );
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = |watch: &Arc<_>| KindWatch::state(watch).standing();
        Arc::clone(watched.ask(key, now(), standing, |_| Arc::new(self.open(source))))
    }

    fn open(&self, source: &Source) -> KindWatch<DynamicObject> {
        let (group, kind) = source.group_kind();
        let (group, kind) = (group.to_owned(), kind.to_owned());
        let kind_is_given = source.kind_is_given();
        let find = {
            let (client, contract) = (self.client.clone(), self.contract.clone());
            let (group, kind) = (group.clone(), kind.clone());
            move || {
                let (client, contract) = (client.clone(), contract.clone());
                let (group, kind) = (group.clone(), kind.clone());
                async move {
                    if kind_is_given {
                        return contract.find(group, kind).await;
                    }
                    let found = served(&client, &group, &kind).await;
                    found.map_err(|error| chain(&error))
                }
            }
        };
        let scope = {
            let single = source.single();
            move |client: Client, resource: &ApiResource| {
                let everything = || Api::<DynamicObject>::all_with(client.clone(), resource);
                match &single {
                    None => (everything(), watcher::Config::default()),
                    Some((namespace, name)) => (
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
                        kind_is_given,
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
        KindWatch::open(self.client.clone(), find, scope, on, changed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_crds::foreign::cluster::ObjectReference;

    use super::*;
    use crate::control_plane::tests::{GROUP, Server, Way};

    fn reference(group: &str, kind: &str) -> Source {
        let reference = json!({"apiGroup": group, "kind": kind, "name": "one"});
        let reference: ObjectReference = serde_json::from_value(reference).unwrap();
        Source::referred("team-a", &reference)
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_a_cluster_names_has_to_keep_to_a_contract() {
        let server = Server::new(Way::Answers);
        let watches = Watches::new(server.client(), Dependents::default());
        let (good, deployment) = (reference(GROUP, "Good"), reference("apps", "Deployment"));
        assert!(matches!(watches.read(&good).await, Answer::Listed(found) if found.len() == 1));
        let read = watches.read(&deployment).await;
        assert!(matches!(read, Answer::Unwatchable(_)), "{read:?}");
        let secret = watches.read(&reference("", "Secret")).await;
        assert!(
            matches!(secret, Answer::Absent),
            "nothing is known of it: {secret:?}"
        );
        assert!(!server.asked_for("/api/v1/namespaces/team-a/secrets/one"));
        assert!(!server.asked_for("/apis/apps/v1/deployments"));
        let known = Source::namespaced("apps", "Deployment", "team-a", "one");
        let _not_listed_here = watches.read(&known).await;
        assert!(
            server.asked_for("/apis/apps/v1/deployments"),
            "a kind that Sluice names"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_of_the_operator_needs_no_label() {
        let server = Server::new(Way::Answers);
        server.set(|state| state.labelled = false);
        let mut watches = Watches::new(server.client(), Dependents::default());
        let good = reference(GROUP, "Good");
        assert!(matches!(watches.read(&good).await, Answer::Unwatchable(_)));
        watches.watched = Mutex::default();
        watches.allow(vec![GROUP.to_owned()]);
        assert!(matches!(watches.read(&good).await, Answer::Listed(_)));
    }
}
