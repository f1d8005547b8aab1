use http::Request;
use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use futures::StreamExt;
use http::Response;
use kube::Api;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::{cache::FollowedStore, cluster::ClusterRef};
use sluice_crds::foreign::App;
use tokio::time::{sleep, timeout};
use tower::service_fn;

use super::*;
use crate::{
    cache::{
        rollbacks::{Restarts, Rollbacks},
        store::Store,
        watch::{Seen, follow},
    },
    kube_client::requests::is_watch,
    lock::lock,
};

fn app(name: &str, annotation: &str) -> Value {
    let meta = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "3", "annotations": {annotation: "true"}});
    json!({"apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App", "metadata": meta, "spec": {}})
}

/// Returns the lines of a streamed list. An object bears the annotation of the bookmark.
fn lines() -> String {
    let bookmark = json!({
        "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
        "metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}},
    });
    let added = |object| format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
    format!(
        "{}{}{{\"type\":\"BOOKMARK\",\"object\":{bookmark}}}\n",
        added(app("a", "k8s.io/initial-events-end")),
        added(app("b", "{\"type\":\"BOOKMARK\"")),
    )
}

/// Server that sends, a second after each request, what `answer` returns for its query, in chunks of `size`, and records the query. The
/// response to a watch never ends.
fn server(
    answer: impl Fn(&str) -> (u16, String) + Send + Clone + 'static,
    size: usize,
) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let recorded = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Body>| {
        let (answer, asked) = (answer.clone(), Arc::clone(&asked));
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (status, text) = answer(&query);
            lock(&asked).push(query);
            sleep(Duration::from_secs(1)).await;
            let chunks: Vec<_> = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            let ends = !text.contains("BOOKMARK\",\"object") && text.contains("ADDED");
            let goes_on = stream::pending().take(usize::from(status == 200 && is_watch(&request) && !ends));
            let chunks = stream::iter(chunks).chain(goes_on);
            let body = StreamBody::new(chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))));
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), recorded)
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_list_ends_behind_its_bookmark(#[values(1, 7, 100_000)] size: usize) {
    let (client, asked) = server(|_| (200, lines() + "{\"type\":\"ADDED\"}\n"), size);
    let request = Request::get(
        "/apis?&watch=true&timeoutSeconds=10&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    );
    let answer = streaming(client).send(request.body(Body::empty()).unwrap()).await;
    let body = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, lines().as_bytes());
    assert_eq!(
        *lock(&asked),
        ["&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=600"],
        "the newest objects, and time for all of them"
    );
}

/// Follows Apps like the stores of the management API server, until they are filled.
async fn follow_until_filled(client: Client) -> Store<App> {
    let (store, run) = follow::<App>(
        Api::all(streaming(client)),
        watcher::Config::default().streaming_lists(),
        FollowedStore::default(),
        Restarts::never(),
        |seen| assert!(!matches!(seen, Seen::Failed(_)), "{seen:?}"),
    );
    let (mut run, filled) = (pin!(run), timeout(Duration::from_secs(5), store.filled()));
    tokio::select! {
        filled = filled => filled.unwrap(),
        () = &mut run => unreachable!("it goes on"),
    }
    let _goes_on = timeout(Duration::from_millis(1), run).await;
    store
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_fills_the_store() {
    let (client, _) = server(|_| (200, lines()), 100);
    assert_eq!(follow_until_filled(client).await.names().len(), 2);
}

/// Readers rely on what handlers have copied.
#[tokio::test(start_paused = true)]
async fn a_store_is_filled_after_its_handlers() {
    let (client, _) = server(|_| (200, lines()), 100);
    let shown = Arc::new(OnceLock::<Store<App>>::new());
    let seen = Arc::clone(&shown);
    let (store, run) = follow::<App>(
        Api::all(streaming(client)),
        watcher::Config::default().streaming_lists(),
        FollowedStore::default(),
        Restarts::never(),
        move |event| {
            if matches!(event, Seen::Synced(_)) {
                assert!(!seen.get().unwrap().is_filled());
            }
        },
    );
    shown.set(store.clone()).unwrap();
    tokio::select! {
        filled = timeout(Duration::from_secs(5), store.filled()) => filled.unwrap(),
        () = run => unreachable!("it goes on"),
    }
}

/// The watch would resume where the restored API server has not been yet.
#[tokio::test(start_paused = true)]
async fn a_rollback_starts_the_watch_again_with_a_list() {
    let (client, asked) = server(
        |query| {
            let streams = query.contains("sendInitialEvents");
            (200, if streams { lines() } else { String::new() })
        },
        100,
    );
    let rollbacks = Rollbacks::default();
    let (store, run) = follow::<App>(
        Api::all(streaming(client)),
        watcher::Config::default().streaming_lists(),
        FollowedStore::default(),
        rollbacks.restarts(),
        |_| {},
    );
    let task = tokio::spawn(run);
    sleep(Duration::from_secs(5)).await;
    assert!(store.is_filled());
    let lists = || {
        let asked = lock(&asked);
        asked
            .iter()
            .filter(|query| query.contains("sendInitialEvents"))
            .count()
    };
    assert_eq!(lists(), 1);
    rollbacks.saw_earlier(&"App ns/a");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lists(), 2);
    task.abort();
}

/// A server reports changes while it sends the list, and ends the list after them.
#[rstest]
#[tokio::test(start_paused = true)]
async fn what_changes_in_the_middle_of_a_list_is_taken_in(#[values(1, 100_000)] size: usize) {
    let event = |type_: &str, object| format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n");
    let changes = [
        event("DELETED", app("a", "was there")),
        event("DELETED", app("b", "was there")),
        event("ADDED", app("b", "is there again")),
    ];
    let bookmark = lines().rfind("{\"type\":\"BOOKMARK\",\"object").unwrap();
    let mut list = lines();
    list.insert_str(bookmark, &changes.concat());
    let answer = move |query: &str| {
        if query.contains("sendInitialEvents") {
            list.clone()
        } else {
            String::new()
        }
    };
    let (client, _) = server(move |query| (200, answer(query)), size);
    let store = follow_until_filled(client).await;
    let names = store.names();
    assert_eq!(names.iter().map(ClusterRef::name).collect::<Vec<_>>(), ["b"]);
}

/// A store that treated such a list as complete would report objects as deleted.
#[rstest]
#[case::an_error(
    r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":500,"reason":"","message":""}}"#
)]
#[case::an_object_that_cannot_be_read(r#"{"type":"ADDED","object":{"metadata":7}}"#)]
#[case::an_error_behind_a_deletion(concat!(
    r#"{"type":"DELETED","object":{"metadata":{"name":"b","namespace":"ns"}}}"#,
    "\n",
    r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"","message":""}}"#,
))]
#[case::its_end("")]
#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_streamed_comes_in_pages(#[case] line: &'static str) {
    let page = json!({"metadata": {"resourceVersion": "9"}, "items": [app("a", "a"), app("c", "c")]});
    let streamed = lines();
    let (objects, bookmark) = streamed.split_at(streamed.rfind("{\"type\":\"BOOKMARK\",\"object").unwrap());
    let bookmark = if line.is_empty() { "" } else { bookmark };
    let streamed = format!("{objects}{line}\n{bookmark}");
    let (client, asked) = server(
        move |query| {
            let streams = query.contains("sendInitialEvents");
            (
                200,
                if streams {
                    streamed.clone()
                } else {
                    page.to_string()
                },
            )
        },
        100,
    );
    let (store, run) = follow::<App>(
        Api::all(streaming(client)),
        watcher::Config::default().streaming_lists(),
        FollowedStore::default(),
        Restarts::never(),
        |_| {},
    );
    let _goes_on = timeout(Duration::from_secs(8), run).await;
    assert!(store.is_filled());
    let mut names = store.names();
    names.sort();
    assert_eq!(names.iter().map(ClusterRef::name).collect::<Vec<_>>(), ["a", "c"]);
    let asked = lock(&asked);
    let streams = asked.iter().filter(|query| query.contains("sendInitialEvents"));
    assert_eq!(streams.count(), 1, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_asked_for_pages() {
    let page = json!({"metadata": {"resourceVersion": "9"}, "items": [app("a", "a")]});
    let invalid = json!({"kind": "Status", "status": "Failure", "message": "forbidden", "reason": "Invalid", "code": 422});
    let (client, asked) = server(
        move |query| {
            if query.contains("sendInitialEvents") {
                (422, invalid.to_string())
            } else {
                (200, page.to_string())
            }
        },
        100,
    );
    let store = follow_until_filled(client).await;
    assert_eq!(store.names().len(), 1);
    let pages = lock(&asked)
        .iter()
        .filter(|query| query.contains("limit="))
        .count();
    assert_eq!(pages, 1);
}

/// Returns an object with a time that kube-apiserver accepts and the decoder does not.
fn odd(name: &str) -> String {
    let meta = json!({
        "name": name, "namespace": "ns", "uid": name, "resourceVersion": "3", "creationTimestamp": "9999-12-31T23:59:59Z",
    });
    format!(r#"{{"apiVersion":"kappctrl.k14s.io/v1alpha1","kind":"App","metadata":{meta},"spec":{{}}}}"#)
}

/// Returns the Apps in the store, each with whether it is decodable.
fn shows(store: &Store<App>) -> Vec<(String, bool)> {
    let decoded = store
        .names()
        .into_iter()
        .map(|name| (name.name().to_owned(), true));
    let odd = ["a", "b", "c"].map(|name| store.undecodable(Some("ns"), name));
    let odd = odd
        .into_iter()
        .flatten()
        .map(|object| (object.reference().name().to_owned(), false));
    let mut all: Vec<_> = decoded.chain(odd).collect();
    all.sort();
    all
}

/// Streamed, and in a page: one undecodable object affects no other object.
#[rstest]
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_keeps_no_list_from_being_complete(
    #[values(true, false)] streams: bool,
) {
    let (client, _) = server(
        move |query| {
            if !query.contains("watch=true") {
                let good = app("c", "other");
                let list = format!(
                    r#"{{"apiVersion":"v1","kind":"List","metadata":{{"resourceVersion":"9"}},"items":[{},{good}]}}"#,
                    odd("a")
                );
                return (200, list);
            }
            if !query.contains("sendInitialEvents") {
                return (200, String::new());
            }
            if !streams {
                return (422, json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": ""}).to_string());
            }
            let added = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", odd("a"));
            let good = format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", app("c", "other"));
            let bookmark = lines().lines().last().unwrap_or_default().to_owned();
            (200, format!("{added}{good}{bookmark}\n"))
        },
        100,
    );
    let store = follow_until_filled(client).await;
    assert_eq!(shows(&store), [("a".to_owned(), false), ("c".to_owned(), true)]);
}

/// An object becomes undecodable, is corrected, becomes undecodable again and is deleted; each state replaces the earlier one.
#[tokio::test(start_paused = true)]
async fn an_object_is_what_the_watch_showed_last() {
    let (events, received) = futures::channel::mpsc::unbounded::<String>();
    let received = Arc::new(Mutex::new(Some(received)));
    let service = service_fn(move |request: Request<Body>| {
        let received = Arc::clone(&received);
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let first: String = if query.contains("sendInitialEvents") {
                lines()
            } else {
                String::new()
            };
            let is_list = query.contains("sendInitialEvents");
            let later = if is_list { None } else { lock(&received).take() };
            let later = match later {
                Some(later) => later.boxed(),
                None => stream::pending().boxed(),
            };
            let chunks = stream::iter([first]).chain(later);
            let body =
                StreamBody::new(chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(Bytes::from(chunk)))));
            Ok::<_, Infallible>(Response::builder().status(200).body(body).unwrap())
        }
    });
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&seen);
    let (store, run) = follow::<App>(
        Api::all(streaming(Client::new(service, "default"))),
        watcher::Config::default().streaming_lists(),
        FollowedStore::default(),
        Restarts::never(),
        move |event| {
            event.each(|app, presence| {
                lock(&noted).push(format!(
                    "{} {presence:?}",
                    app.metadata.name.as_deref().unwrap_or_default()
                ));
            });
            event.each_undecodable(|object, presence| {
                lock(&noted).push(format!("odd {} {presence:?}", object.reference().name()));
            });
        },
    );
    let following = tokio::spawn(run);
    store.filled().await;
    let send = async |kind: &str, object: String| {
        events
            .unbounded_send(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
            .unwrap();
        sleep(Duration::from_secs(1)).await;
        let seen: Vec<String> = std::mem::take(&mut *lock(&seen));
        (shows(&store), seen.join(", "))
    };
    let b = || ("b".to_owned(), true);
    lock(&seen).clear();
    assert_eq!(
        send("MODIFIED", odd("a")).await,
        (
            vec![("a".to_owned(), false), b()],
            "a Gone, odd a There".to_owned()
        )
    );
    assert_eq!(
        send("MODIFIED", odd("a")).await,
        (vec![("a".to_owned(), false), b()], String::new()),
        "touched"
    );
    let good = app("a", "other").to_string();
    assert_eq!(
        send("MODIFIED", good).await,
        (
            vec![("a".to_owned(), true), b()],
            "a There, odd a Gone".to_owned()
        )
    );
    assert_eq!(send("MODIFIED", odd("a")).await.0, [("a".to_owned(), false), b()]);
    // The last state of an object may differ from the cached one.
    let (_, seen) = send("DELETED", app("a", "other").to_string()).await;
    assert_eq!(seen, "odd a Gone");
    assert_eq!(send("ADDED", app("a", "other").to_string()).await.1, "a There");
    assert_eq!(send("DELETED", odd("a")).await, (vec![b()], "a Gone".to_owned()));
    send("ADDED", odd("a")).await;
    assert_eq!(
        send("DELETED", odd("a")).await,
        (vec![b()], "odd a Gone".to_owned())
    );
    following.abort();
}
