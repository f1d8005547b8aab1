//! Everything of the management cluster that is kept in memory.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt, select_all};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use sluice_core::bootstrap::{Catalogue, PackageFacts};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    labels::{annotation, label},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};
use tokio::sync::OnceCell;

use crate::{
    controllers::providers::Dependents,
    freshness::Freshness,
    triggers::{ClusterRef, Triggers},
    watch::{Followed, Seen, follow, follow_dated},
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
    /// Only one task may wait for a store: its waker is kept in a single place, and the last one to ask takes it from
    /// the others, which are then never woken (kube-runtime 5.0, `utils/delayed_init.rs`).
    filled: Arc<OnceCell<()>>,
    /// The facts of each Package at a resourceVersion, by its name: its whole content is digested for them.
    facts: Arc<Mutex<HashMap<String, Digested>>>,
}

/// A resourceVersion, and the facts of the Package at it.
type Digested = (Option<String>, PackageFacts);

/// The ages of the stores that hooks rest on. Templates, Packages, PackageInstalls and Apps are read again before a gate opens.
#[derive(Debug, Clone, Default)]
struct Ages {
    clusters: Freshness,
    bootstraps: Freshness,
    releases: Freshness,
}

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
        let topology = || watcher::Config::default().labels(label::TOPOLOGY_OWNED);
        let mut watches = Vec::new();

        let ages = Ages::default();

        let clusters = open_dated(client, &ages.clusters, &mut watches, {
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
            bootstraps: open_dated(client, &ages.bootstraps, &mut watches, same_name(triggers)),
            templates: open(
                Api::namespaced(client.clone(), system_namespace),
                all(),
                &mut watches,
                move |_| {
                    by_template.wake();
                },
            ),
            releases: open_dated(client, &ages.releases, &mut watches, move |_| {
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
            ages,
            ended: Arc::default(),
            filled: Arc::default(),
            facts: Arc::default(),
        };
        let ended = Arc::clone(&stores.ended);
        let following = select_all(watches).map(move |(kind, ..)| {
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
        let Ages {
            clusters,
            bootstraps,
            releases,
        } = &self.ages;
        [
            ("Cluster", clusters.age()),
            ("ClusterBootstrap", bootstraps.age()),
            ("TanzuKubernetesRelease", releases.age()),
        ]
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
            ages: _,
            ended: _,
            filled: _,
            facts: _,
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
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut facts = |package: &Package| {
            let version = package.resource_version();
            match known.get(&package.name_any()) {
                Some((of, facts)) if *of == version => facts.clone(),
                _ => {
                    let facts = PackageFacts::of(package);
                    known.insert(package.name_any(), (version, facts.clone()));
                    facts
                }
            }
        };
        let catalogue: Catalogue = self
            .packages
            .state()
            .iter()
            .map(|package| (package.name_any(), facts(package)))
            .collect();
        known.retain(|name, _| catalogue.contains_key(name));
        catalogue
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

/// Keeps one store up to date. Returns its kind when it does so no more.
type Watch = BoxFuture<'static, String>;

/// `run` until it ends or panics.
fn watch<K: Resource<DynamicType = ()>>(run: impl Future<Output = ()> + Send + 'static) -> Watch {
    let ended = AssertUnwindSafe(run).catch_unwind();
    ended.map(|_either_way| K::kind(&()).into_owned()).boxed()
}

fn all() -> watcher::Config {
    watcher::Config::default()
}

fn open<K>(
    api: Api<K>,
    config: watcher::Config,
    watches: &mut Vec<Watch>,
    touched: impl Fn(&K) + Send + 'static,
) -> Store<K>
where
    K: Followed + Resource<DynamicType = ()>,
{
    let (store, run) = follow(api, config, (), reporting(touched));
    watches.push(watch::<K>(run));
    store
}

fn open_dated<K>(
    client: &Client,
    freshness: &Freshness,
    watches: &mut Vec<Watch>,
    touched: impl Fn(&K) + Send + 'static,
) -> Store<K>
where
    K: Followed + Resource<DynamicType = ()>,
{
    let api = Api::all(freshness.client(client));
    let (store, run) = follow_dated(api, all(), (), freshness.clone(), reporting(touched));
    watches.push(watch::<K>(run));
    store
}

fn reporting<K>(touched: impl Fn(&K) + Send + 'static) -> impl FnMut(Seen<'_, K>) + Send + 'static
where
    K: Resource<DynamicType = ()> + 'static,
{
    move |seen: Seen<'_, K>| match seen {
        Seen::Touched(object) | Seen::Gone(object) => touched(object),
        Seen::Failed(error) => tracing::warn!(kind = %K::kind(&()), %error, "Watching"),
        Seen::Synced | Seen::GivenUp(_) => {}
    }
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
