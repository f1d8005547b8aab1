//! The answers to what only passes over Clusters ask for.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::ListParams,
    runtime::reflector::{ObjectRef, Store},
};
use serde::{Serialize, de::DeserializeOwned};
use sluice_core::{
    build::FIELD_MANAGER,
    pass::{After, Answer, Ask, Contact, Facts, Object, Server, Watched},
};
use sluice_crds::{foreign::PackageInstall, labels::label};

use super::Context;
use crate::{
    remote::{self, Remote, Served, Unread},
    runner::{
        self,
        reads::{Answered, failure, unconnected},
    },
};

/// What one pass over a Cluster is carried out with.
pub(super) struct Host<'a> {
    pub(super) ctx: &'a Context,
    pub(super) facts: &'a Facts,
}

impl runner::Host<Facts> for Host<'_> {
    fn client(&self) -> &Client {
        &self.ctx.client
    }

    fn manager(&self) -> &'static str {
        FIELD_MANAGER
    }

    fn subject(&self) -> (&str, &str) {
        (&self.facts.owner.namespace, &self.facts.owner.name)
    }

    async fn answer(&self, remote: Option<&Arc<Remote>>, ask: &Ask) -> Answered {
        if let Ask::Connection(kubeconfig) = ask {
            let (owner, remotes) = (&self.facts.owner, &self.ctx.remotes);
            let cluster = ObjectRef::new(&owner.name).within(&owner.namespace);
            return match remotes.open(&owner.uid, &cluster, &kubeconfig.parsed, &kubeconfig.digest) {
                Ok(remote) => {
                    remote.first_lists().await;
                    (Answer::Connected(remote.number()), Some(remote))
                }
                Err(error) => (Answer::NotConnected(error.to_string()), None),
            };
        }
        (self.read(remote, ask).await, None)
    }

    async fn writing(&self, after: After) {
        self.ctx.memories().keep(&self.facts.owner.uid, after.memory);
    }
}

impl Host<'_> {
    async fn read(&self, remote: Option<&Arc<Remote>>, ask: &Ask) -> Answer {
        let (stores, system) = (&self.ctx.stores, &self.ctx.settings.pass.system_namespace);
        let or_absent = |found: Option<Answer>| found.unwrap_or(Answer::Absent);
        let remote = match (ask, remote) {
            (Ask::Template(release), _) => {
                let key = ObjectRef::new(release).within(system);
                return or_absent(stores.templates.get(&key).map(Answer::Template));
            }
            (Ask::Package(name), _) => {
                let key = ObjectRef::new(name).within(system);
                return or_absent(stores.packages.get(&key).map(Answer::Package));
            }
            (Ask::Watched(server, name), _) => {
                let remote = remote.map(AsRef::as_ref);
                return Answer::Watched(Box::new(self.watched(remote, *server, name)));
            }
            (_, Some(remote)) => remote,
            (_, None) => return Answer::Failed(unconnected()),
        };
        match ask {
            Ask::Contact(_) => Answer::Contact(contact(remote).await),
            Ask::Installs => installs(remote, system).await,
            Ask::LabelledSecrets => labelled(remote, system, &self.facts.owner.name).await,
            _ => Answer::Absent,
        }
    }

    /// What the watches show of one name.
    fn watched(&self, remote: Option<&Remote>, server: Server, name: &str) -> Watched {
        let stores = &self.ctx.stores;
        match (server, remote) {
            (Server::Management, _) => {
                let namespace = &self.facts.owner.namespace;
                Watched {
                    install: get(&stores.installs, name, namespace),
                    app: get(&stores.apps, name, namespace),
                    first_seen: None,
                    filled: true,
                }
            }
            (Server::Workload, Some(remote)) => {
                let namespace = &self.ctx.settings.pass.system_namespace;
                // Asked first: what is listed afterwards may be missing below.
                let filled = remote.is_filled();
                Watched {
                    install: get(&remote.installs, name, namespace),
                    app: get(&remote.apps, name, namespace),
                    first_seen: remote.first_seen_run(name),
                    filled,
                }
            }
            (Server::Workload, None) => Watched::default(),
        }
    }
}

fn get<K>(store: &Store<K>, name: &str, namespace: &str) -> Option<Arc<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    store.get(&ObjectRef::new(name).within(namespace))
}

/// How the workload answers; it is asked only where its watches have not found it silent.
async fn contact(remote: &Remote) -> Contact {
    if remote.has_ended() {
        return Contact::Ended;
    }
    if let remote::Contact::Silent(since) = remote.contact() {
        return Contact::Silent {
            since,
            now: Timestamp::now(),
            last_answer: remote.last_answer(),
        };
    }
    if let Some(why) = remote.given_up() {
        return Contact::GivenUp(why.to_string());
    }
    match remote.served().await {
        Ok(Served::Same(uid)) => Contact::Serves { uid },
        Ok(Served::Replaced) => Contact::Replaced,
        Err(Unread { since, source }) => Contact::Unread {
            since,
            failure: failure(Server::Workload, &source),
        },
    }
}

async fn installs(remote: &Remote, namespace: &str) -> Answer {
    let api = Api::<PackageInstall>::namespaced(remote.client.clone(), namespace);
    listed(api.list(&ListParams::default()).await)
}

/// The Secrets that are labelled with a Cluster, without their content.
async fn labelled(remote: &Remote, namespace: &str, cluster: &str) -> Answer {
    let selector = format!("{}={cluster}", label::CLUSTER_NAME);
    let api = Api::<Secret>::namespaced(remote.client.clone(), namespace);
    listed(api.list_metadata(&ListParams::default().labels(&selector)).await)
}

fn listed<K>(read: kube::Result<kube::core::ObjectList<K>>) -> Answer
where
    K: Clone + Serialize + DeserializeOwned,
{
    match read {
        Ok(list) => Answer::Listed(
            list.items
                .iter()
                .map(|item| Object(serde_json::to_value(item).unwrap_or_default()))
                .collect(),
        ),
        Err(error) => Answer::Failed(failure(Server::Workload, &error)),
    }
}
