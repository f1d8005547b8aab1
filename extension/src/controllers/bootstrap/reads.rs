//! The answers to what only passes over Clusters ask for.

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, NamespaceResourceScope, ObjectList},
};
use serde::{Serialize, de::DeserializeOwned};
use sluice_core::{
    build::FIELD_MANAGER,
    compact::Kept,
    pass::{Answer, Ask, Effects, Facts, Failure, Object, ParsedKubeconfig, Server, Watched},
};
use sluice_crds::{
    foreign::{App, Package, PackageInstall},
    labels::label,
};

use super::Context;
use crate::{
    remote::Remote,
    runner::{self, reads::failure},
    store::Store,
    triggers::ClusterRef,
};

/// What one pass over a Cluster is carried out with.
pub(super) struct Host<'a> {
    pub(super) ctx: &'a Context,
    pub(super) facts: &'a Facts,
    /// The connection to the workload, once the pass has asked for it.
    pub(super) remote: OnceLock<Arc<Remote>>,
    /// A client of the workload for this pass alone, once the pass has asked for it.
    pub(super) looking: OnceLock<Client>,
}

impl runner::Host<Facts> for Host<'_> {
    const MANAGER: &'static str = FIELD_MANAGER;

    fn subject(&self) -> (&str, &str) {
        (&self.facts.owner.namespace, &self.facts.owner.name)
    }

    fn client(&self, server: Server) -> Result<&Client, Failure> {
        match server {
            Server::Management => Ok(&self.ctx.client),
            Server::Workload => match (self.remote.get(), self.looking.get()) {
                (None, Some(client)) => Ok(client),
                _ => Ok(&self.remote()?.client),
            },
        }
    }

    async fn answer(&self, ask: &Ask) -> Result<Answer, Failure> {
        let (stores, system) = (&self.ctx.stores, &self.ctx.settings.system_namespace);
        let all = ListParams::default();
        Ok(match ask {
            Ask::Template(release) => {
                get(&stores.templates, release, system).map_or(Answer::Absent, Answer::Template)
            }
            Ask::Package(name) => get(&stores.packages, name, system).map_or(Answer::Absent, Answer::Package),
            Ask::Watched(server, name) => Answer::Watched(Box::new(self.watched(*server, name))),
            Ask::Connection(kubeconfig) => self.connect(kubeconfig).await,
            Ask::Contact(_) => Answer::Contact(self.remote()?.contact().await),
            Ask::LookConnection(kubeconfig) => self.look(kubeconfig),
            Ask::Installs => listed(self.workload::<PackageInstall>()?.list(&all).await)?,
            Ask::Apps => {
                // What comes from the Package is in no type.
                let client = runner::Host::client(self, Server::Workload)?.clone();
                let resource = ApiResource::erase::<App>(&());
                let api = Api::<DynamicObject>::namespaced_with(client, system, &resource);
                listed(api.list(&all).await)?
            }
            Ask::PackageNames => listed(self.workload::<Package>()?.list_metadata(&all).await)?,
            Ask::LabelledSecrets => {
                let labels = format!("{}={}", label::CLUSTER_NAME, self.facts.owner.name);
                listed(self.workload::<Secret>()?.list(&all.labels(&labels)).await)?
            }
            _ => Answer::Absent,
        })
    }

    async fn writing(&self, effects: Effects) {
        self.ctx.memories().keep(&self.facts.owner.uid, effects.memory);
    }
}

impl Host<'_> {
    fn remote(&self) -> Result<&Remote, Failure> {
        let unconnected = || Failure::other(Server::Workload, "there is no connection to the workload");
        self.remote.get().map(AsRef::as_ref).ok_or_else(unconnected)
    }

    async fn connect(&self, kubeconfig: &ParsedKubeconfig) -> Answer {
        let (owner, remotes) = (&self.facts.owner, &self.ctx.remotes);
        let cluster = ClusterRef::new(&owner.namespace, &owner.name);
        match remotes.open(&owner.uid, &cluster, &kubeconfig.parsed, &kubeconfig.digest) {
            Ok(remote) => {
                remote.first_lists().await;
                Answer::Connected(self.remote.get_or_init(|| remote).number)
            }
            Err(error) => Answer::NotConnected(error.to_string()),
        }
    }

    fn look(&self, kubeconfig: &ParsedKubeconfig) -> Answer {
        let (uid, remotes) = (&self.facts.owner.uid, &self.ctx.remotes);
        match remotes.client(uid, &kubeconfig.parsed, &kubeconfig.digest) {
            Ok(client) => {
                self.looking.get_or_init(|| client);
                Answer::Connected(0)
            }
            Err(error) => Answer::NotConnected(error.to_string()),
        }
    }

    /// The objects of a kind in the system namespace of the workload.
    fn workload<K>(&self) -> Result<Api<K>, Failure>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = runner::Host::client(self, Server::Workload)?.clone();
        Ok(Api::namespaced(client, &self.ctx.settings.system_namespace))
    }

    /// What the watches show of one name.
    fn watched(&self, server: Server, name: &str) -> Watched {
        let (stores, settings) = (&self.ctx.stores, &self.ctx.settings);
        match (server, self.remote.get()) {
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
                let namespace = &settings.system_namespace;
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

fn get<K: Kept>(store: &Store<K>, name: &str, namespace: &str) -> Option<Arc<K>> {
    store.get(Some(namespace), name)
}

fn listed<K: Clone + Serialize + DeserializeOwned>(
    read: kube::Result<ObjectList<K>>,
) -> Result<Answer, Failure> {
    let list = read.map_err(|error| failure(Server::Workload, &error))?;
    let object = |item| Object(serde_json::to_value(item).unwrap_or_default());
    Ok(Answer::Listed(list.items.iter().map(object).collect()))
}
