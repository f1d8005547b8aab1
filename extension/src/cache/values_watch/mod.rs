//! Metadata watches of the values sources of packages; they requeue dependent Clusters. [`sluice_core::values_watch`] decides which sources
//! are watched and which Clusters are requeued.

mod metadata;

use std::{
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, StreamExt as _, channel::mpsc};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    discovery::Scope,
    runtime::watcher,
};
use sluice_core::{
    cache::{Brought, FINDING, KindHealth, Sign},
    protocol::{Object, SecretVersion, Write},
    values_watch::{self, LABEL, Trouble, Watched},
};
use sluice_crds::{foreign::Cluster, run::ClusterBootstrap};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use self::metadata::metadata_only;
use crate::{
    cache::{
        kind_watch::{reporting_watches, until_lost},
        rollbacks::{Restarts, Rollbacks},
        store::Store,
        streamed::streaming,
        watch::{Events, Presence, brought, failure},
    },
    clock::{later, now},
    kube_client::responses::scoped,
    lock::lock,
    queue::requeues::Requeues,
    telemetry::metrics::watch_panicked,
};

/// Changes within this time are handled together.
const TOGETHER: Duration = Duration::from_millis(50);

/// Delay before a restart after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// State of the values watches. Clones share the same state.
#[derive(Clone, Default)]
pub struct ValuesWatches(Arc<Shared>);

#[derive(Default)]
struct Shared {
    values_watches: Mutex<values_watch::ValuesWatches>,
    changed: Notify,
}

impl fmt::Debug for ValuesWatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValuesWatches").finish_non_exhaustive()
    }
}

impl ValuesWatches {
    /// Creates the watches for Secrets of these namespaces; of all namespaces if none is named.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Self {
        Self(Arc::new(Shared {
            values_watches: Mutex::new(values_watch::ValuesWatches::of(namespaces)),
            changed: Notify::new(),
        }))
    }

    fn note<T>(&self, note: impl FnOnce(&mut values_watch::ValuesWatches, Instant) -> T) -> T {
        let noted = note(&mut lock(&self.0.values_watches), now());
        self.0.changed.notify_one();
        noted
    }

    /// Marks this process as the leader, from which on requeues have a listener.
    pub(crate) fn lead(&self) {
        self.note(|values_watches, _| values_watches.lead());
    }

    pub(crate) fn cluster(&self, cluster: &Cluster, presence: Presence) {
        self.note(|values_watches, _| values_watches.cluster(cluster, presence == Presence::There));
    }

    pub(crate) fn bootstrap(&self, bootstrap: &ClusterBootstrap, presence: Presence) {
        self.note(|values_watches, _| values_watches.bootstrap(bootstrap, presence == Presence::There));
    }

    /// Records a write of a reconcile by this process.
    pub(crate) fn wrote(&self, write: &Write, written: &Object) {
        self.note(|values_watches, now| values_watches.wrote(write, written, now));
    }

    /// Whether the watch of Secrets is readable and has shown this version last.
    pub(crate) fn shows(&self, secret: &SecretVersion) -> bool {
        lock(&self.0.values_watches).shows(secret)
    }

    /// Runs the watches for as long as it is polled. `clusters` holds all Clusters.
    pub(crate) async fn run(
        self,
        client: Client,
        triggers: Requeues,
        clusters: Store<Cluster>,
        rollbacks: Rollbacks,
    ) {
        loop {
            let watching = AssertUnwindSafe(self.watch(&client, &triggers, &clusters, &rollbacks));
            let _panicked = watching.catch_unwind().await;
            watch_panicked();
            self.note(|values_watches, _| values_watches.interrupted());
            sleep(AFTER_PANIC).await;
        }
    }

    /// Keeps the required watches open, each in a task of its own.
    async fn watch(
        &self,
        client: &Client,
        triggers: &Requeues,
        clusters: &Store<Cluster>,
        rollbacks: &Rollbacks,
    ) {
        let mut open = HashMap::<Watched, AbortOnDropHandle<()>>::new();
        loop {
            let next = lock(&self.0.values_watches).next(now());
            if let Some(warning) = next.warning {
                warn!("{warning}");
            }
            for cluster in next.requeued {
                debug!(%cluster, "Requeueing Cluster after a change of its values source");
                triggers.enqueue_with_reads(cluster);
            }
            open.retain(|watched, task| next.watched.contains(watched) && !task.is_finished());
            for watched in next.watched {
                open.entry(watched).or_insert_with_key(|watched| {
                    let (values_watches, client, clusters) = (self.clone(), client.clone(), clusters.clone());
                    let (watched, restarts) = (watched.clone(), rollbacks.restarts());
                    let attempt = async move {
                        values_watches
                            .attempt(client, &watched, &clusters, restarts)
                            .await;
                    };
                    AbortOnDropHandle::new(tokio::spawn(attempt))
                });
            }
            tokio::select! {
                () = self.0.changed.notified() => sleep(TOGETHER).await,
                () = later(next.at) => {}
            }
        }
    }

    /// Runs one attempt. Its failures do not affect other watches.
    async fn attempt(
        &self,
        client: Client,
        watched: &Watched,
        clusters: &Store<Cluster>,
        restarts: Restarts,
    ) {
        let attempt = AssertUnwindSafe(self.followed(client, watched, clusters, restarts));
        let trouble = attempt.catch_unwind().await.unwrap_or_else(|_panic| {
            watch_panicked();
            Trouble::Passing
        });
        debug!(%watched, ?trouble, "Watch of values source ended");
        let said = self.note(|values_watches, now| values_watches.ended(watched, &trouble, now));
        if let Some(text) = said {
            warn!("{text}");
        }
    }

    /// Follows one watch. Returns why it ended.
    async fn followed(
        &self,
        client: Client,
        watched: &Watched,
        clusters: &Store<Cluster>,
        restarts: Restarts,
    ) -> Trouble {
        match resource(&client, watched).await {
            Ok(resource) => self.follow(client, watched, &resource, clusters, restarts).await,
            Err(trouble) => trouble,
        }
    }

    async fn follow(
        &self,
        client: Client,
        watched: &Watched,
        resource: &ApiResource,
        clusters: &Store<Cluster>,
        restarts: Restarts,
    ) -> Trouble {
        let (signs, seen) = mpsc::unbounded();
        let (accepts, accepted) = mpsc::unbounded();
        let client = reporting_watches(streaming(metadata_only(client)), accepts).into_client();
        let api = match watched {
            Watched::Secrets(Some(namespace)) => Api::namespaced_with(client, namespace, resource),
            Watched::Secrets(None) | Watched::Kind(_) => Api::all_with(client, resource),
        };
        let config = watcher::Config::default().labels(LABEL).streaming_lists();
        let mut events =
            Events::<PartialObjectMeta<DynamicObject>>::of(api, config, watched.followed(), restarts);
        let code = Mutex::new(None);
        let run = async {
            events.list();
            while let Some(event) = events.next().await {
                let sign = match event {
                    Ok(event) => self.take_in(&brought(&event), watched, clusters),
                    Err(error) => {
                        self.note(|values_watches, _| values_watches.failed(watched));
                        let failure = failure(&error);
                        let refusal = failure.refusal();
                        // Other refusals are reported when the watch ends.
                        if Trouble::of(refusal, resource) == Trouble::Passing {
                            warn!(%watched, %error, "Failed to watch values source");
                        }
                        *lock(&code) = refusal;
                        Some(Sign::Failed(failure))
                    }
                };
                if let Some(sign) = sign {
                    // The receiver lives as long as this future.
                    let _sent = signs.unbounded_send(sign);
                }
            }
        };
        let tell = |told: Result<(), String>| {
            if told.is_err() {
                self.note(|values_watches, now| values_watches.troubled(watched, now));
            } else if let Some(text) = self.note(|values_watches, _| values_watches.readable(watched)) {
                info!("{text}");
            }
        };
        // The API server may permit the list and refuse the watch.
        let health = KindHealth::new(resource.clone(), true, now());
        let accepted = accepted.inspect(|()| self.note(|values_watches, _| values_watches.accepted(watched)));
        until_lost(health, accepted, seen, run, tell).await;
        let code = *lock(&code);
        Trouble::of(code, resource)
    }

    /// Takes in an event of a watch. Returns its sign of life, if it gives one.
    fn take_in<K: Resource>(
        &self,
        brought: &Brought<'_, K>,
        watched: &Watched,
        clusters: &Store<Cluster>,
    ) -> Option<Sign> {
        let gone = self.note(|values_watches, now| values_watches.took(watched, brought, now));
        // Dependents are looked up only for deleted objects.
        let concerned = gone.map(|gone| gone.of(clusters.names()));
        for cluster in concerned.into_iter().flatten() {
            self.note(|values_watches, now| values_watches.gone(cluster, now));
        }
        sign(brought)
    }
}

/// Discovers the resource of a watched kind.
async fn resource(client: &Client, watched: &Watched) -> Result<ApiResource, Trouble> {
    let kind = match watched {
        Watched::Secrets(_) => return Ok(ApiResource::erase::<Secret>(&())),
        Watched::Kind(kind) => kind,
    };
    match timeout(FINDING, scoped(client, &kind.group, &kind.kind)).await {
        Ok(Ok(Some((resource, Scope::Namespaced)))) => Ok(resource),
        Ok(Ok(Some((_, Scope::Cluster)) | None)) => Err(Trouble::Unserved),
        Ok(Err(_)) | Err(_) => Err(Trouble::Passing),
    }
}

/// Returns the sign of life that an event gives. A list gives none before its end.
fn sign<K>(brought: &Brought<'_, K>) -> Option<Sign> {
    match brought {
        Brought::List | Brought::Listed(_) => None,
        Brought::Filled => Some(Sign::Filled),
        Brought::Touched(_) | Brought::Gone(_) => Some(Sign::Changed),
    }
}

#[cfg(test)]
mod tests;
