use crate::kube_client::requests::is_watch;
use http::Request;
use std::{
    convert::Infallible,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use hyper::body::Frame;
use kube::{Api, runtime::watcher};
use rstest::rstest;
use serde_json::json;
use sluice_core::cache::RELIST_AFTER;
use sluice_crds::foreign::App;
use tokio::{sync::watch, time::sleep};
use tower::service_fn;

use super::*;
use crate::cache::watch::{Seen, follow};

/// Behaviour of a server for a request.
#[derive(Clone, Copy)]
enum Way {
    /// Ends the answer after so many seconds.
    Ends(u64),
    /// Breaks the connection after so many seconds.
    Breaks(u64),
    /// Refuses with a status after so many seconds.
    Refuses(u16, u64),
}

/// Returns a client whose requests all get the same behaviour.
fn client(way: Way) -> Client {
    let service = service_fn(move |_: Request<Body>| async move {
        let (status, seconds, breaks) = match way {
            Way::Ends(seconds) => (200, seconds, false),
            Way::Breaks(seconds) => (200, seconds, true),
            Way::Refuses(status, seconds) => (status, seconds, false),
        };
        let frames = stream::unfold(0, move |frame| async move {
            match frame {
                0 => Some((Ok(Frame::data(Bytes::from_static(b"{}\n"))), 1)),
                1 => {
                    sleep(Duration::from_secs(seconds)).await;
                    breaks.then(|| (Err(std::io::Error::other("reset")), 2))
                }
                _ => None,
            }
        });
        let answer = http::Response::builder().status(status);
        Ok::<_, Infallible>(answer.body(StreamBody::new(frames)).unwrap())
    });
    Client::new(service, "default")
}

#[rstest]
#[case::ends_in_good_order("watch=true", Way::Ends(10), true)]
#[case::ends_late("watch=true", Way::Ends(12), true)]
#[case::ends_early("watch=true", Way::Ends(3), false)]
#[case::breaks("watch=true", Way::Breaks(10), false)]
#[case::gone("watch=true", Way::Refuses(410, 0), false)]
#[case::away("watch=true", Way::Refuses(503, 0), false)]
#[case::a_proxy_that_gives_up("watch=true", Way::Refuses(504, 10), false)]
#[case::is_a_list("limit=500", Way::Ends(10), false)]
#[tokio::test(start_paused = true)]
async fn what_proves_an_age(#[case] query: &str, #[case] way: Way, #[case] proves: bool) {
    let followed = dated();
    let asked = now();
    let request = Request::get(format!("/api/v1/configmaps?&{query}&resourceVersion=1"));

    let answer = dating(client(way), &followed);
    let answer = answer.send(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(
        age_of(&followed),
        None,
        "the beginning of an answer proves nothing"
    );
    let _broken = answer.into_body().collect().await;

    assert_eq!(age_of(&followed), proves.then(|| now().duration_since(asked)));
}

fn dated() -> Arc<Mutex<FollowedStore>> {
    Arc::new(Mutex::new(FollowedStore::dated()))
}

fn age_of(followed: &Mutex<FollowedStore>) -> Option<Duration> {
    lock(followed).age(now())
}

/// In-memory API server over a network that can be frozen.
#[derive(Clone)]
pub(crate) struct Frozen {
    still: watch::Sender<bool>,
    list_takes: Duration,
    /// Suffix of the paths to freeze.
    path: &'static str,
}

impl Frozen {
    pub(crate) fn new() -> Self {
        Self::with_slow_lists(Duration::ZERO)
    }

    fn with_slow_lists(list_takes: Duration) -> Self {
        Self {
            still: watch::Sender::new(false),
            list_takes,
            path: "",
        }
    }

    /// Creates a network that freezes only requests for this kind.
    pub(crate) fn of(plural: &'static str) -> Self {
        Self {
            path: plural,
            ..Self::new()
        }
    }

    pub(crate) fn set(&self, frozen: bool) {
        self.still.send_replace(frozen);
    }

    async fn thawed(&self, path: &str) {
        if !path.ends_with(self.path) {
            return;
        }
        let waited = self.still.subscribe().wait_for(|frozen| !frozen).await.is_ok();
        assert!(waited);
    }

    /// Lists return what `items` returns for the path. Watches deliver no event and end after the requested time. No response arrives while
    /// the network is frozen. Lists are not streamed.
    pub(crate) fn client(
        &self,
        items: impl Fn(&str) -> Vec<serde_json::Value> + Send + Sync + Clone + 'static,
    ) -> Client {
        let frozen = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (frozen, items) = (frozen.clone(), items.clone());
            async move {
                let path = request.uri().path().to_owned();
                frozen.thawed(&path).await;
                let streams = streams_list(&request);
                let watch = is_watch(&request) && !streams;
                if !watch && !streams {
                    sleep(frozen.list_takes).await;
                }
                let list = if streams {
                    json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": ""})
                } else {
                    json!({
                        "apiVersion": "v1", "kind": "List",
                        "metadata": {"resourceVersion": "1"},
                        "items": items(request.uri().path()),
                    })
                };
                let seconds = request
                    .uri()
                    .query()
                    .unwrap_or_default()
                    .split('&')
                    .find_map(|pair| {
                        let seconds = pair.strip_prefix("timeoutSeconds=")?;
                        seconds.parse().ok()
                    });
                let frames = stream::unfold(false, move |ended| {
                    let (frozen, list, path) = (frozen.clone(), list.to_string(), path.clone());
                    async move {
                        if !watch {
                            return (!ended).then(|| (Ok(Frame::data(Bytes::from(list))), true));
                        }
                        sleep(Duration::from_secs(seconds.unwrap_or(0))).await;
                        frozen.thawed(&path).await;
                        None
                    }
                });
                let answer = http::Response::builder().status(if streams { 422 } else { 200 });
                Ok::<_, Infallible>(answer.body(infallible(StreamBody::new(frames))).unwrap())
            }
        });
        Client::new(service, "default")
    }
}

/// Names the error type of an infallible body.
fn infallible<S>(body: StreamBody<S>) -> StreamBody<S>
where
    S: futures::Stream<Item = Result<Frame<Bytes>, Infallible>>,
{
    body
}

/// Follows Apps and counts complete lists.
fn follow_counted(
    frozen: &Frozen,
    followed: &Arc<Mutex<FollowedStore>>,
) -> (Arc<AtomicU32>, impl Future<Output = ()> + Send + use<>) {
    let client = dating(frozen.client(|_| Vec::new()), followed);
    let lists = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&lists);
    let (_, run) = follow::<App>(
        Api::all(client),
        watcher::Config::default(),
        Arc::default(),
        Arc::clone(followed),
        move |seen| {
            if matches!(seen, Seen::Synced(_)) {
                counted.fetch_add(1, Relaxed);
            }
        },
    );
    (lists, run)
}

/// Maximum age of an idle store, plus a second.
const TWO_WATCHES: Duration = Duration::from_secs(21);

#[tokio::test(start_paused = true)]
async fn an_idle_store_stays_young_and_a_silent_one_is_listed_again() {
    let (frozen, followed) = (Frozen::new(), dated());
    let (lists, run) = follow_counted(&frozen, &followed);
    assert_eq!(age_of(&followed), None);
    let task = tokio::spawn(run);
    sleep(Duration::from_secs(1)).await;

    for _ in 0..300 {
        let age = age_of(&followed).unwrap();
        assert!(age <= TWO_WATCHES, "{age:?}");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(lists.load(Relaxed), 1);

    frozen.set(true);
    sleep(Duration::from_mins(5)).await;
    let age = age_of(&followed).unwrap();
    assert!(age >= Duration::from_mins(5), "{age:?}");

    frozen.set(false);
    sleep(TWO_WATCHES).await;
    let age = age_of(&followed).unwrap();
    assert!(age <= TWO_WATCHES, "{age:?}");
    assert!(lists.load(Relaxed) >= 2, "a list ends the doubt");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_longer_than_the_watch_timeout_is_not_repeated() {
    let frozen = Frozen::with_slow_lists(RELIST_AFTER * 2);
    let followed = dated();
    let (lists, run) = follow_counted(&frozen, &followed);
    let task = tokio::spawn(run);

    sleep(RELIST_AFTER * 2 + TWO_WATCHES).await;
    for _ in 0..300 {
        let age = age_of(&followed).unwrap();
        assert!(age <= TWO_WATCHES, "{age:?}");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(lists.load(Relaxed), 1);
    task.abort();
}
