use std::{
    pin::pin,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use http::Request;
use kube::{Api, Client, client::Body};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::{cache::FollowedStore, cluster::ClusterRef};
use sluice_crds::foreign::App;
use tokio::time::{sleep, timeout};

use super::*;
use crate::{
    cache::{
        rollbacks::{Restarts, Rollbacks},
        store::Store,
        watch::{Seen, follow},
    },
    kube_client::scripted_server::{Answer, ApiRequest, ScriptedServer, Verb, event},
    lock::lock,
};

fn app(name: &str, annotation: &str) -> Value {
    let meta = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "3", "annotations": {annotation: "true"}});
    json!({"apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App", "metadata": meta, "spec": {}})
}

/// Returns the objects of a streamed list. One bears the annotation of the bookmark, and one its text.
fn objects() -> String {
    let texts = ["k8s.io/initial-events-end", "{\"type\":\"BOOKMARK\""];
    let apps = [app("a", texts[0]), app("b", texts[1])];
    apps.map(|app| event("ADDED", app)).concat()
}

/// Returns the end of a streamed list.
fn bookmark() -> String {
    let object = json!({
        "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
        "metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}},
    });
    event("BOOKMARK", object)
}

/// Returns a whole streamed list.
fn streamed() -> Answer {
    Answer::OpenWatch(objects() + &bookmark())
}

/// Returns a list in one page.
fn page(objects: &[Value]) -> Answer {
    Answer::Body(json!({"metadata": {"resourceVersion": "9"}, "items": objects}))
}

const NO_PAGE: Answer = Answer::Refusal(500);

/// Returns a server with these lists, streamed and in pages. Its watches stay open.
fn server(streamed: Answer, page: Answer) -> ScriptedServer {
    let server = ScriptedServer::new(move |request| match request.verb {
        Verb::StreamingList => streamed.clone(),
        Verb::Read => page.clone(),
        Verb::Watch => Answer::OpenWatch(String::new()),
    });
    server.in_chunks(100)
}

fn is_streaming_list(request: &ApiRequest) -> bool {
    request.verb == Verb::StreamingList
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_list_ends_behind_its_bookmark(#[values(1, 7, 100_000)] size: usize) {
    let list = objects() + &bookmark();
    let sent = list.clone() + "{\"type\":\"ADDED\"}\n";
    let server = server(Answer::OpenWatch(sent), NO_PAGE).in_chunks(size);
    let request = Request::get(
        "/apis?&watch=true&timeoutSeconds=10&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
    );
    let client = streaming(server.client());
    let answer = client.send(request.body(Body::empty()).unwrap()).await;
    let body = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, list.as_bytes());
    let requests = server.requests();
    let query = requests.iter().flat_map(|request| &request.query);
    let query: Vec<String> = query.map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        query,
        [
            "watch=true",
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "timeoutSeconds=600",
        ],
        "the newest objects, and time for all of them"
    );
}

/// Follows Apps like the stores of the management API server.
fn follow_apps(
    client: Client,
    restarts: Restarts,
    on: impl FnMut(&Seen<'_, App>) + Send,
) -> (Store<App>, impl Future<Output = ()> + Send) {
    let api = Api::all(streaming(client).into_client());
    let config = watcher::Config::default().streaming_lists();
    follow(api, config, FollowedStore::default(), restarts, on)
}

/// Follows Apps until their store is filled.
async fn follow_until_filled(server: &ScriptedServer) -> Store<App> {
    let (store, run) = follow_apps(server.client(), Restarts::never(), |seen| {
        assert!(!matches!(seen, Seen::Failed(_)), "{seen:?}");
    });
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
    let server = server(streamed(), NO_PAGE);
    assert_eq!(follow_until_filled(&server).await.names().len(), 2);
}

/// Readers rely on what handlers have copied.
#[tokio::test(start_paused = true)]
async fn a_store_is_filled_after_its_handlers() {
    let server = server(streamed(), NO_PAGE);
    let shown = Arc::new(OnceLock::<Store<App>>::new());
    let seen = Arc::clone(&shown);
    let (store, run) = follow_apps(server.client(), Restarts::never(), move |event| {
        if matches!(event, Seen::Synced(_)) {
            assert!(!seen.get().unwrap().is_filled());
        }
    });
    shown.set(store.clone()).unwrap();
    tokio::select! {
        filled = timeout(Duration::from_secs(5), store.filled()) => filled.unwrap(),
        () = run => unreachable!("it goes on"),
    }
}

/// The watch would resume where the restored API server has not been yet.
#[tokio::test(start_paused = true)]
async fn a_rollback_starts_the_watch_again_with_a_list() {
    let server = server(streamed(), NO_PAGE);
    let rollbacks = Rollbacks::default();
    let (store, run) = follow_apps(server.client(), rollbacks.restarts(), |_| {});
    let task = tokio::spawn(run);
    sleep(Duration::from_secs(5)).await;
    assert!(store.is_filled());
    let lists = || server.count(is_streaming_list);
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
    let changes = [
        event("DELETED", app("a", "was there")),
        event("DELETED", app("b", "was there")),
        event("ADDED", app("b", "is there again")),
    ];
    let list = objects() + &changes.concat() + &bookmark();
    let server = server(Answer::OpenWatch(list), NO_PAGE).in_chunks(size);
    let store = follow_until_filled(&server).await;
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
    let begun = objects() + line + "\n";
    let streamed = if line.is_empty() {
        Answer::Watch(vec![(Duration::ZERO, begun)])
    } else {
        Answer::OpenWatch(begun + &bookmark())
    };
    let server = server(streamed, page(&[app("a", "a"), app("c", "c")]));
    let (store, run) = follow_apps(server.client(), Restarts::never(), |_| {});
    let _goes_on = timeout(Duration::from_secs(8), run).await;
    assert!(store.is_filled());
    let mut names = store.names();
    names.sort();
    assert_eq!(names.iter().map(ClusterRef::name).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(server.count(is_streaming_list), 1, "{:?}", server.requests());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_asked_for_pages() {
    let server = server(Answer::Refusal(422), page(&[app("a", "a")]));
    let store = follow_until_filled(&server).await;
    assert_eq!(store.names().len(), 1);
    let pages = server.count(|request| request.parameter("limit").is_some());
    assert_eq!(pages, 1);
}

/// Returns an object with a time that kube-apiserver accepts and the decoder does not.
fn odd(name: &str) -> Value {
    let mut odd = app(name, "odd");
    odd["metadata"]["creationTimestamp"] = json!("9999-12-31T23:59:59Z");
    odd
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
    let objects = [odd("a"), app("c", "other")];
    let page = page(&objects);
    let streamed = if streams {
        let added = objects.map(|object| event("ADDED", object));
        Answer::OpenWatch(added.concat() + &bookmark())
    } else {
        Answer::Refusal(422)
    };
    let store = follow_until_filled(&server(streamed, page)).await;
    assert_eq!(shows(&store), [("a".to_owned(), false), ("c".to_owned(), true)]);
}

/// An object becomes undecodable, is corrected, becomes undecodable again and is deleted; each state replaces the earlier one.
#[tokio::test(start_paused = true)]
async fn an_object_is_what_the_watch_showed_last() {
    let server = server(streamed(), NO_PAGE);
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&seen);
    let (store, run) = follow_apps(server.client(), Restarts::never(), move |event| {
        event.each(|app, presence| {
            let name = app.metadata.name.as_deref().unwrap_or_default();
            lock(&noted).push(format!("{name} {presence:?}"));
        });
        event.each_undecodable(|object, presence| {
            lock(&noted).push(format!("odd {} {presence:?}", object.reference().name()));
        });
    });
    let following = tokio::spawn(run);
    store.filled().await;
    // Its watch opens.
    sleep(Duration::from_secs(1)).await;
    let send = async |kind: &str, object: Value| {
        server.send(|_| true, &event(kind, object));
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
    assert_eq!(
        send("MODIFIED", app("a", "other")).await,
        (
            vec![("a".to_owned(), true), b()],
            "a There, odd a Gone".to_owned()
        )
    );
    assert_eq!(send("MODIFIED", odd("a")).await.0, [("a".to_owned(), false), b()]);
    // The last state of an object may differ from the cached one.
    let (_, seen) = send("DELETED", app("a", "other")).await;
    assert_eq!(seen, "odd a Gone");
    assert_eq!(send("ADDED", app("a", "other")).await.1, "a There");
    assert_eq!(send("DELETED", odd("a")).await, (vec![b()], "a Gone".to_owned()));
    send("ADDED", odd("a")).await;
    assert_eq!(
        send("DELETED", odd("a")).await,
        (vec![b()], "odd a Gone".to_owned())
    );
    following.abort();
}
