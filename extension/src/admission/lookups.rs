//! Lookups of a review: in the caches, and otherwise by one GET of an object that the review names.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, core::ApiResource, discovery::Scope};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use sluice_core::{
    admission::{
        Completion, Lookup, LookupResult, Lookups, Review, Verdict, complete, judge,
        upgrade_override::OverrideVerdict,
    },
    cache::{Discoveries, NamedKind, Turn, stores::Stores as _},
    cluster::{is_stopped, release_of},
    installation::gate_in_force::{NotInForce, NotInForceReason, ReadConfig, not_in_force},
    limits::Shares,
    packages::bootstrap::{PackageFacts, is_credential_type},
    protocol::{Failure, Key, Resource, Server},
    reconcile::cluster::Settings,
    resolver::{self, Resolution, class_of, follows_bootstrap},
    value_kinds::own_resource,
};
use sluice_crds::{
    foreign::{Cluster, Package},
    run::ClusterBootstrapTemplate,
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::{Instant, timeout_at},
};
use tracing::info;

use super::{clusters, overrides, upgrades};
use crate::{
    cache::{control_plane::ControlPlanes, stores::Stores},
    clock::now,
    kube_client::{
        bounded::{Bounds, REQUEST, bounded},
        extension_configs,
        middleware::Transport,
        responses::{failure, scoped},
    },
    lock::lock,
};

/// Concurrent GETs of all reviews. Each response is in memory while it is read, and API servers limit the share of each client.
const GETS: usize = 8;

/// Concurrent reads of ExtensionConfigs of all reviews. Lookups of tenants do not delay them.
const CONFIGS: usize = 4;

/// Maximum size of a read object: what etcd takes, as JSON with all escapes.
const LARGEST: usize = 4 * 1024 * 1024;

/// Sources of lookups.
#[derive(Clone)]
pub struct Caches {
    stores: Stores,
    control_planes: Arc<ControlPlanes>,
    settings: Settings,
    client: Client,
    gets: Arc<Semaphore>,
    configs: Arc<Semaphore>,
    discoveries: Arc<Mutex<Discoveries<Arc<OnceCell<Served>>>>>,
}

/// Resource of a kind and the scope of its objects, `None` if it is not served; or the reason why that is unknown.
type Served = Result<Option<(ApiResource, Scope)>, String>;

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").finish_non_exhaustive()
    }
}

/// Parts of a Secret that are read. Its data is skipped.
#[derive(Debug, Deserialize)]
struct SecretType {
    #[serde(rename = "type")]
    type_: Option<String>,
}

impl Caches {
    /// Creates lookups in the caches and at the management API server. `client` has no rate limit: callers determine the number of
    /// requests, so no other part of Sluice uses its connections.
    #[must_use]
    pub fn new(
        stores: Stores,
        control_planes: Arc<ControlPlanes>,
        settings: Settings,
        client: impl Into<Transport>,
    ) -> Self {
        let bounds = Bounds {
            answer: LARGEST,
            ..REQUEST
        };
        Self {
            stores,
            control_planes,
            settings,
            client: bounded(client, bounds).into_client(),
            gets: Arc::new(Semaphore::new(GETS)),
            configs: Arc::new(Semaphore::new(CONFIGS)),
            discoveries: Arc::default(),
        }
    }

    /// Judges `review`, sent by `peer`. A lookup that exceeds `limit`, or finds no slot for the peer in `slots`, is unknown.
    pub(super) async fn judge(
        &self,
        review: &Review,
        system_namespace: &str,
        (slots, peer): (&Shares<IpAddr>, IpAddr),
        limit: Duration,
    ) -> Verdict {
        let until = Instant::now() + limit;
        let places = Places {
            own: &review.namespace,
            system: system_namespace,
        };
        let mut finished = Lookups::new();
        loop {
            let needed = match judge(review, system_namespace, &finished) {
                Ok(verdict) => return verdict,
                Err(needed) => needed,
            };
            let mut asked = Vec::new();
            for lookup in needed {
                match self.cached(&lookup, places) {
                    Some(seen) => drop(finished.insert(lookup, seen)),
                    None => asked.push(lookup),
                }
            }
            if asked.is_empty() {
                continue;
            }
            // Waiting reviews would pile up under load.
            let Some(_slot) = slots.take(&peer) else {
                let busy = || LookupResult::Unknown("too many reviews at once".to_owned());
                finished.extend(asked.into_iter().map(|lookup| (lookup, busy())));
                continue;
            };
            self.ask(asked, places, until, &mut finished).await;
        }
    }

    /// Completes `review` from the caches.
    pub(super) fn complete(&self, review: &Review, system_namespace: &str) -> Completion {
        let places = Places {
            own: &review.namespace,
            system: system_namespace,
        };
        let mut finished = Lookups::new();
        loop {
            let needed = match complete(review, &finished) {
                Ok(completion) => return completion,
                Err(needed) => needed,
            };
            for lookup in needed {
                let seen = self.cached(&lookup, places).unwrap_or_else(not_kept);
                finished.insert(lookup, seen);
            }
        }
    }

    /// Resolves a Cluster from the caches, see [`clusters::resolved`].
    pub(super) fn resolve(
        &self,
        asked: &resolver::Asked,
        is_last: bool,
    ) -> Result<Resolution, resolver::Unknown> {
        clusters::resolved(asked, &self.stores, &self.control_planes, is_last)
    }

    /// Checks the upgrade of a Cluster from the caches, see [`upgrades::checked`].
    pub(super) fn check_upgrade(&self, update: (&Cluster, &Cluster), denies: bool) -> Option<Verdict> {
        let Self {
            stores,
            control_planes,
            settings,
            ..
        } = self;
        upgrades::checked(update, denies, stores, control_planes, settings)
    }

    /// Whether an upgrade is to wait for Sluice, see [`upgrades::is_gated`].
    pub(super) fn is_gated(&self, old: &Cluster, new: &Cluster) -> bool {
        upgrades::is_gated((old, new), &self.stores, &self.control_planes)
    }

    /// Reads the ExtensionConfigs of Sluice, and whether they select a namespace. Returns the reason why the gates of the namespace are not in
    /// force, if so. Reads that exceed `limit` leave that unknown.
    pub(super) async fn not_in_force(&self, namespace: &str, limit: Duration) -> Option<NotInForce> {
        let read = timeout_at(Instant::now() + limit, self.read_configs(namespace)).await;
        match read {
            Ok((configs, selects)) => not_in_force(&configs, namespace, |config| {
                selects.get(&config.name).cloned().unwrap_or(Ok(false))
            }),
            Err(_elapsed) => Some(NotInForce::new(NotInForceReason::Unreadable, LATE)),
        }
    }

    /// Returns each ExtensionConfig of Sluice, and whether those whose hooks Cluster API calls select a namespace, by name.
    async fn read_configs(
        &self,
        namespace: &str,
    ) -> (Vec<ReadConfig>, HashMap<String, Result<bool, String>>) {
        let (mut configs, mut selects) = (Vec::new(), HashMap::new());
        for name in &self.settings.extension_configs {
            let _one_of_all = self.configs.acquire().await;
            let config = extension_configs::read(&self.client, name).await;
            if let Err(error) = &config.config {
                info!(
                    extension_config = name,
                    error, "Failed to read ExtensionConfig for a review"
                );
            }
            if let Some(called) = config.called() {
                let selected = extension_configs::selects(&self.client, called, namespace).await;
                if let Err(error) = &selected {
                    info!(namespace, error, "Failed to read namespace for a review");
                }
                selects.insert(name.clone(), selected);
            }
            configs.push(config);
        }
        (configs, selects)
    }

    /// Judges a new UpgradeOverride from the caches, see [`overrides::judged`].
    pub(super) fn judge_override(
        &self,
        namespace: &str,
        new: &overrides::New,
        system_namespace: &str,
    ) -> OverrideVerdict {
        overrides::judged(namespace, new, &self.stores, system_namespace)
    }

    /// Completes when the kind of control plane of the cached Cluster is listed, or cannot be.
    pub(super) async fn read_control_planes(&self, asked: &resolver::Asked) {
        if let Ok(Some((cluster, reference))) = clusters::control_plane_of(asked, &self.stores) {
            self.control_planes.read(&cluster, &reference).await;
        }
    }

    /// Reads all of `asked` from the API server.
    async fn ask(&self, asked: Vec<Lookup>, places: Places<'_>, until: Instant, finished: &mut Lookups) {
        let late = || LookupResult::Unknown(LATE.to_owned());
        let mut waiting = asked.into_iter();
        let mut asking = FuturesUnordered::new();
        loop {
            while asking.len() < GETS
                && let Some(lookup) = waiting.next()
            {
                asking.push(async move {
                    let seen = timeout_at(until, self.get(&lookup, places, until)).await;
                    (lookup, seen.unwrap_or_else(|_elapsed| late()))
                });
            }
            match asking.next().await {
                Some((lookup, seen)) => finished.insert(lookup, seen),
                None => return,
            };
        }
    }

    /// Looks up an object in the caches: any Cluster, and existing Packages.
    fn cached(&self, lookup: &Lookup, places: Places<'_>) -> Option<LookupResult> {
        match lookup {
            Lookup::Cluster(name) => Some(self.cluster(places.own, name)),
            Lookup::Package(name) => self
                .stores
                .catalogue()
                .get(name)
                .cloned()
                .map(LookupResult::Package),
            Lookup::Release(name) => Some(self.release(name)),
            Lookup::Template(name) => Some(self.template(places.system, name)),
            Lookup::TemplateNames => Some(self.template_names()),
            Lookup::Secret(_) | Lookup::Provider { .. } => None,
        }
    }

    fn release(&self, name: &str) -> LookupResult {
        let releases = self.stores.releases();
        match releases.get(name) {
            Some(release) => {
                let packages = release.spec.bootstrap_packages.iter().flatten();
                LookupResult::Release {
                    kubernetes: release.spec.kubernetes.version.clone(),
                    packages: packages.map(|package| package.name.clone()).collect(),
                }
            }
            None => LookupResult::NoRelease {
                known: releases.keys().cloned().collect(),
            },
        }
    }

    fn template(&self, system: &str, name: &str) -> LookupResult {
        match self.stores.templates.get(Some(system), name) {
            Some(template) => LookupResult::Template(Box::new(template.spec.0.clone())),
            None => absent(&Key::of::<ClusterBootstrapTemplate>(Server::Management, None, "").resource),
        }
    }

    fn template_names(&self) -> LookupResult {
        let names = self.stores.templates.names();
        LookupResult::TemplateNames(names.iter().map(|template| template.name().to_owned()).collect())
    }

    fn cluster(&self, namespace: &str, name: &str) -> LookupResult {
        match self.stores.clusters.found(Some(namespace), name) {
            Ok(Some(cluster)) => {
                let class = class_of(&cluster);
                let class =
                    class.and_then(|(namespace, name)| self.stores.classes.get(Some(&namespace), name));
                LookupResult::Cluster {
                    label: release_of(&cluster.metadata),
                    deleting: cluster.metadata.deletion_timestamp.is_some(),
                    stopped: is_stopped(&cluster),
                    follows: follows_bootstrap(&cluster, class.as_deref()).map(str::to_owned),
                }
            }
            Ok(None) => absent(&Key::of::<Cluster>(Server::Management, None, "").resource),
            Err(undecodable) => LookupResult::Cluster {
                label: release_of(&undecodable.metadata),
                deleting: undecodable.metadata.deletion_timestamp.is_some(),
                stopped: false,
                follows: None,
            },
        }
    }

    async fn get(&self, lookup: &Lookup, places: Places<'_>, until: Instant) -> LookupResult {
        let _one_of_all = self.gets.acquire().await;
        let own = Some(places.own);
        match lookup {
            Lookup::Cluster(_) | Lookup::Release(_) | Lookup::Template(_) | Lookup::TemplateNames => {
                self.cached(lookup, places).unwrap_or_else(not_kept)
            }
            Lookup::Package(name) => {
                let key = Key::of::<Package>(Server::Management, Some(places.system), name);
                self.object::<Package>(&key, |package| LookupResult::Package(PackageFacts::of(&package)))
                    .await
            }
            Lookup::Secret(name) => {
                let key = Key::of::<Secret>(Server::Management, own, name);
                self.object::<SecretType>(&key, |secret| LookupResult::Secret {
                    credential: is_credential_type(secret.type_.as_deref()),
                })
                .await
            }
            Lookup::Provider { group, kind, name } => {
                let resource = match own_resource(group, kind) {
                    Some(ours) => ours,
                    None => match self.served(group, kind, places, until).await {
                        Ok(Some((served, Scope::Namespaced))) => served,
                        Ok(Some((_, Scope::Cluster))) => return LookupResult::ClusterScoped,
                        Ok(None) => return LookupResult::NotServed,
                        Err(why) => return LookupResult::Unknown(why),
                    },
                };
                let key = Key {
                    server: Server::Management,
                    resource: Resource::from(&resource),
                    namespace: own.map(str::to_owned),
                    name: name.clone(),
                };
                self.object::<IgnoredAny>(&key, |_content| LookupResult::Provider)
                    .await
            }
        }
    }

    /// Discovers how a kind named by a caller is served. All callers share one discovery per minute.
    async fn served(&self, group: &str, kind: &str, places: Places<'_>, until: Instant) -> Served {
        let named = NamedKind::given(group, kind);
        let turn = lock(&self.discoveries).turn(&named, places.own, now());
        let (Turn::Now(found) | Turn::Before(found)) = turn else {
            return Err("too many kinds in reviews; try again in a minute".to_owned());
        };
        let discover = async || match timeout_at(until, scoped(&self.client, group, kind)).await {
            Ok(found) => found.map_err(|error| reason(&failure(Server::Management, &error))),
            Err(_elapsed) => Err(LATE.to_owned()),
        };
        found.get_or_init(discover).await.clone()
    }

    async fn object<T: DeserializeOwned>(
        &self,
        key: &Key,
        seen: impl FnOnce(T) -> LookupResult,
    ) -> LookupResult {
        let request = match key.request() {
            Ok(request) => request,
            Err(failure) => return unknown(&failure),
        };
        match self.client.request::<T>(request).await {
            Ok(object) => seen(object),
            Err(kube::Error::Api(status)) if status.code == 404 => absent(&key.resource),
            Err(error) => unknown(&failure(Server::Management, &error)),
        }
    }
}

/// Namespaces of the objects of a review.
#[derive(Debug, Clone, Copy)]
struct Places<'a> {
    own: &'a str,
    system: &'a str,
}

fn absent(resource: &Resource) -> LookupResult {
    let Resource { group, plural, .. } = resource;
    let resource = if group.is_empty() {
        plural.to_string()
    } else {
        format!("{plural}.{group}")
    };
    LookupResult::Absent { resource }
}

fn not_kept() -> LookupResult {
    LookupResult::Unknown("Sluice does not cache it".to_owned())
}

/// Cause of a lookup that exceeded its timeout.
pub(super) const LATE: &str = "the API server did not answer in time";

fn unknown(failure: &Failure) -> LookupResult {
    LookupResult::Unknown(reason(failure))
}

fn reason(failure: &Failure) -> String {
    match failure.code {
        Some(403) => "Sluice may not read it".to_owned(),
        Some(code) => format!("the API server answers with {code}"),
        None => "the API server does not answer".to_owned(),
    }
}
