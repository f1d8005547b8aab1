//! Caches of all watched kinds of the management cluster.

use std::{
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use futures::future::{self, BoxFuture, FutureExt, join_all, select_all};
use kube::{Api, Client, Resource, core::ObjectMeta, runtime::watcher};
use sluice_core::{
    cache::{
        Cached, FollowedStore,
        stored_kind::StoredKind,
        stores::{self, Found, GateKinds, Images, OfCluster, Releases, Stored, Whole},
    },
    cluster::ClusterRef,
    decode::{Item, Undecodable},
    packages::{bootstrap::Catalogue, requirements::ManagementPackages},
    releases::ReleaseEvent,
};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    labels::label,
    lifecycle::{ClusterUpgrade, UpgradeGate, UpgradeOverride},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use crate::{
    cache::{
        event_handlers::EventHandlers,
        gate_stores::{GateFound, GateStores},
        store::Store,
        streamed::streaming,
        watch::{Followed, Presence, Seen, follow, reporting},
    },
    lock::lock,
};

/// Maximum number of ClusterClasses among which one is found for a suggestion.
const MAX_SUGGESTED: usize = 64;

/// All stores. The first reconcile waits for some of them, see [`Stores::filled_for_managed`]. Each dependent of another store waits for that
/// store.
///
/// An installation without packages watches no kind of Tanzu or Carvel: the stores of these kinds stay empty and count as filled.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Whether this installation has packages.
    has_packages: bool,
    /// UpgradeGates and ClusterUpgrades; `None` without `--gates`.
    upgrade_gates: Option<GateStores>,
    /// All Clusters.
    pub clusters: Store<Cluster>,
    /// All ClusterBootstraps.
    pub bootstraps: Store<ClusterBootstrap>,
    /// ClusterBootstrapTemplates of the system namespace.
    pub templates: Store<ClusterBootstrapTemplate>,
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
    /// All OSImages. Hooks and reconciles do not depend on them, so nothing waits for this store; its definition may be missing.
    pub images: Store<OSImage>,
    /// All UpgradeOverrides. Nothing waits for this store; its definition may be missing. Those of a Cluster are read from `whole`.
    pub overrides: Store<UpgradeOverride>,
    /// All TanzuKubernetesReleases. Decodable ones are read from `whole`.
    releases: Store<TanzuKubernetesRelease>,
    /// Kind whose watch has panicked.
    ended: Arc<OnceLock<String>>,
    /// Completes when every store is filled.
    filled: future::Shared<BoxFuture<'static, ()>>,
    /// All TanzuKubernetesReleases and the identities of all Packages of the system namespace: every reconcile needs all of them. Also all
    /// OSImages: a resolution reads many of them. And PackageInstalls and Apps of the system namespace that releases may require, without
    /// the fields that no proof needs.
    whole: Arc<Mutex<Whole>>,
}

impl Stores {
    /// Opens the stores. Returns them and the future that keeps them up to date and forwards changes to `handlers`.
    ///
    /// The future ends when a watch panics, see [`Stores::ended`]. Hooks are then decided from a frozen store, so the process has to end.
    /// Other replicas answer hooks meanwhile.
    #[must_use]
    pub fn open(
        client: &Client,
        system_namespace: &str,
        handlers: &EventHandlers,
    ) -> (Self, BoxFuture<'static, ()>) {
        let client = streaming(client.clone()).into_client();
        let mut opening = Opening {
            client: &client,
            handlers,
            followed: Vec::new(),
            filled: Vec::new(),
        };
        let whole = Arc::<Mutex<Whole>>::default();
        let releases = opening.of_packages(
            Api::all(client.clone()),
            all(),
            copy_releases(&whole, handlers),
            |_, _| {},
        );
        let packages = opening.of_packages(
            Api::namespaced(client.clone(), system_namespace),
            all(),
            copy_objects(&whole, Whole::package),
            EventHandlers::package,
        );
        let (noted, named) = (handlers.clone(), handlers.values_watches.clone());
        let clusters = opening.follow(
            Api::all(client.clone()),
            all(),
            move |seen| seen.each(|cluster, presence| noted.contents(cluster, presence)),
            EventHandlers::cluster,
        );
        let bootstraps = opening.of_packages(
            Api::all(client.clone()),
            all(),
            move |seen| seen.each(|bootstrap, presence| named.bootstrap(bootstrap, presence)),
            EventHandlers::bootstrap,
        );
        let classes = opening.follow(Api::all(client.clone()), all(), |_| {}, EventHandlers::class);
        let installs = opening.of_packages(
            Api::all(client.clone()),
            all(),
            copy_required(&whole, handlers, system_namespace, Whole::system_install),
            EventHandlers::install,
        );
        let apps = opening.of_packages(
            Api::all(client.clone()),
            all(),
            copy_required(&whole, handlers, system_namespace, Whole::system_app),
            requeue_owner::<App>,
        );
        let images = opening.images(Api::all(client.clone()), &whole);
        let overrides = opening.overrides(Api::all(client.clone()), &whole);
        let templates = Api::namespaced(client.clone(), system_namespace);
        let stores = Self {
            has_packages: !handlers.without_packages,
            upgrade_gates: opening.upgrade_gates(),
            images,
            overrides,
            clusters,
            bootstraps,
            templates: opening.of_packages(templates, all(), |_| {}, EventHandlers::template),
            classes,
            machine_deployments: opening.workers(),
            machine_pools: opening.workers(),
            packages,
            installs,
            apps,
            releases,
            whole,
            ended: Arc::default(),
            filled: join_all(opening.filled).map(drop).boxed().shared(),
        };
        let ended = Arc::clone(&stores.ended);
        let following = select_all(opening.followed).map(move |(kind, ..)| {
            let _the_first_one_is_named = ended.set(kind);
        });
        (stores, following.boxed())
    }

    /// Returns the kind whose watch has panicked, if any.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    /// Waits until the stores hold every object that reviews use without an extra request.
    pub async fn filled_for_reviews(&self) {
        self.clusters.filled().await;
        self.bootstraps.filled().await;
        self.templates.filled().await;
        self.classes.filled().await;
        self.releases.filled().await;
    }

    /// Waits until the stores show which Clusters are managed, whatever other API is missing. The status service and the leader start at
    /// that point.
    pub async fn filled_for_managed(&self) {
        self.clusters.filled().await;
        self.bootstraps.filled().await;
        self.releases.filled().await;
    }

    /// Waits until Packages and PackageInstalls are listed.
    pub async fn packages_listed(&self) {
        self.packages.filled().await;
        self.installs.filled().await;
    }

    /// Returns whether Packages and PackageInstalls are listed.
    #[must_use]
    pub fn are_packages_listed(&self) -> bool {
        self.packages.is_filled() && self.installs.is_filled()
    }

    /// Waits until the packages that releases may require are listed: PackageInstalls and Apps.
    pub async fn management_packages_listed(&self) {
        self.installs.filled().await;
        self.apps.filled().await;
    }

    /// Returns whether the packages that releases may require are listed.
    #[must_use]
    pub fn are_management_packages_listed(&self) -> bool {
        self.installs.is_filled() && self.apps.is_filled()
    }

    /// Waits until the kinds of Cluster API that a topology depends on are listed.
    pub async fn workers_listed(&self) {
        self.classes.filled().await;
        self.machine_deployments.filled().await;
        self.machine_pools.filled().await;
    }

    /// Waits until every store is filled, except those for which nothing waits.
    pub async fn synced(&self) {
        self.filled.clone().await;
    }

    /// Returns the namespaces with UpgradeOverrides.
    pub(crate) fn override_namespaces(&self) -> Vec<String> {
        lock(&self.whole).overrides.namespaces()
    }

    /// Returns the UpgradeOverrides of a namespace that can be decoded, by name.
    pub(crate) fn overrides_in(&self, namespace: &str) -> Vec<Arc<UpgradeOverride>> {
        let names = lock(&self.whole).overrides.names_in(namespace);
        // The store also has the last resourceVersion.
        let found = names
            .iter()
            .filter_map(|name| self.overrides.get(Some(namespace), name));
        found.collect()
    }

    /// Returns the namespaces with UpgradeGates.
    pub(crate) fn gate_namespaces(&self) -> Vec<String> {
        let stores = self.upgrade_gates.as_ref();
        stores.map_or_else(Vec::new, GateStores::namespaces)
    }

    /// Returns the time since which UpgradeGates and ClusterUpgrades are listed.
    pub(crate) fn gates_listed_since(&self) -> Option<Instant> {
        self.upgrade_gates.as_ref()?.listed_since()
    }

    /// Returns namespace and name of each ClusterUpgrade.
    pub(crate) fn cluster_upgrades(&self) -> Vec<ClusterRef> {
        let stores = self.upgrade_gates.as_ref();
        stores.map_or_else(Vec::new, |stores| stores.upgrades.names())
    }
}

/// Gives decisions read access to the stores.
macro_rules! stored {
    ($($Kind:ty: $store:ident),+ $(,)?) => {
        $(impl Stored<$Kind> for Stores {
            fn found(&self, namespace: Option<&str>, name: &str) -> Found<$Kind> {
                self.$store.found(namespace, name)
            }

            fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<$Kind>> {
                self.$store.of_cluster(namespace, cluster)
            }

            fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
                self.$store.undecodable(namespace, name)
            }

            fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
                self.$store.undecodable_of(namespace, cluster)
            }
        })+
    };
}
stored!(
    Cluster: clusters,
    ClusterBootstrap: bootstraps,
    ClusterBootstrapTemplate: templates,
    ClusterClass: classes,
    MachineDeployment: machine_deployments,
    MachinePool: machine_pools,
    Package: packages,
    UpgradeOverride: overrides,
);

/// One snapshot has the releases by name and all of them.
impl Stored<TanzuKubernetesRelease> for Stores {
    fn found(&self, _: Option<&str>, name: &str) -> Found<TanzuKubernetesRelease> {
        match self.releases.undecodable(None, name) {
            Some(object) => Err(object),
            None => Ok(lock(&self.whole).releases.get(name).cloned()),
        }
    }

    fn of_cluster(&self, _: &str, _: &str) -> Vec<Arc<TanzuKubernetesRelease>> {
        Vec::new()
    }

    fn undecodable(&self, _: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        self.releases.undecodable(None, name)
    }

    fn undecodable_of(&self, _: &str, _: &str) -> Option<Arc<Undecodable>> {
        None
    }
}

/// Reads of UpgradeGates are answered from their namespaces.
impl Stored<UpgradeGate> for Stores {
    fn found(&self, namespace: Option<&str>, name: &str) -> Found<UpgradeGate> {
        let stores = self.upgrade_gates.as_ref();
        let found = stores.and_then(|stores| stores.found(namespace.unwrap_or_default(), name));
        found.transpose()
    }

    fn of_cluster(&self, _: &str, _: &str) -> Vec<Arc<UpgradeGate>> {
        Vec::new()
    }

    fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        Stored::<UpgradeGate>::found(self, namespace, name).err()
    }

    fn undecodable_of(&self, _: &str, _: &str) -> Option<Arc<Undecodable>> {
        None
    }
}

/// A ClusterUpgrade has the name of its Cluster.
impl Stored<ClusterUpgrade> for Stores {
    fn found(&self, namespace: Option<&str>, name: &str) -> Found<ClusterUpgrade> {
        let stores = self.upgrade_gates.as_ref();
        stores.map_or(Ok(None), |stores| stores.upgrades.found(namespace, name))
    }

    fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<ClusterUpgrade>> {
        let found: Option<Arc<ClusterUpgrade>> = self.get(Some(namespace), cluster);
        found.into_iter().collect()
    }

    fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        Stored::<ClusterUpgrade>::found(self, namespace, name).err()
    }

    fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
        Stored::<ClusterUpgrade>::undecodable(self, Some(namespace), cluster)
    }
}

impl stores::Stores for Stores {
    fn packages_enabled(&self) -> bool {
        self.has_packages
    }

    fn gate_kinds(&self) -> GateKinds {
        let stores = self.upgrade_gates.as_ref();
        stores.map_or(GateKinds::Off, GateStores::kinds)
    }

    fn gates_of(&self, namespace: &str) -> Vec<GateFound> {
        let stores = self.upgrade_gates.as_ref();
        stores.map_or_else(Vec::new, |stores| stores.of_namespace(namespace))
    }

    fn overrides_of(&self, namespace: &str, cluster: &str) -> Option<Vec<Arc<UpgradeOverride>>> {
        let is_listed = self.overrides.is_filled();
        is_listed.then(|| lock(&self.whole).overrides.of_cluster(namespace, cluster))
    }

    fn class_with(&self, namespace: &str, version: &str) -> Option<Arc<ClusterClass>> {
        let mut names = self.classes.names();
        names.retain(|class| class.namespace() == namespace);
        names.sort_unstable();
        let mut classes = names
            .iter()
            .take(MAX_SUGGESTED)
            .filter_map(|class| self.classes.get(Some(namespace), class.name()));
        classes.find(|class| {
            let mut listed = class.spec.kubernetes_versions.iter();
            listed.any(|listed| listed == version)
        })
    }

    fn releases(&self) -> Arc<Releases> {
        Arc::clone(&lock(&self.whole).releases)
    }

    fn images(&self) -> Option<Arc<Images>> {
        self.images
            .is_filled()
            .then(|| Arc::clone(&lock(&self.whole).images))
    }

    fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
        self.releases.first_undecodable()
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&lock(&self.whole).catalogue)
    }

    fn management_packages(&self) -> Arc<ManagementPackages> {
        Arc::clone(&lock(&self.whole).management_packages)
    }

    fn is_listed(&self, kind: StoredKind) -> bool {
        match kind {
            StoredKind::Cluster => self.clusters.is_filled(),
            StoredKind::ClusterBootstrap => self.bootstraps.is_filled(),
            StoredKind::TanzuKubernetesRelease => self.releases.is_filled(),
            StoredKind::ClusterBootstrapTemplate => self.templates.is_filled(),
            StoredKind::ClusterClass => self.classes.is_filled(),
            StoredKind::MachineDeployment => self.machine_deployments.is_filled(),
            StoredKind::MachinePool => self.machine_pools.is_filled(),
            StoredKind::Package => self.packages.is_filled(),
            StoredKind::PackageInstall => self.installs.is_filled(),
            StoredKind::App => self.apps.is_filled(),
        }
    }
}

/// Stores under construction.
struct Opening<'a> {
    client: &'a Client,
    handlers: &'a EventHandlers,
    /// Futures that each keep one store up to date. Each returns its kind when its watch ends.
    followed: Vec<BoxFuture<'static, String>>,
    /// Futures that each complete when a store is filled.
    filled: Vec<BoxFuture<'static, ()>>,
}

impl Opening<'_> {
    /// Opens the store of a kind of machines, with those of topologies.
    fn workers<K>(&mut self) -> Store<K>
    where
        K: Followed + OfCluster + Resource<DynamicType = ()>,
    {
        let (api, topology) = (Api::all(self.client.clone()), all().labels(label::TOPOLOGY_OWNED));
        self.follow(
            api,
            topology,
            |_| {},
            |handlers, meta| {
                handlers.triggers.enqueue_owner_for_all::<K>(meta);
            },
        )
    }

    /// Opens the stores of UpgradeGates and ClusterUpgrades, for which nothing waits.
    fn upgrade_gates(&mut self) -> Option<GateStores> {
        if !self.handlers.with_upgrade_gates {
            return None;
        }
        let (stores, followed) = GateStores::open(self.client, self.handlers);
        for (kind, run) in followed {
            let ended = AssertUnwindSafe(run).catch_unwind();
            self.followed
                .push(ended.map(|_either_way| kind.to_owned()).boxed());
        }
        Some(stores)
    }

    /// Opens the store of OSImages, for which nothing waits.
    fn images(&mut self, api: Api<Item<OSImage>>, whole: &Arc<Mutex<Whole>>) -> Store<OSImage> {
        if self.handlers.without_packages {
            return Store::unwatched();
        }
        let takes_in = copy_objects(whole, Whole::image);
        let changed = self.handlers.releases.clone();
        let first = move |seen: &Seen<'_, OSImage>| {
            takes_in(seen);
            // An empty list counts too: from now on the set is known.
            if matches!(seen, Seen::Synced(_)) {
                changed.send(ReleaseEvent::All);
            }
        };
        let followed = FollowedStore::of_named_kind();
        self.open(api, all(), followed, first, |handlers, _| handlers.marked())
    }

    /// Opens the store of UpgradeOverrides, for which nothing waits. A change requeues the Cluster that the override names, unless it is one
    /// of its status.
    fn overrides(
        &mut self,
        api: Api<Item<UpgradeOverride>>,
        whole: &Arc<Mutex<Whole>>,
    ) -> Store<UpgradeOverride> {
        if self.handlers.without_packages {
            return Store::unwatched();
        }
        let (whole, handlers) = (Arc::clone(whole), self.handlers.clone());
        let first = move |seen: &Seen<'_, UpgradeOverride>| {
            let (mut affected, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
            let mut whole = lock(&whole);
            seen.each(|of, presence| {
                let namespace = of.metadata.namespace.as_deref().unwrap_or_default();
                for cluster in whole.overrides.saw(of, presence == Presence::There) {
                    affected.insert(ClusterRef::new(namespace, &cluster));
                }
                namespaces.insert(namespace.to_owned());
            });
            drop(whole);
            for cluster in affected {
                handlers.overridden(cluster);
            }
            for namespace in namespaces {
                handlers.override_statuses.send(namespace);
            }
        };
        let followed = FollowedStore::of_named_kind();
        self.open(api, all(), followed, first, |_, _| {})
    }

    /// Opens the store of a kind that only packages need.
    fn of_packages<K>(
        &mut self,
        api: Api<Item<K>>,
        config: watcher::Config,
        first: impl Fn(&Seen<'_, K>) + Send + 'static,
        changed: impl Fn(&EventHandlers, &ObjectMeta) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        if self.handlers.without_packages {
            return Store::unwatched();
        }
        self.follow(api, config, first, changed)
    }

    fn follow<K>(
        &mut self,
        api: Api<Item<K>>,
        config: watcher::Config,
        first: impl Fn(&Seen<'_, K>) + Send + 'static,
        changed: impl Fn(&EventHandlers, &ObjectMeta) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        let store = self.open(api, config, FollowedStore::default(), first, changed);
        let waiting = store.clone();
        // A store that never fills belongs to a process that ends.
        self.filled.push(async move { waiting.filled().await }.boxed());
        store
    }

    /// Opens a store for which nothing waits.
    fn open<K>(
        &mut self,
        api: Api<Item<K>>,
        config: watcher::Config,
        followed: FollowedStore,
        first: impl Fn(&Seen<'_, K>) + Send + 'static,
        changed: impl Fn(&EventHandlers, &ObjectMeta) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        let (kind, handlers) = (K::kind(&()), self.handlers.clone());
        let report = reporting(kind.clone(), "Failed to watch objects", move |object, _| {
            changed(&handlers, object);
        });
        let on = move |seen: &Seen<'_, K>| {
            first(seen);
            report(seen);
        };
        let restarts = self.handlers.rollbacks.restarts();
        let (store, run) = follow(api, config, followed, restarts, on);
        let ended = AssertUnwindSafe(run).catch_unwind();
        self.followed
            .push(ended.map(|_either_way| kind.into_owned()).boxed());
        store
    }
}

/// Requeues the Cluster that owns an object of kind `K`.
fn requeue_owner<K: OfCluster>(handlers: &EventHandlers, meta: &ObjectMeta) {
    handlers.triggers.enqueue_owner::<K>(meta);
}

/// Returns a handler that copies releases into `whole`, all of a list at once, and forwards changes to `handlers`.
fn copy_releases(
    whole: &Arc<Mutex<Whole>>,
    handlers: &EventHandlers,
) -> impl Fn(&Seen<'_, TanzuKubernetesRelease>) + Send + use<> {
    let (whole, handlers) = (Arc::clone(whole), handlers.clone());
    move |seen| {
        let mut changed = Vec::new();
        seen.each_undecodable(|object, _| changed.push((object.metadata.clone(), true)));
        let mut whole = lock(&whole);
        seen.each(|release, presence| {
            let rested_on = whole.release(release, presence == Presence::There);
            changed.push((release.metadata.clone(), rested_on));
        });
        drop(whole);
        for (release, rested_on) in changed {
            if rested_on {
                handlers.release(&release);
            } else {
                handlers.marked();
            }
        }
    }
}

/// Returns a handler that copies objects into `whole`, all of a list at once.
fn copy_objects<K: Cached>(
    whole: &Arc<Mutex<Whole>>,
    take_in: fn(&mut Whole, &K, bool),
) -> impl Fn(&Seen<'_, K>) + Send + use<K> {
    let whole = Arc::clone(whole);
    move |seen| {
        let mut whole = lock(&whole);
        seen.each(|object, presence| take_in(&mut whole, object, presence == Presence::There));
    }
}

/// Returns a handler that copies objects of the system namespace into `whole`, all of a list at once. It requeues the releases after a
/// change of a package that one of them requires.
fn copy_required<K: Cached>(
    whole: &Arc<Mutex<Whole>>,
    handlers: &EventHandlers,
    system_namespace: &str,
    take_in: fn(&mut Whole, &K, bool) -> bool,
) -> impl Fn(&Seen<'_, K>) + Send + use<K> {
    let (whole, handlers, system) = (Arc::clone(whole), handlers.clone(), system_namespace.to_owned());
    move |seen| {
        let (mut whole, mut is_required) = (lock(&whole), false);
        seen.each(|object, presence| {
            if object.meta().namespace.as_deref() == Some(system.as_str()) {
                is_required |= take_in(&mut whole, object, presence == Presence::There);
            }
        });
        drop(whole);
        if is_required {
            handlers.marked();
        }
    }
}

fn all() -> watcher::Config {
    watcher::Config::default().streaming_lists()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_core::cache::stores::Stores as _;
    use tokio::time::timeout;

    use super::*;
    use crate::{
        cache::frozen::Frozen,
        kube_client::scripted_server::{Answer, ScriptedServer, Verb},
    };

    /// kapp-controller is not installed, and Sluice has no rights on Secrets and on kinds of Tanzu.
    #[tokio::test(start_paused = true)]
    async fn without_packages_only_kinds_of_cluster_api_and_of_gates_are_watched() {
        let server = ScriptedServer::new(|request| match request.verb {
            Verb::StreamingList => Answer::Refusal(422),
            Verb::Watch => Answer::OpenWatch(String::new()),
            Verb::Read => Answer::Body(serde_json::json!({
                "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": [],
            })),
        });
        let handlers = EventHandlers {
            without_packages: true,
            with_upgrade_gates: true,
            ..EventHandlers::default()
        };
        let (stores, following) = Stores::open(&server.client(), "tkg-system", &handlers);
        tokio::spawn(following);
        let filled = async {
            stores.filled_for_managed().await;
            stores.filled_for_reviews().await;
            stores.packages_listed().await;
            stores.management_packages_listed().await;
            stores.synced().await;
        };
        assert!(timeout(Duration::from_secs(10), filled).await.is_ok());
        assert!(!stores.packages_enabled());
        assert_eq!(stores.unlisted(), None);
        let asked = server.requests();
        for request in &asked {
            let path = &request.path;
            let groups = ["/apis/cluster.x-k8s.io/", "/apis/lifecycle.sluice.dev/"];
            assert!(groups.iter().any(|group| path.starts_with(group)), "{path}");
        }
        assert!(
            asked
                .iter()
                .any(|request| request.path.ends_with("/upgradegates"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_panics_is_named() {
        let client = Frozen::new().client(|path| {
            assert!(!path.ends_with("/packageinstalls"), "a bug");
            Vec::new()
        });
        let (stores, following) = Stores::open(&client, "tkg-system", &EventHandlers::default());
        let ended = tokio::time::timeout(Duration::from_mins(1), tokio::spawn(following)).await;
        assert!(
            ended.is_ok_and(|ended| ended.is_ok()),
            "it is noticed, and is no panic itself"
        );
        assert_eq!(stores.ended(), Some("PackageInstall"));
    }
}
