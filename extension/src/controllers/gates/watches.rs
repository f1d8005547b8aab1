//! Watches of checked objects in a workload cluster. An event requeues the Cluster, whose reconcile reads the object.
//!
//! Polling finds the same changes later. A watch that is refused or breaks is therefore neither logged nor reported.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    mem,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use http::Request;
use kube::{Client, core::WatchEvent};
use serde::Deserialize;
use sluice_core::{
    limits::{Backoff, TokenBucket},
    protocol::Key,
};
use tokio::{sync::Notify, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    clock::now,
    kube_client::bounded::{Bounds, bounded},
    queue::requeues::{ClusterRef, Requeues},
};

/// Limits of one watch. The workload API server is not trusted, and the metadata of real objects has some ten KiB.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    // That of the client applies.
    silence: Duration::MAX,
    answer: 512 * 1024,
    memory: 4 * 1024 * 1024,
    list: 8 * 1024 * 1024,
    page: 0,
    pace: 256 * 1024,
};

/// Requested duration of a watch, in seconds: the client ends a watch that is silent for longer.
const SECONDS: u32 = 30;

/// Shortest time between two requeues of a Cluster, and the mean time between many.
const BETWEEN_REQUEUES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// Requeues in a row.
const AT_ONCE: u32 = 3;

/// Shortest time between two starts of a watch.
const MIN_DELAY: Duration = Duration::from_secs(5);

/// Longest delay after a failed watch.
const MAX_DELAY: Duration = Duration::from_mins(5);

/// Watches of the objects of one Cluster. Dropping it ends them.
pub(super) struct Watches {
    /// Client with the limits of a watch.
    client: Client,
    /// Notified of each change.
    changed: Arc<Notify>,
    open: HashMap<Key, AbortOnDropHandle<()>>,
    _requeues: AbortOnDropHandle<()>,
}

impl Watches {
    /// Creates the watches of a Cluster through `client`, of no object yet.
    pub(super) fn new(cluster: ClusterRef, client: &Client, triggers: Requeues) -> Self {
        let changed = Arc::<Notify>::default();
        let requeues = requeue(Arc::clone(&changed), cluster, triggers);
        Self {
            client: bounded(client.clone(), BOUNDS).into_client(),
            changed,
            open: HashMap::new(),
            _requeues: AbortOnDropHandle::new(tokio::spawn(requeues)),
        }
    }

    /// Watches these objects and no others.
    pub(super) fn set(&mut self, watched: &[Key]) {
        self.open.retain(|key, _| watched.contains(key));
        for key in watched {
            self.open.entry(key.clone()).or_insert_with_key(|key| {
                let following = follow(self.client.clone(), key.clone(), Arc::clone(&self.changed));
                AbortOnDropHandle::new(tokio::spawn(following))
            });
        }
    }
}

/// Requeues the Cluster after changes: after the first ones almost at once, later once a second.
async fn requeue(changed: Arc<Notify>, cluster: ClusterRef, triggers: Requeues) {
    let [shortest, mean] = BETWEEN_REQUEUES;
    let mut rate = TokenBucket::full(mean * AT_ONCE, now());
    loop {
        changed.notified().await;
        triggers.enqueue_gated(cluster.clone());
        rate.take(mean, now());
        let left = rate.available_at(mean).saturating_duration_since(now());
        sleep(left.max(shortest)).await;
    }
}

/// Watches one object again and again.
async fn follow(client: Client, key: Key, changed: Arc<Notify>) {
    let (mut delays, mut shown) = (Backoff::new(MIN_DELAY, MAX_DELAY), Shown::default());
    while let Ok(request) = key.watch(SECONDS) {
        let began = now();
        let delay = match watch(&client, request, &mut shown, &changed).await {
            Ok(()) => MIN_DELAY.saturating_sub(now().duration_since(began)),
            Err(_) => delays.failed(now()),
        };
        sleep(delay).await;
    }
}

/// Notifies `changed` of changes until the watch ends.
async fn watch(
    client: &Client,
    request: Request<Vec<u8>>,
    shown: &mut Shown,
    changed: &Notify,
) -> kube::Result<()> {
    let mut events = pin!(client.request_events::<Versioned>(request).await?);
    while let Some(event) = events.next().await {
        let version = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => object.metadata.resource_version,
            WatchEvent::Deleted(_) => None,
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        if shown.changes(version.as_deref()) {
            changed.notify_one();
        }
    }
    Ok(())
}

/// Part of an object in an event that is decoded.
#[derive(Clone, Deserialize)]
struct Versioned {
    metadata: Version,
}

/// `resourceVersion` of an object.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

/// Version of an object that the last event has shown. A hash, because the server chooses its length.
#[derive(Default)]
struct Shown {
    hashes: RandomState,
    version: Option<u64>,
}

impl Shown {
    /// Whether an event with this version shows a change. The first event of each watch is the object as it is. An object that was deleted
    /// has no version.
    fn changes(&mut self, version: Option<&str>) -> bool {
        let version = version.map(|version| self.hashes.hash_one(version));
        let before = mem::replace(&mut self.version, version);
        version.is_none() || version != before
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use futures::{FutureExt as _, Stream};
    use k8s_openapi::api::apps::v1::DaemonSet;
    use rstest::rstest;
    use serde_json::json;
    use sluice_core::protocol::Server;

    use super::*;
    use crate::kube_client::scripted_server::{Answer, ScriptedServer, Verb, event};

    const SECOND: Duration = Duration::from_secs(1);

    fn key(name: &str) -> Key {
        Key::of::<DaemonSet>(Server::Workload, Some("kube-system"), name)
    }

    /// Returns an event with this version of the object, whose annotation has this length.
    fn shows(kind: &str, version: u32, length: usize) -> String {
        let annotations = json!({"text": "x".repeat(length)});
        let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
        event(
            kind,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}),
        )
    }

    /// Returns watches of these objects of a server, and the requeues of their Cluster.
    fn opened(
        server: &ScriptedServer,
        names: &[&str],
    ) -> (Watches, impl Stream<Item = ClusterRef> + Unpin + use<>) {
        let triggers = Requeues::default();
        let requeues = triggers.listen_gated();
        let mut watches = Watches::new(ClusterRef::new("team-a", "one"), &server.client(), triggers);
        set(&mut watches, names);
        (watches, requeues)
    }

    fn set(watches: &mut Watches, names: &[&str]) {
        let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
        watches.set(&keys);
    }

    /// Counts the requeues since the last call.
    fn count(requeues: &mut (impl Stream<Item = ClusterRef> + Unpin)) -> usize {
        std::iter::from_fn(|| requeues.next().now_or_never().flatten()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_requeues_the_cluster_at_once() {
        let server = ScriptedServer::new(|_| Answer::OpenWatch(shows("ADDED", 1, 0)));
        let (_watches, mut requeues) = opened(&server, &["cilium"]);
        sleep(SECOND / 10).await;
        assert_eq!(count(&mut requeues), 1, "it may have changed since it was read");
        for (kind, version, times) in [
            ("MODIFIED", 2, 1),
            ("MODIFIED", 2, 0),
            ("DELETED", 2, 1),
            ("ADDED", 3, 1),
        ] {
            sleep(10 * SECOND).await;
            assert_eq!(count(&mut requeues), 0);
            server.send(|_| true, &shows(kind, version, 0));
            sleep(SECOND / 10).await;
            assert_eq!(count(&mut requeues), times, "{kind} {version}");
        }
        let requests = server.requests();
        assert_eq!(requests.len(), 1, "the server does not end the watch");
        let request = &requests[0];
        assert_eq!(request.verb, Verb::Watch);
        assert_eq!(request.path, "/apis/apps/v1/namespaces/kube-system/daemonsets");
        assert_eq!(request.parameter("fieldSelector"), Some("metadata.name=cilium"));
        assert!(
            request.accept.contains("as=PartialObjectMetadata"),
            "{}",
            request.accept
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_is_opened_again_and_shows_no_change() {
        let lasts = Duration::from_secs(SECONDS.into());
        let server = ScriptedServer::new(move |_| {
            Answer::Watch(vec![
                (Duration::ZERO, shows("ADDED", 1, 0)),
                (lasts, String::new()),
            ])
        });
        let (_watches, mut requeues) = opened(&server, &["cilium"]);
        sleep(10 * lasts + SECOND).await;
        assert_eq!(server.count(|_| true), 11);
        assert_eq!(count(&mut requeues), 1);
    }

    /// A workload API server must not keep the controller busy.
    #[tokio::test(start_paused = true)]
    async fn events_without_end_requeue_once_a_second_after_the_first() {
        let server = ScriptedServer::new(|_| {
            let events = (0..3000).map(|version| (SECOND / 100, shows("MODIFIED", version, 0)));
            Answer::Watch(events.collect())
        });
        let (_watches, mut requeues) = opened(&server, &["cilium", "operator"]);
        sleep(20 * SECOND).await;
        let times = count(&mut requeues);
        assert!((21..=23).contains(&times), "{times}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_each_watch_is_asked_every_five_seconds() {
        let version = AtomicU32::default();
        let server = ScriptedServer::new(move |_| {
            let version = version.fetch_add(1, Relaxed);
            Answer::Watch(vec![(Duration::ZERO, shows("ADDED", version, 0))])
        });
        let (_watches, mut requeues) = opened(&server, &["cilium"]);
        sleep(60 * SECOND + SECOND / 2).await;
        assert_eq!((server.count(|_| true), count(&mut requeues)), (13, 13));
    }

    #[rstest]
    #[case::forbidden(Answer::Refusal(403))]
    #[case::not_served(Answer::Refusal(404))]
    #[case::expired(Answer::error_event(410))]
    #[case::not_json(Answer::OpenWatch("<html>\n".to_owned()))]
    #[case::too_large(Answer::OpenWatch(shows("ADDED", 1, 600 * 1024)))]
    #[case::silent(Answer::Never)]
    #[tokio::test(start_paused = true)]
    async fn a_failed_watch_requeues_nothing_and_is_rarely_tried_again(#[case] answer: Answer) {
        let server = ScriptedServer::new(move |_| answer.clone()).in_chunks(16 * 1024);
        let (_watches, mut requeues) = opened(&server, &["cilium"]);
        sleep(4 * SECOND).await;
        assert_eq!(server.count(|_| true), 1);
        sleep(600 * SECOND).await;
        let asked = server.count(|_| true);
        assert!((5..=40).contains(&asked), "asked {asked} times");
        assert_eq!(count(&mut requeues), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_named_objects_are_watched() {
        let server = ScriptedServer::new(|_| Answer::OpenWatch(String::new()));
        let (mut watches, _requeues) = opened(&server, &["cilium", "operator"]);
        sleep(2 * SECOND).await;
        assert_eq!((server.open_watches(), server.count(|_| true)), (2, 2));
        set(&mut watches, &["operator", "csi"]);
        sleep(2 * SECOND).await;
        assert_eq!((server.open_watches(), server.count(|_| true)), (2, 3));
        set(&mut watches, &["operator", "csi"]);
        sleep(2 * SECOND).await;
        assert_eq!(server.count(|_| true), 3, "they stay open");
        drop(watches);
        sleep(SECOND).await;
        assert_eq!(server.open_watches(), 0);
    }
}
