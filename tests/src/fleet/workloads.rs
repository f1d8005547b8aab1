//! The API servers of all workload clusters: one listener of the harness. The first part of a path names the cluster.
//!
//! It keeps objects, lists and watches them, and counts requests. It checks nothing and computes nothing.

mod contents;
mod path;

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{Method, Request, Response, StatusCode, header};
use axum::serve::Listener as _;
use futures::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use crate::processes::tls::Tls;
use crate::stack::pki::ClusterPki;
use contents::{Change, Contents};
use path::Path;

/// The longest body of a request.
const LONGEST: usize = 4 * 1024 * 1024;

/// Changes that a watch may be behind.
const BEHIND: usize = 65_536;

/// Path of the kinds of workloads, which gates discover.
const APPS: &str = "/apis/apps/v1";

/// Duration of a watch without `timeoutSeconds`.
const WATCH: Duration = Duration::from_mins(5);

/// The listener, until it is dropped.
pub(super) struct Workloads {
    port: u16,
    pki: Arc<ClusterPki>,
    shared: Shared,
    serving: AbortHandle,
}

/// A request: of which cluster, and when.
pub(super) type Asked = (u32, Instant);

#[derive(Clone)]
struct Shared {
    contents: Arc<Mutex<Contents>>,
    changes: broadcast::Sender<Arc<Change>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Workloads {
    /// Listens, with a certificate of `pki`.
    pub(super) async fn start(pki: &Arc<ClusterPki>) -> Result<Self> {
        let listener = Tls::bind(&pki.server_certificate()?, &["h2", "http/1.1"]).await?;
        let port = listener.local_addr()?.port();
        let shared = Shared {
            contents: Arc::default(),
            changes: broadcast::channel(BEHIND).0,
            asked: Arc::default(),
        };
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let serving = async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!("the listener of workloads: {error}");
            }
        };
        Ok(Self {
            port,
            pki: Arc::clone(pki),
            shared,
            serving: tokio::spawn(serving).abort_handle(),
        })
    }

    /// A kubeconfig that leads to the API server of the cluster with this name.
    pub(super) fn kubeconfig(&self, name: &str) -> String {
        self.pki
            .admin_kubeconfig(&format!("https://127.0.0.1:{}/{name}", self.port))
    }

    /// Contents of the clusters.
    pub(super) fn contents(&self) -> MutexGuard<'_, Contents> {
        self.shared.contents()
    }

    /// Writes an object as a program in a cluster, and returns the result.
    pub(super) fn write(&self, cluster: &str, path: &str, object: Value) -> Value {
        self.shared.write(cluster, &Path::of(path), object)
    }

    /// All requests since the start.
    pub(super) fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, cluster: &str, path: &Path, object: Value) -> Value {
        let change = self.contents().write(cluster, path, object);
        self.publish(change)
    }

    fn publish(&self, change: Change) -> Value {
        let object = change.object.clone();
        // Without a watch there is no receiver.
        let _none = self.changes.send(Arc::new(change));
        object
    }
}

async fn answer(State(shared): State<Shared>, request: Request<Body>) -> Response<Body> {
    let uri = request.uri().clone();
    let (cluster, path) = match uri.path().trim_start_matches('/').split_once('/') {
        Some((cluster, path)) => (cluster.to_owned(), Path::of(&format!("/{path}"))),
        None => return status(StatusCode::NOT_FOUND, "NotFound"),
    };
    if let Some(number) = super::number(&cluster) {
        let mut asked = shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push((number, Instant::now()));
    }
    let query = uri.query().unwrap_or_default();
    let method = request.method().clone();
    if method == Method::GET {
        return read(&shared, &cluster, &path, query);
    }
    let Ok(body) = to_bytes(request.into_body(), LONGEST).await else {
        return status(StatusCode::BAD_REQUEST, "BadRequest");
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    changed(&shared, &method, &cluster, path, body)
}

fn read(shared: &Shared, cluster: &str, path: &Path, query: &str) -> Response<Body> {
    let parameter = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .into_iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    };
    if path.name.is_some() {
        return match shared.contents().text(cluster, path) {
            Some(text) => answered(StatusCode::OK, Body::from(text)),
            None => status(StatusCode::NOT_FOUND, "NotFound"),
        };
    }
    if path.collection == APPS {
        return answered(StatusCode::OK, Body::from(workload_kinds().to_string()));
    }
    if matches!(parameter("watch"), Some("1" | "true")) {
        let lasts = parameter("timeoutSeconds").and_then(|seconds| seconds.parse().ok());
        let lasts = lasts.map_or(WATCH, Duration::from_secs);
        let initial = parameter("sendInitialEvents") == Some("true");
        let since = parameter("resourceVersion").and_then(|version| version.parse().ok());
        // Before the contents are read, so that nothing falls between.
        let changes = shared.changes.subscribe();
        let mut first = shared.contents().since(cluster, path, since.filter(|_| !initial));
        if initial {
            first.push(bookmark(shared.contents().version(), true));
        }
        let events = watched(changes, cluster.to_owned(), path.collection.clone(), lasts);
        let last = stream::once(ready(shared.contents().version())).map(|version| bookmark(version, false));
        let events = stream::iter(first).chain(events).chain(last);
        let parts = events.map(|event| Ok::<_, Infallible>(Bytes::from(event)));
        return answered(StatusCode::OK, Body::from_stream(parts));
    }
    let list = shared.contents().list(cluster, path);
    answered(StatusCode::OK, Body::from(list))
}

/// The kinds of group `apps` that a cluster serves.
fn workload_kinds() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1",
        "resources": [{
            "name": "daemonsets", "singularName": "daemonset", "kind": "DaemonSet", "namespaced": true,
            "verbs": ["get", "list", "watch"],
        }],
    })
}

/// The changes of a collection for so long.
fn watched(
    changes: broadcast::Receiver<Arc<Change>>,
    cluster: String,
    collection: String,
    lasts: Duration,
) -> impl Stream<Item = String> + Send {
    let end = tokio::time::Instant::now() + lasts;
    stream::unfold(
        (changes, cluster, collection),
        move |(mut changes, cluster, collection)| async move {
            loop {
                match timeout_at(end, changes.recv()).await {
                    Ok(Ok(change)) if change.cluster == cluster && change.collection == collection => {
                        return Some((change.event(), (changes, cluster, collection)));
                    }
                    Ok(Ok(_)) => {}
                    // One that is too far behind ends early, and is begun again.
                    Ok(Err(_)) | Err(_) => return None,
                }
            }
        },
    )
}

fn bookmark(version: u64, ends_initial: bool) -> String {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if ends_initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    format!(
        "{}\n",
        json!({"type": "BOOKMARK", "object": {"kind": "Bookmark", "apiVersion": "v1", "metadata": metadata}})
    )
}

fn changed(shared: &Shared, method: &Method, cluster: &str, mut path: Path, body: Value) -> Response<Body> {
    let found = shared.contents().get(cluster, &path);
    let object = match (method.as_str(), found) {
        ("POST", _) => {
            path.name = body["metadata"]["name"].as_str().map(str::to_owned);
            if shared.contents().get(cluster, &path).is_some() {
                return status(StatusCode::CONFLICT, "AlreadyExists");
            }
            body
        }
        ("DELETE" | "PUT", None) => return status(StatusCode::NOT_FOUND, "NotFound"),
        ("DELETE", Some(object)) => {
            let change = shared.contents().delete(cluster, &path, object);
            shared.publish(change);
            return status(StatusCode::OK, "");
        }
        ("PUT", Some(_)) | ("PATCH", None) => body,
        ("PATCH", Some(mut object)) => {
            merge(&mut object, &body);
            object
        }
        _ => return status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    };
    let object = shared.write(cluster, &path, object);
    answered(StatusCode::OK, Body::from(object.to_string()))
}

/// A merge patch (RFC 7386).
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(name));
        } else {
            merge(&mut object[name], value);
        }
    }
}

fn status(code: StatusCode, reason: &str) -> Response<Body> {
    let outcome = if code.is_success() { "Success" } else { "Failure" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": outcome, "reason": reason, "message": reason, "code": code.as_u16()});
    answered(code, Body::from(status.to_string()))
}

fn answered(code: StatusCode, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_merges_and_removes() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut object, &json!({"a": {"b": null, "e": {"f": 3}}, "d": [2]}));
        assert_eq!(object, json!({"a": {"c": 2, "e": {"f": 3}}, "d": [2]}));
    }
}
