//! Fake API server for tests of whole reconciles. Its watches send no events. Those of a management cluster expire, so that their
//! objects are listed again.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use sluice_test_store::{Refused, Store, Strategy, identify, status};
use tokio::{sync::watch, time::sleep};

use crate::kube_client::requests::{is_watch, streams_list};

/// Time after which a watch expires.
const EXPIRES: Duration = Duration::from_secs(10);

/// Fake API server. Clones share the objects.
#[derive(Clone, Default)]
pub(crate) struct ObjectServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: Store<String, Revision>,
    /// Path fragment of refused requests, whether only writes are refused, and the code.
    refuses: Option<(&'static str, bool, u16)>,
    /// Path fragment of writes that call an unresponsive webhook.
    asks_webhook: Option<&'static str>,
    /// Path fragment whose patches have no effect: a webhook restores what they remove.
    keeps: Option<&'static str>,
    /// Objects by path that replace the current ones after a read.
    later: BTreeMap<String, Value>,
    /// Requests of clients, without watches.
    asked: Vec<(Method, String)>,
    /// Path whose response waits for the sender.
    waits: Option<(&'static str, watch::Receiver<bool>)>,
}

/// Number of writes.
#[derive(Default)]
struct Revision(u64);

impl Strategy<String> for Revision {
    fn prepare(&mut self, path: &String, _: Option<&Value>, object: &mut Value) {
        self.0 += 1;
        let segments: Vec<&str> = path.split('/').collect();
        let namespaces = segments.iter().position(|segment| *segment == "namespaces");
        let namespace = namespaces
            .filter(|at| segments.len() > at + 3)
            .map_or("", |at| segments[at + 1]);
        let name = segments.last().copied().unwrap_or_default();
        identify(object, namespace, name, format!("uid-{}", self.0));
        object["metadata"]["resourceVersion"] = json!(self.0.to_string());
    }
}

impl ObjectServer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Stores an object at `/apis/<group>/<version>/namespaces/<namespace>/<plural>/<name>` or the like.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.state().objects.put(path.to_owned(), object);
    }

    /// Returns the object at a path.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(&path.to_owned()).cloned()
    }

    /// Returns the paths and objects of a kind.
    pub(crate) fn all(&self, plural: &str) -> Vec<(String, Value)> {
        let kind = format!("/{plural}/");
        let state = self.state();
        let of_kind = state.objects.all().filter(|(path, _)| path.contains(&kind));
        of_kind
            .map(|(path, object)| (path.clone(), object.clone()))
            .collect()
    }

    /// Returns the path and the object of a kind with one object.
    pub(crate) fn only(&self, plural: &str) -> (String, Value) {
        let mut found = self.all(plural);
        assert_eq!(found.len(), 1, "{plural}");
        found.remove(0)
    }

    /// Returns the names of all objects of a kind.
    pub(crate) fn names(&self, plural: &str) -> Vec<String> {
        let kind = format!("/{plural}/");
        let state = self.state();
        let of_kind = state.objects.all().filter(|(path, _)| path.contains(&kind));
        of_kind
            .filter_map(|(path, _)| path.rsplit('/').next().map(str::to_owned))
            .collect()
    }

    /// Replaces the object at a path after the next read of it, found or missing.
    pub(crate) fn put_later(&self, path: &str, object: Value) {
        self.state().later.insert(path.to_owned(), object);
    }

    /// Refuses all requests below such a path from now on.
    pub(crate) fn refuse(&self, path: &'static str, code: u16) {
        self.state().refuses = Some((path, false, code));
    }

    /// Refuses writes below such a path from now on.
    pub(crate) fn refuse_writes(&self, path: &'static str, code: u16) {
        self.state().refuses = Some((path, true, code));
    }

    /// Fails writes below such a path with an unresponsive webhook from now on, except those of a status.
    pub(crate) fn ask_webhook(&self, path: &'static str) {
        self.state().asks_webhook = Some(path);
    }

    /// Accepts patches below such a path without an effect from now on.
    pub(crate) fn keep(&self, path: &'static str) {
        self.state().keeps = Some(path);
    }

    /// Accepts and stores every write from now on.
    pub(crate) fn take_everything(&self) {
        let mut state = self.state();
        (state.refuses, state.keeps) = (None, None);
    }

    /// Edits the object at a path.
    pub(crate) fn edit(&self, path: &str, edit: impl FnOnce(&mut Value)) {
        let mut object = self.get(path).unwrap();
        edit(&mut object);
        self.put(path, object);
    }

    /// Removes the object at a path.
    pub(crate) fn remove(&self, path: &str) {
        self.state().objects.remove(&path.to_owned());
    }

    /// Returns every write request, such as `POST /api/v1/namespaces`.
    pub(crate) fn asked_to_write(&self) -> Vec<String> {
        let state = self.state();
        let writes = state.asked.iter().filter(|(method, _)| !method.is_safe());
        writes.map(|(method, path)| format!("{method} {path}")).collect()
    }

    /// Counts the requests of clients, without watches.
    pub(crate) fn requests(&self) -> usize {
        self.state().asked.len()
    }

    /// Returns the last requests of clients.
    pub(crate) fn asked_last(&self, times: usize) -> Vec<String> {
        let asked = self.state().asked.clone();
        let last = asked.into_iter().rev().take(times);
        last.map(|(method, path)| format!("{method} {path}")).collect()
    }

    /// Returns whether a client requested a path.
    pub(crate) fn was_asked_for(&self, path: &str) -> bool {
        self.times_asked_for(path) > 0
    }

    /// Counts the requests of a path.
    pub(crate) fn times_asked_for(&self, path: &str) -> usize {
        let state = self.state();
        state.asked.iter().filter(|(_, asked)| asked == path).count()
    }

    /// Counts the requests below such a path.
    pub(crate) fn times_asked_below(&self, path: &str) -> usize {
        let state = self.state();
        state
            .asked
            .iter()
            .filter(|(_, asked)| asked.contains(path))
            .count()
    }

    /// Delays responses for a path until the returned sender sends `true`.
    pub(crate) fn wait_at(&self, path: &'static str) -> watch::Sender<bool> {
        let (answers, waits) = watch::channel(false);
        self.state().waits = Some((path, waits));
        answers
    }

    /// Returns the signal that a request of a path has to wait for, if any.
    fn waits(&self, path: &str) -> Option<watch::Receiver<bool>> {
        let state = self.state();
        let (at, waits) = state.waits.as_ref()?;
        (*at == path).then(|| waits.clone())
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                if streams_list(&request) {
                    let invalid = Full::from(status(422, "").to_string()).boxed_unsync();
                    return Ok(Response::builder().status(422).body(invalid).unwrap());
                }
                if is_watch(&request) {
                    let is_short = request
                        .uri()
                        .query()
                        .is_some_and(|query| query.contains("timeoutSeconds=30"));
                    let events = if is_short {
                        stream::pending().boxed()
                    } else {
                        expired().boxed()
                    };
                    return Ok::<_, Infallible>(Response::new(StreamBody::new(events).boxed_unsync()));
                }
                let (head, body) = request.into_parts();
                if let Some(mut waits) = server.waits(head.uri.path()) {
                    waits.wait_for(|answers| *answers).await.unwrap();
                }
                let body = body.collect().await.unwrap().to_bytes();
                let sent = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = server.state().answer(&head.method, head.uri.path(), &sent);
                let answer: UnsyncBoxBody<Bytes, Infallible> =
                    Full::new(Bytes::from(answer.to_string())).boxed_unsync();
                Ok(Response::builder().status(code).body(answer).unwrap())
            }
        });
        Client::new(service, "default")
    }
}

/// Returns the events of a watch whose resourceVersion expires after a while.
fn expired() -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let status =
        json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": ""});
    let event = json!({"type": "ERROR", "object": status}).to_string() + "\n";
    stream::once(async move {
        sleep(EXPIRES).await;
        Ok(Frame::data(Bytes::from(event)))
    })
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, sent: &Value) -> (u16, Value) {
        self.asked.push((method.clone(), path.to_owned()));
        if let Some((refused, writes_only, code)) = self.refuses
            && path.contains(refused)
            && !(writes_only && method.is_safe())
        {
            let reason = match code {
                404 => "NotFound",
                409 => "Conflict",
                _ => "",
            };
            return (code, status(code, reason));
        }
        let is_asked = |asked: &str| path.contains(asked) && !path.ends_with("/status") && !method.is_safe();
        if self.asks_webhook.is_some_and(is_asked) {
            let mut uncalled = status(500, "");
            uncalled["message"] = json!("failed calling webhook \"one.example.com\": no such host");
            return (500, uncalled);
        }
        let (path, is_status) = path
            .strip_suffix("/status")
            .map_or((path, false), |path| (path, true));
        let at = path.to_owned();
        let objects = &mut self.objects;
        let answer = match *method {
            Method::GET if objects.get(&at).is_none() && segments(path) % 2 == 1 => Ok(self.list(path)),
            Method::GET => {
                let found = objects.get(&at).cloned();
                if let Some(later) = self.later.remove(path) {
                    objects.put(at, later);
                }
                found.ok_or(Refused::NotFound)
            }
            Method::POST => {
                let name = sent["metadata"]["name"].as_str().unwrap_or("generated");
                let created = objects.create(format!("{path}/{name}"), sent.clone());
                return created.map_or_else(refused, |created| (201, created));
            }
            Method::PUT if is_status => objects.replace_status(&at, sent),
            Method::PUT => objects.replace(&at, sent),
            Method::PATCH if self.keeps.is_some_and(|kept| path.contains(kept)) => objects
                .check(&at, &sent["metadata"])
                .map(|kept| Value::clone(kept)),
            Method::PATCH if sent.is_array() => objects.json_patch(&at, sent),
            Method::PATCH => objects.patch(&at, sent),
            _ => objects.delete(&at, &sent["preconditions"]),
        };
        answer.map_or_else(refused, |found| (200, found))
    }

    fn list(&self, path: &str) -> Value {
        let (prefix, plural) = path.rsplit_once('/').unwrap_or_default();
        let is_item = |of: &str| {
            let mut end = of.rsplit('/').skip(1);
            of.starts_with(prefix) && end.next() == Some(plural)
        };
        let items = self.objects.all().filter(|(path, _)| is_item(path));
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
    }
}

/// How many segments a path has below the version of its API: an odd number is that of a list.
fn segments(path: &str) -> usize {
    let above = if path.starts_with("/api/") { 3 } else { 4 };
    path.split('/').count().saturating_sub(above)
}

fn refused(reason: Refused) -> (u16, Value) {
    (reason.code(), reason.status())
}
