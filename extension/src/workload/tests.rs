use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::client::Body;
use rstest::rstest;
use serde_json::json;
use sluice_core::{
    limits::GivenUp,
    protocol::Contact,
    workload::{MAX_REST, MIN_REST, OWED},
};
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, service_fn};

use super::{connection::LARGEST_STORE, server::NotAsked, *};
use crate::kube_client::{bounded::bounded, requests::is_watch};

impl Remotes {
    /// Opens a connection over an existing client.
    pub(crate) fn adopt(
        &self,
        cluster_uid: &str,
        cluster: &ClusterRef,
        digest: &str,
        client: &Client,
    ) -> Arc<Remote> {
        let made = || Ok(client.clone().into());
        self.open_with(cluster_uid, cluster, digest, made).unwrap()
    }

    /// Returns the number of open connections.
    pub(crate) fn len(&self) -> usize {
        lock(&self.live).len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Workload API server with empty lists.
#[derive(Clone, Default)]
struct Server(Arc<State>);

#[derive(Default)]
struct State {
    /// It refuses connections.
    is_away: AtomicBool,
    /// Each page of a list announces another page.
    pages: AtomicBool,
    /// Number of requested pages.
    asked: AtomicUsize,
}

/// Returns an event of the App with this number and this many finalizers without a name.
fn event(number: usize, finalizers: usize) -> String {
    let app = json!({
        "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
        "metadata": {"name": format!("app-{number}"), "namespace": "tkg-system", "resourceVersion": number.to_string(), "finalizers": vec![""; finalizers]},
        "spec": {},
    });
    // Go writes the type first.
    format!("{{\"type\":\"MODIFIED\",\"object\":{app}}}\n")
}

impl Server {
    /// Returns a client; watches of Apps show what `events` makes.
    fn client<E>(&self, events: impl Fn() -> E + Clone + Send + Sync + 'static) -> Client
    where
        E: Stream<Item = String> + Send + 'static,
    {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (server, events) = (server.clone(), events.clone());
            async move {
                if server.0.is_away.load(Ordering::Relaxed) {
                    return Err(BoxError::from("connection refused"));
                }
                Ok(Response::new(server.answer(&request, events())))
            }
        });
        Client::new(service, "default")
    }

    fn answer(
        &self,
        request: &Request<Body>,
        events: impl Stream<Item = String> + Send + 'static,
    ) -> UnsyncBoxBody<Bytes, Infallible> {
        let path = request.uri().path();
        let frames = |events: futures::stream::BoxStream<'static, String>| {
            StreamBody::new(events.map(|event| Ok(Frame::data(Bytes::from(event))))).boxed_unsync()
        };
        if is_watch(request) {
            return if path.ends_with("/apps") {
                frames(events.boxed())
            } else {
                frames(stream::pending().boxed())
            };
        }
        let answer = if path.ends_with("/kube-system") {
            json!({"metadata": {"name": "kube-system", "uid": "workload"}})
        } else {
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            let more = self.0.pages.load(Ordering::Relaxed).then_some("more");
            json!({"metadata": {"resourceVersion": "1", "continue": more}, "items": []})
        };
        Full::new(Bytes::from(answer.to_string())).boxed_unsync()
    }
}

fn remotes() -> (Remotes, impl Stream<Item = crate::queue::requeues::Requeue>) {
    let triggers = Requeues::default();
    let requeues = triggers.listen();
    (
        Remotes::new(
            "tkg-system".to_owned(),
            triggers,
            Dependents::default(),
            Fence::open(),
        ),
        requeues,
    )
}

/// Reconciles for this long after each requeue of the Cluster, for five minutes. Returns the start times.
async fn reconcile(
    remotes: &Remotes,
    requeues: impl Stream<Item = crate::queue::requeues::Requeue>,
    length: Duration,
    changes: bool,
) -> Vec<Instant> {
    let mut requeues = Box::pin(requeues);
    let mut reconciles = Vec::new();
    let end = Instant::now() + Duration::from_mins(5);
    while Instant::now() < end {
        let Ok(Some(_)) = tokio::time::timeout_at(end, requeues.next()).await else {
            break;
        };
        // A controller merges requeues that arrive meanwhile.
        while requeues.next().now_or_never().is_some() {}
        reconciles.push(Instant::now());
        let passing = remotes.begin("uid").expect("a pace");
        sleep(length).await;
        if changes {
            passing.brought_changes();
        }
    }
    reconciles
}

/// Returns events, `distance` apart.
fn every(distance: Duration) -> impl Stream<Item = String> + Send {
    stream::unfold(0, move |number| async move {
        sleep(distance).await;
        Some((event(number % 10, 0), number + 1))
    })
}

fn open<E>(
    remotes: &Remotes,
    server: &Server,
    events: impl Fn() -> E + Clone + Send + Sync + 'static,
) -> Arc<Remote>
where
    E: Stream<Item = String> + Send + 'static,
{
    let cluster = ClusterRef::new("team-a", "one");
    remotes.connected(&server.client(events).into(), "uid", &cluster, "digest")
}

fn distances(reconciles: &[Instant]) -> impl Iterator<Item = Duration> + '_ {
    reconciles.windows(2).map(|pair| pair[1] - pair[0])
}

/// The events are progress: none of the Apps is ready.
#[rstest]
#[case::nothing_new(Duration::from_millis(50), false, MAX_REST)]
#[case::something_new_each_time(Duration::from_millis(50), true, MIN_REST)]
#[case::slow_reconciles(Duration::from_secs(2), true, Duration::from_secs(2))]
#[tokio::test(start_paused = true)]
async fn events_without_end_keep_no_slot(
    #[case] length: Duration,
    #[case] changes: bool,
    #[case] last_rest: Duration,
) {
    let (remotes, requeues) = remotes();
    let _remote = open(&remotes, &Server::default(), || every(Duration::from_millis(100)));
    let reconciles = reconcile(&remotes, requeues, length, changes).await;
    let distances: Vec<_> = distances(&reconciles).collect();
    let between = Duration::from_millis(110);
    let at_once = distances
        .iter()
        .take_while(|distance| **distance <= length + between)
        .count();
    assert!(
        (5..25).contains(&at_once),
        "at first they follow each other at once: {distances:?}"
    );
    let last = distances.iter().rev().take(20).sum::<Duration>() / 20;
    assert!(
        last.abs_diff(length + last_rest) < between * 2,
        "in the end each rests: {distances:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_after_a_rest_is_noticed_at_once() {
    let (remotes, requeues) = remotes();
    let apart = Duration::from_secs(10);
    let _remote = open(&remotes, &Server::default(), move || every(apart));
    let reconciles = reconcile(&remotes, requeues, Duration::from_millis(50), false).await;
    let events = &reconciles[reconciles.len() - 25..];
    let late = |distance: Duration| distance.abs_diff(apart) > Duration::from_millis(10);
    assert!(!distances(events).any(late), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn what_happens_on_the_management_cluster_is_never_delayed() {
    let (remotes, requeues) = remotes();
    let mut requeues = Box::pin(requeues);
    let remote = open(&remotes, &Server::default(), || every(Duration::from_millis(100)));
    sleep(Duration::from_secs(1)).await;
    let passing = remotes.begin("uid");
    while requeues.next().now_or_never().is_some() {}
    sleep(Duration::from_mins(1)).await;
    assert!(requeues.next().now_or_never().is_none(), "a reconcile runs");
    remotes.triggers.enqueue(ClusterRef::new("team-a", "one"));
    assert!(requeues.next().now_or_never().is_some());
    drop((passing, remote));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_opened_again_keeps_its_pace() {
    let (remotes, requeues) = remotes();
    let mut requeues = Box::pin(requeues);
    let server = Server::default();
    let mut reconciles = 0;
    let end = Instant::now() + Duration::from_mins(1);
    while Instant::now() < end {
        // Another connection in each reconcile, as to a server that shows other data each time. Its first lists requeue the Cluster.
        let passing = remotes.begin("uid");
        let remote = open(&remotes, &server, stream::pending);
        sleep(Duration::from_millis(10)).await;
        drop(passing);
        let next = timeout(Duration::from_mins(1), requeues.next()).await;
        assert!(next.is_ok_and(|cluster| cluster.is_some()));
        while requeues.next().now_or_never().is_some() {}
        reconciles += 1;
        drop(remote);
    }
    let owed = usize::try_from(OWED.as_secs()).unwrap();
    assert!(reconciles <= 62 + owed, "{reconciles} reconciles in a minute");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_not_requested_in_each_reconcile() {
    let (remotes, _requeues) = remotes();
    let server = Server::default();
    server.0.is_away.store(true, Ordering::Relaxed);
    let remote = open(&remotes, &server, stream::pending);
    assert!(
        !is_not_asked(&remote.read_uid().await.unwrap_err()),
        "it gets one request"
    );
    assert!(is_not_asked(&remote.read_uid().await.unwrap_err()));
    server.0.is_away.store(false, Ordering::Relaxed);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(remote.read_uid().await.unwrap(), "workload", "it responds again");
}

fn is_not_asked(error: &kube::Error) -> bool {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.into_iter().any(<dyn std::error::Error>::is::<NotAsked>)
}

#[tokio::test(start_paused = true)]
async fn the_cache_of_a_workload_cluster_has_a_maximum_size() {
    let (remotes, _requeues) = remotes();
    let remote = open(&remotes, &Server::default(), || {
        // Another App each time.
        stream::unfold(0, |number| async move {
            sleep(Duration::from_millis(500)).await;
            Some((event(number, LARGEST_STORE / 40 / 32), number + 1))
        })
    });
    let mut seen = Vec::new();
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        assert!(
            remote.apps.state().len() < 40,
            "{} Apps",
            remote.apps.state().len()
        );
        seen.push(remote.given_up());
    }
    seen.dedup();
    let much = Some(GivenUp::TooMuch(LARGEST_STORE));
    assert_eq!(
        seen[..4],
        [None, much, None, much],
        "it is listed again, and again too much: {seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_filled_again() {
    let (remotes, _requeues) = remotes();
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    let remote = open(&remotes, &Server::default(), move || {
        let panics = Arc::clone(&counted);
        stream::unfold(0, move |number| {
            let panics = Arc::clone(&panics);
            async move {
                sleep(Duration::from_secs(1)).await;
                let bug = number > 0 && panics.load(Ordering::Relaxed) < 5;
                if bug {
                    panics.fetch_add(1, Ordering::Relaxed);
                }
                assert!(!bug, "a bug");
                Some((event(number, 0), number + 1))
            }
        })
    });
    let began = Instant::now();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(remote.given_up(), Some(GivenUp::Panicked));
    assert_eq!(remote.apps.state().len(), 0, "partial content is dropped");
    while panics.load(Ordering::Relaxed) < 5 {
        assert!(
            began.elapsed() < Duration::from_hours(1),
            "it is not filled again"
        );
        sleep(Duration::from_secs(1)).await;
    }
    assert!(began.elapsed() > Duration::from_secs(20), "the delays are long");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(remote.given_up(), None);
    assert!(!remote.apps.state().is_empty());
    assert!(!matches!(remote.contact().await, Contact::Ended));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_empty_pages_without_end_is_begun_again_after_growing_delays() {
    let (remotes, _requeues) = remotes();
    let server = Server::default();
    server.0.pages.store(true, Ordering::Relaxed);
    let client = bounded(server.client(stream::pending), client::BOUNDS);
    let remote = remotes.connected(&client, "uid", &ClusterRef::new("team-a", "one"), "digest");
    sleep(Duration::from_mins(10)).await;
    assert!(matches!(remote.contact().await, Contact::Silent { .. }));
    let lists = server.0.asked.load(Ordering::Relaxed) / 65;
    assert!(
        (40..120).contains(&lists),
        "{lists} lists of two kinds in ten minutes"
    );
    server.0.pages.store(false, Ordering::Relaxed);
    sleep(Duration::from_mins(2)).await;
    assert!(matches!(remote.contact().await, Contact::Serves { .. }));
    assert!(remote.is_filled());
}

#[tokio::test]
async fn a_client_is_made_while_nothing_is_locked() {
    let (remotes, _requeues) = remotes();
    let cluster = ClusterRef::new("team-a", "one");
    let made = || {
        let free = remotes.live.try_lock().is_ok() && remotes.paces.try_lock().is_ok();
        assert!(free, "other Clusters wait for the client of this one");
        Ok(Server::default().client(stream::pending).into())
    };
    let first = remotes.open_with("uid", &cluster, "digest", made).unwrap();
    let again = remotes.open_with("uid", &cluster, "digest", || panic!("it is open"));
    assert!(Arc::ptr_eq(&first, &again.unwrap()));

    let mut meanwhile = None;
    let later = remotes.open_with("uid", &cluster, "other", || {
        meanwhile = remotes.open_with("uid", &cluster, "other", made).ok();
        made()
    });
    assert!(
        Arc::ptr_eq(&meanwhile.unwrap(), &later.unwrap()),
        "one connection"
    );
    assert_eq!(remotes.len(), 1);
}
