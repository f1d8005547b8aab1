use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::Full;
use kube::client::Body;
use prometheus_client::encoding::text::encode;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tower::service_fn;

use super::*;
use crate::lock::lock;

/// API server with a response per path, and the requests it received.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<HashMap<&'static str, (u16, Value)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn answers(&self, path: &'static str, code: u16, body: Value) {
        lock(&self.answers).insert(path, (code, body));
    }

    fn asked_for(&self, path: &str) -> usize {
        lock(&self.asked).iter().filter(|asked| *asked == path).count()
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path().to_owned();
            let answer = lock(&server.answers).get(path.as_str()).cloned();
            lock(&server.asked).push(path);
            let (code, body) = answer.unwrap_or((404, Value::Null));
            async move {
                let body = match code {
                    200 => body,
                    code => {
                        json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": "no"})
                    }
                };
                let answer = http::Response::builder().status(code);
                Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body.to_string()))).unwrap())
            }
        });
        Client::new(service, "default")
    }
}

/// Registration checks of a leader.
struct Leader {
    registry: Registry,
    _running: AbortOnDropHandle<()>,
}

impl Leader {
    fn of(server: &Server) -> Self {
        Self::with(server, || in_namespaces(&["team-a", "team-b"]))
    }

    /// Returns a leader with these Clusters.
    fn with(server: &Server, clusters: impl Fn() -> Vec<ClusterRef> + Send + Sync + 'static) -> Self {
        let metrics = RegistrationMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let names = ["sluice", "gone"].map(str::to_owned).to_vec();
        let running = tokio::spawn(run(server.client(), names, clusters, metrics, (None, None)));
        Self {
            registry,
            _running: AbortOnDropHandle::new(running),
        }
    }

    fn shows(&self, line: &str) -> bool {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text.lines().any(|shown| shown == line)
    }
}

/// A Cluster in each namespace.
fn in_namespaces(names: &[&str]) -> Vec<ClusterRef> {
    names.iter().map(|name| ClusterRef::new(name, "one")).collect()
}

const SLUICE: &str = "/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs/sluice";
const NAMESPACES: &str = "/api/v1/namespaces";
const IS_DISCOVERED: &str = "sluice_extension_config_discovered{extension_config=\"sluice\"} 1";
const IS_NOT: &str = "sluice_extension_config_discovered{extension_config=\"sluice\"} 0";

/// Returns an ExtensionConfig that selects namespaces of team a.
fn config(discovered: &str) -> Value {
    json!({
        "metadata": {"name": "sluice"},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}},
        "status": {"conditions": [{"type": "Discovered", "status": discovered, "reason": "Any"}]},
    })
}

fn namespaces(names: &[&str]) -> Value {
    let items: Vec<Value> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name, "managedFields": [{"time": "9999-12-31T23:59:59Z"}]}}))
        .collect();
    json!({"metadata": {}, "items": items})
}

#[tokio::test(start_paused = true)]
async fn what_is_found_is_shown_once_all_may_be_there() {
    let server = Server::default();
    server.answers(SLUICE, 200, config("True"));
    server.answers(NAMESPACES, 200, namespaces(&["team-a"]));
    let leader = Leader::of(&server);
    sleep(INTERVAL / 2).await;
    assert_eq!(server.asked_for(SLUICE), 0);
    sleep(INTERVAL).await;
    assert!(leader.shows(IS_DISCOVERED));
    assert!(leader.shows("sluice_extension_config_discovered{extension_config=\"gone\"} 0"));
    assert!(leader.shows("sluice_unselected_clusters 1"));

    // Labels of namespaces are read less often than ExtensionConfigs.
    server.answers(NAMESPACES, 200, namespaces(&["team-a", "team-b"]));
    sleep(INTERVAL).await;
    assert!(leader.shows("sluice_unselected_clusters 1"));
    sleep(BELIEVED).await;
    assert!(leader.shows("sluice_unselected_clusters 0"));
    // The first list, another one before a Cluster is counted, and one after five minutes.
    assert_eq!(server.asked_for(NAMESPACES), 3);

    server.answers(NAMESPACES, 200, namespaces(&[]));
    server.answers(SLUICE, 200, config("False"));
    sleep(INTERVAL).await;
    assert!(leader.shows(IS_NOT));
    assert!(
        leader.shows("sluice_unselected_clusters 0"),
        "of one that is not discovered more need not be said"
    );
}

/// The namespace is newer than the cached list.
#[tokio::test(start_paused = true)]
async fn a_cluster_in_a_new_namespace_is_not_taken_for_unselected() {
    let server = Server::default();
    server.answers(SLUICE, 200, config("True"));
    server.answers(NAMESPACES, 200, namespaces(&["team-a"]));
    let there = Arc::new(Mutex::new(in_namespaces(&["team-a"])));
    let clusters = Arc::clone(&there);
    let leader = Leader::with(&server, move || lock(&clusters).clone());
    sleep(INTERVAL * 3 / 2).await;
    assert!(leader.shows("sluice_unselected_clusters 0"));
    server.answers(NAMESPACES, 200, namespaces(&["team-a", "team-b"]));
    *lock(&there) = in_namespaces(&["team-a", "team-b"]);
    sleep(INTERVAL).await;
    assert!(leader.shows("sluice_unselected_clusters 0"));
    // An unselected namespace causes one lookup.
    *lock(&there) = in_namespaces(&["team-a", "team-b", "team-c"]);
    let asked = server.asked_for(NAMESPACES);
    sleep(INTERVAL * 3).await;
    assert!(leader.shows("sluice_unselected_clusters 1"));
    assert_eq!(server.asked_for(NAMESPACES), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_known_until_it_can() {
    let server = Server::default();
    server.answers(SLUICE, 403, Value::Null);
    let leader = Leader::of(&server);
    sleep(INTERVAL * 3 / 2).await;
    assert!(!leader.shows(IS_DISCOVERED) && !leader.shows(IS_NOT));
    // A failed list of namespaces does not hide other results.
    server.answers(SLUICE, 200, config("True"));
    server.answers(NAMESPACES, 500, Value::Null);
    sleep(INTERVAL).await;
    assert!(leader.shows(IS_DISCOVERED));
    server.answers(SLUICE, 500, Value::Null);
    sleep(INTERVAL).await;
    assert!(!leader.shows(IS_DISCOVERED), "an old answer is none");
    server.answers(SLUICE, 200, config("False"));
    server.answers(NAMESPACES, 200, namespaces(&[]));
    sleep(INTERVAL).await;
    assert!(leader.shows(IS_NOT));
    server.answers(SLUICE, 200, config("True"));
    sleep(INTERVAL).await;
    assert!(leader.shows("sluice_unselected_clusters 2"));
}

#[tokio::test(start_paused = true)]
async fn an_hour_at_rest_costs_few_requests() {
    let server = Server::default();
    server.answers(SLUICE, 200, config("True"));
    server.answers(NAMESPACES, 200, namespaces(&["team-a", "team-b"]));
    let _leader = Leader::of(&server);
    sleep(Duration::from_hours(1)).await;
    let (configs, namespaces) = (server.asked_for(SLUICE), server.asked_for(NAMESPACES));
    assert!((118..=120).contains(&configs), "{configs}");
    assert!((10..=12).contains(&namespaces), "{namespaces}");
}

/// A new leader does not wait for the first check, which only reports.
#[tokio::test(start_paused = true)]
async fn the_scope_of_the_hooks_is_read_at_once_and_followed() {
    let server = Server::default();
    server.answers(SLUICE, 200, config("True"));
    server.answers(NAMESPACES, 200, namespaces(&["team-a"]));
    let (scope, names) = (HookScope::default(), vec!["sluice".to_owned()]);
    assert!(scope.unasked("team-a").is_some(), "nothing was read yet");
    let running = run(
        server.client(),
        names,
        Vec::new,
        RegistrationMetrics::default(),
        (Some(scope.clone()), None),
    );
    let _running = AbortOnDropHandle::new(tokio::spawn(running));
    scope.read().await;
    assert_eq!(scope.unasked("team-a"), None);
    assert!(scope.unasked("team-b").is_some());

    let mut changes = Box::pin(scope.changes());
    server.answers(SLUICE, 200, config("False"));
    sleep(INTERVAL * 2).await;
    assert!(changes.next().now_or_never().is_some());
    assert!(scope.unasked("team-a").is_some());
    server.answers(SLUICE, 200, config("True"));
    sleep(INTERVAL).await;
    assert_eq!(scope.unasked("team-a"), None);
    server.answers(SLUICE, 500, Value::Null);
    sleep(INTERVAL).await;
    assert_eq!(scope.unasked("team-a"), None, "a failed read says nothing");
}
