//! Everything of the management cluster that is kept in memory.

use std::{collections::BTreeMap, fmt::Debug, hash::Hash, sync::Arc};

use futures::future::{BoxFuture, FutureExt};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use sluice_core::bootstrap::{Catalogue, PackageFacts};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    labels::{annotation, label},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};
use tokio::sync::OnceCell;

use crate::{
    controllers::providers::Dependents,
    triggers::{ClusterRef, Triggers},
    watch::{Seen, follow},
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
    /// Only one task may wait for a store: its waker is kept in a single place, and the last one to ask takes it from
    /// the others, which are then never woken (kube-runtime 5.0, `utils/delayed_init.rs`).
    filled: Arc<OnceCell<()>>,
}

impl Stores {
    /// The stores and the future that keeps them up to date. Whatever concerns a Cluster wakes it.
    #[must_use]
    pub fn open(
        client: &Client,
        system_namespace: &str,
        triggers: &Triggers,
        dependents: &Dependents,
    ) -> (Self, BoxFuture<'static, ()>) {
        let topology = || watcher::Config::default().labels(label::TOPOLOGY_OWNED);
        let mut watches = Vec::new();

        let clusters = open(Api::all(client.clone()), all(), &mut watches, {
            let (triggers, dependents) = (triggers.clone(), dependents.clone());
            move |cluster: &Cluster| {
                triggers.wake(ObjectRef::from_obj(cluster));
                dependents.cluster_changed(cluster);
            }
        });
        let every = EveryCluster {
            clusters: clusters.clone(),
            triggers: triggers.clone(),
        };
        let (by_release, by_template, by_package) = (every.clone(), every.clone(), every.clone());
        let by_class = every;

        let stores = Self {
            bootstraps: open(Api::all(client.clone()), all(), &mut watches, same_name(triggers)),
            templates: open(
                Api::namespaced(client.clone(), system_namespace),
                all(),
                &mut watches,
                move |_| {
                    by_template.wake();
                },
            ),
            releases: open(Api::all(client.clone()), all(), &mut watches, move |_| {
                by_release.wake();
            }),
            classes: open(Api::all(client.clone()), all(), &mut watches, move |_| {
                by_class.wake();
            }),
            machine_deployments: open(
                Api::all(client.clone()),
                topology(),
                &mut watches,
                labelled(triggers),
            ),
            machine_pools: open(
                Api::all(client.clone()),
                topology(),
                &mut watches,
                labelled(triggers),
            ),
            packages: open(
                Api::namespaced(client.clone(), system_namespace),
                all(),
                &mut watches,
                move |_| {
                    by_package.wake();
                },
            ),
            installs: open(Api::all(client.clone()), all(), &mut watches, annotated(triggers)),
            apps: open(Api::all(client.clone()), all(), &mut watches, installed(triggers)),
            clusters,
            filled: Arc::default(),
        };
        (stores, futures::future::join_all(watches).map(drop).boxed())
    }

    /// Waits until every store holds every object of the server, and says how many kinds are missing meanwhile.
    pub async fn synced(&self) {
        self.filled.get_or_init(|| self.wait_for_each()).await;
    }

    async fn wait_for_each(&self) {
        let Self {
            clusters,
            bootstraps,
            templates,
            releases,
            classes,
            machine_deployments,
            machine_pools,
            packages,
            installs,
            apps,
            filled: _,
        } = self;
        // A store that will never be ready belongs to a process that ends.
        let _ended = tokio::join!(
            clusters.wait_until_ready(),
            bootstraps.wait_until_ready(),
            templates.wait_until_ready(),
            releases.wait_until_ready(),
            classes.wait_until_ready(),
            machine_deployments.wait_until_ready(),
            machine_pools.wait_until_ready(),
            packages.wait_until_ready(),
            installs.wait_until_ready(),
            apps.wait_until_ready(),
        );
    }

    /// What the Packages of the system namespace say of themselves.
    #[must_use]
    pub fn catalogue(&self) -> Catalogue {
        let facts = |package: &Package| PackageFacts {
            ref_name: package.spec.ref_name.clone(),
            version: package.spec.version.clone(),
        };
        self.packages
            .state()
            .iter()
            .map(|package| (package.name_any(), facts(package)))
            .collect::<BTreeMap<_, _>>()
    }
}

#[derive(Clone)]
struct EveryCluster {
    clusters: Store<Cluster>,
    triggers: Triggers,
}

impl EveryCluster {
    /// Releases, templates and packages change rarely, and a reconcile that finds nothing to do costs no request.
    fn wake(&self) {
        for cluster in self.clusters.state() {
            if cluster.labels().contains_key(label::TKR) {
                self.triggers.wake(ObjectRef::from_obj(cluster.as_ref()));
            }
        }
    }
}

fn all() -> watcher::Config {
    watcher::Config::default()
}

fn open<K>(
    api: Api<K>,
    config: watcher::Config,
    watches: &mut Vec<BoxFuture<'static, ()>>,
    touched: impl Fn(&K) + Send + 'static,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let (store, run) = follow(api, config, (), move |seen| match seen {
        Seen::Touched(object) | Seen::Gone(object) => touched(object),
        Seen::Failed(error) => tracing::warn!(kind = %K::kind(&()), %error, "Watching"),
        Seen::Synced => {}
    });
    watches.push(run.boxed());
    store
}

/// A ClusterBootstrap belongs to the Cluster of its name.
fn same_name(triggers: &Triggers) -> impl Fn(&ClusterBootstrap) + Send + 'static {
    let triggers = triggers.clone();
    move |object| triggers.wake(cluster(&object.name_any(), object.namespace()))
}

/// Workers carry the name of their Cluster in a label.
fn labelled<K: Resource>(triggers: &Triggers) -> impl Fn(&K) + Send + 'static {
    let triggers = triggers.clone();
    move |object| {
        if let Some(name) = object.labels().get(label::CAPI_CLUSTER_NAME) {
            triggers.wake(cluster(name, object.namespace()));
        }
    }
}

/// PackageInstalls carry the name of their Cluster in an annotation.
fn annotated(triggers: &Triggers) -> impl Fn(&PackageInstall) + Send + 'static {
    let triggers = triggers.clone();
    move |object| {
        if let Some(name) = object.annotations().get(annotation::CLUSTER_NAME) {
            triggers.wake(cluster(name, object.namespace()));
        }
    }
}

/// The App of a cluster's kapp-controller is named as its PackageInstall: `<cluster>-kapp-controller`.
fn installed(triggers: &Triggers) -> impl Fn(&App) + Send + 'static {
    let triggers = triggers.clone();
    move |object| {
        if let Some(name) = object.name_any().strip_suffix("-kapp-controller") {
            triggers.wake(cluster(name, object.namespace()));
        }
    }
}

fn cluster(name: &str, namespace: Option<String>) -> ClusterRef {
    ObjectRef::new(name).within(&namespace.unwrap_or_default())
}
