//! Everything of the management cluster that is kept in memory.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt, Shared, join_all, select_all};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use sluice_core::{
    bootstrap::{Catalogue, Digests},
    stores::{self, OfCluster, Stored},
    walls::FollowedStore,
};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    labels::label,
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use crate::{
    clock::now,
    controllers::providers::Dependents,
    freshness::dating,
    lock::lock,
    triggers::Triggers,
    watch::{Followed, follow, reporting},
};

/// The stores. All are filled before the first reconcile; see [`Stores::synced`].
#[derive(Debug, Clone)]
pub struct Stores {
    /// All Clusters.
    pub clusters: Store<Cluster>,
    /// All ClusterBootstraps.
    pub bootstraps: Store<ClusterBootstrap>,
    /// ClusterBootstrapTemplates of the system namespace.
    pub templates: Store<ClusterBootstrapTemplate>,
    /// All TanzuKubernetesReleases.
    pub releases: Store<TanzuKubernetesRelease>,
    /// All ClusterClasses.
    pub classes: Store<ClusterClass>,
    /// MachineDeployments that belong to a topology.
    pub machine_deployments: Store<MachineDeployment>,
    /// MachinePools that belong to a topology.
    pub machine_pools: Store<MachinePool>,
    /// Packages of the system namespace.
    pub packages: Store<Package>,
    /// PackageInstalls of the management cluster.
    pub installs: Store<PackageInstall>,
    /// Apps of the management cluster.
    pub apps: Store<App>,
    ages: Ages,
    /// The kind whose store is not kept up to date any more.
    ended: Arc<OnceLock<String>>,
    /// Ends when every store is filled. Only one task may wait for a store itself: its waker is kept in a single place, and the last one
    /// to ask takes it from the others, which are then never woken (kube-runtime 5.0, `utils/delayed_init.rs`).
    filled: Shared<BoxFuture<'static, ()>>,
    digests: Arc<Mutex<Digests>>,
}

/// The ages of the stores that hooks rest on, by kind. Templates, Packages, PackageInstalls and Apps are read again before a gate
/// opens.
type Ages = [(&'static str, Arc<Mutex<FollowedStore>>); 3];

impl Stores {
    /// The stores and the future that keeps them up to date. Whatever concerns a Cluster wakes it.
    ///
    /// The future ends when a store is not kept up to date any more, because of a panic: see [`Stores::ended`]. Hooks are answered
    /// from what such a store held then, so the process has to end. Other replicas answer meanwhile.
    #[must_use]
    pub fn open(
        client: &Client,
        system_namespace: &str,
        triggers: &Triggers,
        dependents: &Dependents,
    ) -> (Self, BoxFuture<'static, ()>) {
        let ages: Ages = ["Cluster", "ClusterBootstrap", "TanzuKubernetesRelease"]
            .map(|kind| (kind, Arc::new(Mutex::new(FollowedStore::dated()))));
        let [(_, of_clusters), (_, of_bootstraps), (_, of_releases)] = &ages;
        let mut opening = Opening {
            client,
            followed: Vec::new(),
            filled: Vec::new(),
        };
        let clusters = opening.dated(of_clusters, {
            let (triggers, dependents) = (triggers.clone(), dependents.clone());
            move |cluster: &Cluster| {
                triggers.wake_of(cluster);
                dependents.cluster_changed(cluster);
            }
        });
        let topology = || watcher::Config::default().labels(label::TOPOLOGY_OWNED);
        let system = || Some(system_namespace);
        let stores = Self {
            bootstraps: opening.dated(of_bootstraps, one(triggers)),
            templates: opening.store(system(), all(), every(&clusters, triggers)),
            releases: opening.dated(of_releases, every(&clusters, triggers)),
            classes: opening.store(None, all(), every(&clusters, triggers)),
            machine_deployments: opening.store(None, topology(), one(triggers)),
            machine_pools: opening.store(None, topology(), one(triggers)),
            packages: opening.store(system(), all(), every(&clusters, triggers)),
            installs: opening.store(None, all(), one(triggers)),
            apps: opening.store(None, all(), one(triggers)),
            clusters,
            ages,
            ended: Arc::default(),
            filled: join_all(opening.filled).map(drop).boxed().shared(),
            digests: Arc::default(),
        };
        let ended = Arc::clone(&stores.ended);
        let following = select_all(opening.followed).map(move |(kind, ..)| {
            let _the_first_one_is_named = ended.set(kind);
        });
        (stores, following.boxed())
    }

    /// The kind whose store is not kept up to date any more, if there is one.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    /// The stores that decisions rest on, each with the time since it is known to have missed no change; none before it was
    /// filled.
    #[must_use]
    pub fn ages(&self) -> [(&'static str, Option<Duration>); 3] {
        self.ages
            .each_ref()
            .map(|(kind, followed)| (*kind, lock(followed).age(now())))
    }

    /// Waits until every store holds every object of the server.
    pub async fn synced(&self) {
        self.filled.clone().await;
    }
}

/// Decisions look into them.
macro_rules! stored {
    ($($Kind:ty: $store:ident),+ $(,)?) => {
        $(impl Stored<$Kind> for Stores {
            fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<$Kind>> {
                let key = ObjectRef::new(name);
                self.$store.get(&match namespace {
                    Some(namespace) => key.within(namespace),
                    None => key,
                })
            }

            fn all(&self, wanted: impl Fn(&$Kind) -> bool) -> Vec<Arc<$Kind>> {
                self.$store.state_filter(wanted)
            }
        })+
    };
}
stored!(
    Cluster: clusters,
    ClusterBootstrap: bootstraps,
    ClusterBootstrapTemplate: templates,
    TanzuKubernetesRelease: releases,
    ClusterClass: classes,
    MachineDeployment: machine_deployments,
    MachinePool: machine_pools,
);

impl stores::Stores for Stores {
    fn catalogue(&self) -> Catalogue {
        lock(&self.digests).catalogue(&self.packages.state())
    }
}

/// Stores that are being opened.
struct Opening<'a> {
    client: &'a Client,
    /// Each keeps one store up to date. Returns its kind when it does so no more.
    followed: Vec<BoxFuture<'static, String>>,
    /// Each ends when a store is filled.
    filled: Vec<BoxFuture<'static, ()>>,
}

impl Opening<'_> {
    fn store<K>(
        &mut self,
        namespace: Option<&str>,
        config: watcher::Config,
        touched: impl Fn(&K) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = self.client.clone();
        let api = match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        self.follow(api, config, Arc::default(), touched)
    }

    /// A store whose age is known.
    fn dated<K>(
        &mut self,
        followed: &Arc<Mutex<FollowedStore>>,
        touched: impl Fn(&K) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        let api = Api::all(dating(self.client.clone(), followed));
        self.follow(api, all(), Arc::clone(followed), touched)
    }

    fn follow<K>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        followed: Arc<Mutex<FollowedStore>>,
        touched: impl Fn(&K) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        let kind = K::kind(&());
        let on = reporting(kind.clone(), "Watching", touched);
        let (store, run) = follow(api, config, (), followed, on);
        let ended = AssertUnwindSafe(run).catch_unwind();
        self.followed
            .push(ended.map(|_either_way| kind.into_owned()).boxed());
        let waiting = store.clone();
        let filled = async move {
            // A store that will never be ready belongs to a process that ends.
            let _ended = waiting.wait_until_ready().await;
        };
        self.filled.push(filled.boxed());
        store
    }
}

fn all() -> watcher::Config {
    watcher::Config::default()
}

/// Wakes the Cluster that an object belongs to.
fn one<K: OfCluster>(triggers: &Triggers) -> impl Fn(&K) + Send + 'static + use<K> {
    let triggers = triggers.clone();
    move |object| triggers.wake_of(object)
}

/// Wakes every Cluster with a release. Releases, templates and packages change rarely, and a reconcile that finds nothing to do costs
/// no request.
fn every<K>(clusters: &Store<Cluster>, triggers: &Triggers) -> impl Fn(&K) + Send + 'static + use<K> {
    let (clusters, triggers) = (clusters.clone(), triggers.clone());
    move |_| {
        for cluster in clusters.state_filter(|cluster| cluster.labels().contains_key(label::TKR)) {
            triggers.wake_of(cluster.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::tests::Frozen;

    #[tokio::test(start_paused = true)]
    async fn a_store_that_panics_is_named() {
        let client = Frozen::new().client(|path| {
            assert!(!path.ends_with("/packageinstalls"), "a bug");
            Vec::new()
        });
        let (stores, following) = Stores::open(
            &client,
            "tkg-system",
            &Triggers::default(),
            &Dependents::default(),
        );
        let ended = tokio::time::timeout(Duration::from_mins(1), tokio::spawn(following)).await;
        assert!(
            ended.is_ok_and(|ended| ended.is_ok()),
            "it is noticed, and is no panic itself"
        );
        assert_eq!(stores.ended(), Some("PackageInstall"));
    }
}
