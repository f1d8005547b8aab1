//! Everything of the management cluster that is kept in memory.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures::future::{self, BoxFuture, FutureExt, join_all, select_all};
use kube::{
    Api, Client, Resource,
    core::{NamespaceResourceScope, ObjectMeta},
    runtime::watcher,
};
use sluice_core::{
    cache::{
        FollowedStore,
        compact::Kept,
        stored_kind::StoredKind,
        stores::{self, Found, Images, OfCluster, Releases, Stored, Whole},
    },
    decode::{Item, Undecodable},
    packages::bootstrap::Catalogue,
    releases::ReleaseEvent,
};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    labels::label,
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use crate::{
    cache::{
        event_handlers::EventHandlers,
        freshness::dating,
        store::Store,
        streamed::streaming,
        watch::{Followed, Presence, Seen, follow, reporting},
    },
    clock::now,
    lock::lock,
};

/// The stores. The first reconcile waits for some of them, see [`Stores::tell_managed`]; what depends on another one waits for that.
#[derive(Debug, Clone)]
pub struct Stores {
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
    /// All OSImages. Neither hooks nor passes rest on them, so nothing waits for this store; its definition may be missing.
    pub images: Store<OSImage>,
    /// All TanzuKubernetesReleases. Those that can be decoded are looked up in `whole`.
    releases: Store<TanzuKubernetesRelease>,
    ages: Ages,
    /// The kind whose store is not kept up to date any more.
    ended: Arc<OnceLock<String>>,
    /// Ends when every store is filled.
    filled: future::Shared<BoxFuture<'static, ()>>,
    /// All TanzuKubernetesReleases, and what all Packages of the system namespace say of themselves: every pass needs them all. And all
    /// OSImages: a resolution looks at many.
    whole: Arc<Mutex<Whole>>,
}

/// The ages of the stores that hooks rest on, by kind. Templates, Packages, PackageInstalls and Apps are read again before a gate
/// opens.
type Ages = [(StoredKind, Arc<Mutex<FollowedStore>>); 4];

impl Stores {
    /// The stores and the future that keeps them up to date. What happens to their objects is passed on to `news`.
    ///
    /// The future ends when a store is not kept up to date any more, because of a panic: see [`Stores::ended`]. Hooks are answered
    /// from what such a store held then, so the process has to end. Other replicas answer meanwhile.
    #[must_use]
    pub fn open(
        client: &Client,
        system_namespace: &str,
        news: &EventHandlers,
    ) -> (Self, BoxFuture<'static, ()>) {
        let ages: Ages = [
            StoredKind::Cluster,
            StoredKind::ClusterBootstrap,
            StoredKind::TanzuKubernetesRelease,
            // Whether one asks for a resolution decides over Clusters without a label.
            StoredKind::ClusterClass,
        ]
        .map(|kind| (kind, Arc::new(Mutex::new(FollowedStore::dated()))));
        let [
            (_, of_clusters),
            (_, of_bootstraps),
            (_, of_releases),
            (_, of_classes),
        ] = &ages;
        let client = streaming(client.clone());
        let mut opening = Opening {
            client: &client,
            news,
            followed: Vec::new(),
            filled: Vec::new(),
        };
        let topology = || all().labels(label::TOPOLOGY_OWNED);
        let (system, whole) = (Some(system_namespace), Arc::<Mutex<Whole>>::default());
        let releases = opening.follow(
            Api::all(dating(client.clone(), of_releases)),
            all(),
            Arc::clone(of_releases),
            taking_in_releases(&whole, news),
            |_, _| {},
        );
        let packages = opening.follow(
            Api::namespaced(client.clone(), system_namespace),
            all(),
            Arc::default(),
            taking_in(&whole, Whole::package),
            EventHandlers::package,
        );
        let (noted, named) = (news.clone(), news.edits.clone());
        let clusters = opening.follow(
            Api::all(dating(client.clone(), of_clusters)),
            all(),
            Arc::clone(of_clusters),
            move |seen| seen.each(|cluster, presence| noted.contents(cluster, presence)),
            EventHandlers::cluster,
        );
        let bootstraps = opening.follow(
            Api::all(dating(client.clone(), of_bootstraps)),
            all(),
            Arc::clone(of_bootstraps),
            move |seen| seen.each(|bootstrap, presence| named.bootstrap(bootstrap, presence)),
            EventHandlers::bootstrap,
        );
        let classes = opening.follow(
            Api::all(dating(client.clone(), of_classes)),
            all(),
            Arc::clone(of_classes),
            |_| {},
            EventHandlers::class,
        );
        let images = opening.images(Api::all(client.clone()), &whole);
        let stores = Self {
            images,
            clusters,
            bootstraps,
            templates: opening.store(system, all(), EventHandlers::template),
            classes,
            machine_deployments: opening.store(None, topology(), woken_by::<MachineDeployment>),
            machine_pools: opening.store(None, topology(), woken_by::<MachinePool>),
            packages,
            installs: opening.store(None, all(), EventHandlers::install),
            apps: opening.store(None, all(), woken_by::<App>),
            releases,
            whole,
            ages,
            ended: Arc::default(),
            filled: join_all(opening.filled).map(drop).boxed().shared(),
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

    /// The stores that hooks rest on, each with the time since it is known to have missed no change; none before it was filled.
    #[must_use]
    pub fn ages(&self) -> [(StoredKind, Option<Duration>); 4] {
        self.ages
            .each_ref()
            .map(|(kind, followed)| (*kind, lock(followed).age(now())))
    }

    /// All OSImages; none before they were read.
    #[must_use]
    pub fn images(&self) -> Option<Arc<Images>> {
        self.images
            .is_filled()
            .then(|| Arc::clone(&lock(&self.whole).images))
    }

    /// Waits until those hold every object that reviews are answered from without asking for more.
    pub async fn filled_for_reviews(&self) {
        self.clusters.filled().await;
        self.templates.filled().await;
        self.classes.filled().await;
        self.releases.filled().await;
    }

    /// Waits until they tell which Clusters are managed, which the status service shows and the leader begins with, whatever other API
    /// is missing.
    pub async fn tell_managed(&self) {
        self.clusters.filled().await;
        self.bootstraps.filled().await;
        self.releases.filled().await;
    }

    fn is_filled(&self, kind: StoredKind) -> bool {
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

    /// Waits until Packages and PackageInstalls were listed.
    pub async fn packages_listed(&self) {
        self.packages.filled().await;
        self.installs.filled().await;
    }

    /// Whether Packages and PackageInstalls were listed.
    #[must_use]
    pub fn are_packages_listed(&self) -> bool {
        self.packages.is_filled() && self.installs.is_filled()
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
            fn found(&self, namespace: Option<&str>, name: &str) -> Found<$Kind> {
                self.$store.found(namespace, name)
            }

            fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<$Kind> {
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
);

impl Stored<TanzuKubernetesRelease> for Stores {
    fn found(&self, _: Option<&str>, name: &str) -> Found<TanzuKubernetesRelease> {
        match self.releases.undecodable(None, name) {
            Some(object) => Err(object),
            None => Ok(lock(&self.whole).releases.get(name).cloned()),
        }
    }

    fn of_cluster(&self, _: &str, _: &str) -> Vec<TanzuKubernetesRelease> {
        Vec::new()
    }

    fn undecodable(&self, _: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        self.releases.undecodable(None, name)
    }

    fn undecodable_of(&self, _: &str, _: &str) -> Option<Arc<Undecodable>> {
        None
    }
}

impl stores::Stores for Stores {
    fn releases(&self) -> Arc<Releases> {
        Arc::clone(&lock(&self.whole).releases)
    }

    fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
        self.releases.first_undecodable()
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&lock(&self.whole).catalogue)
    }

    fn age(&self, kind: StoredKind) -> Option<Duration> {
        if let Some((_, followed)) = self.ages.iter().find(|(dated, _)| *dated == kind) {
            return lock(followed).age(now());
        }
        self.is_filled(kind).then_some(Duration::ZERO)
    }

    // As those who wait for stores are told: the age of one that was just filled is known a moment later.
    fn unlisted(&self) -> Option<StoredKind> {
        let mut kinds = StoredKind::ALL.into_iter();
        kinds.find(|kind| !self.is_filled(*kind))
    }
}

/// Stores that are being opened.
struct Opening<'a> {
    client: &'a Client,
    news: &'a EventHandlers,
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
        changed: impl Fn(&EventHandlers, &ObjectMeta) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = self.client.clone();
        let api = match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        self.follow(api, config, Arc::default(), |_| {}, changed)
    }

    /// The OSImages, for which nothing waits.
    fn images(&mut self, api: Api<Item<OSImage>>, whole: &Arc<Mutex<Whole>>) -> Store<OSImage> {
        let takes_in = taking_in(whole, Whole::image);
        let changed = self.news.releases.clone();
        let first = move |seen: &Seen<'_, OSImage>| {
            takes_in(seen);
            // Also where the list was empty: that is known from now on.
            if matches!(seen, Seen::Synced(_)) {
                changed.send(ReleaseEvent::All);
            }
        };
        let followed = Arc::new(Mutex::new(FollowedStore::of_named_kind()));
        self.open(api, all(), followed, first, |news, _| news.marked())
    }

    fn follow<K>(
        &mut self,
        api: Api<Item<K>>,
        config: watcher::Config,
        followed: Arc<Mutex<FollowedStore>>,
        first: impl Fn(&Seen<'_, K>) + Send + 'static,
        changed: impl Fn(&EventHandlers, &ObjectMeta) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        let store = self.open(api, config, followed, first, changed);
        let waiting = store.clone();
        // A store that will never be filled belongs to a process that ends.
        self.filled.push(async move { waiting.filled().await }.boxed());
        store
    }

    /// A store for which nothing waits.
    fn open<K>(
        &mut self,
        api: Api<Item<K>>,
        config: watcher::Config,
        followed: Arc<Mutex<FollowedStore>>,
        first: impl Fn(&Seen<'_, K>) + Send + 'static,
        changed: impl Fn(&EventHandlers, &ObjectMeta) + Send + 'static,
    ) -> Store<K>
    where
        K: Followed + Resource<DynamicType = ()>,
    {
        let (kind, news) = (K::kind(&()), self.news.clone());
        let report = reporting(kind.clone(), "Watching", move |object, _| changed(&news, object));
        let on = move |seen: &Seen<'_, K>| {
            first(seen);
            report(seen);
        };
        let (store, run) = follow(api, config, Arc::default(), followed, on);
        let ended = AssertUnwindSafe(run).catch_unwind();
        self.followed
            .push(ended.map(|_either_way| kind.into_owned()).boxed());
        store
    }
}

/// Wakes the Cluster that an object of kind `K` belongs to.
fn woken_by<K: OfCluster>(news: &EventHandlers, meta: &ObjectMeta) {
    news.triggers.enqueue_owner::<K>(meta);
}

/// What is seen of releases gets into `whole`, all of a list at once, and what has changed of them is passed on to `news`.
fn taking_in_releases(
    whole: &Arc<Mutex<Whole>>,
    news: &EventHandlers,
) -> impl Fn(&Seen<'_, TanzuKubernetesRelease>) + Send + use<> {
    let (whole, news) = (Arc::clone(whole), news.clone());
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
                news.release(&release);
            } else {
                news.marked();
            }
        }
    }
}

/// What is seen gets into `whole`, all of a list at once.
fn taking_in<K: Kept>(
    whole: &Arc<Mutex<Whole>>,
    take_in: fn(&mut Whole, &K, bool),
) -> impl Fn(&Seen<'_, K>) + Send + use<K> {
    let whole = Arc::clone(whole);
    move |seen| {
        let mut whole = lock(&whole);
        seen.each(|object, presence| take_in(&mut whole, object, presence == Presence::There));
    }
}

fn all() -> watcher::Config {
    watcher::Config::default().streaming_lists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::freshness::tests::Frozen;

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
