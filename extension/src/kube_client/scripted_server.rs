//! API server of tests. A script decides the response to each get, list and watch.

use std::{
    convert::Infallible,
    fmt::Display,
    future::{pending, ready},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::extract::Query;
use bytes::Bytes;
use futures::{
    Stream, StreamExt as _,
    channel::mpsc::{self, UnboundedSender},
    stream::{self, BoxStream},
};
use http::{Request, Response, header::ACCEPT};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;

use crate::{
    kube_client::requests::{is_watch, streams_list},
    lock::lock,
};

/// Request that the server has received.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest {
    pub(crate) verb: Verb,
    pub(crate) path: String,
    /// Decoded parameters.
    pub(crate) query: Vec<(String, String)>,
    /// Accepted media types.
    pub(crate) accept: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Reads an object, or one page of a list.
    Read,
    /// A watch that starts with a list.
    StreamingList,
    Watch,
}

impl ApiRequest {
    fn of(request: &Request<Body>) -> Self {
        let Query(query) = Query::try_from_uri(request.uri()).unwrap();
        let accept = request.headers().get(ACCEPT);
        Self {
            verb: match (streams_list(request), is_watch(request)) {
                (true, _) => Verb::StreamingList,
                (false, true) => Verb::Watch,
                (false, false) => Verb::Read,
            },
            path: request.uri().path().to_owned(),
            query,
            accept: accept.map_or_else(String::new, |accept| accept.to_str().unwrap().to_owned()),
        }
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.iter();
        pairs
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Response to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// An object or a page of a list.
    Body(Value),
    /// An error response with this status code.
    Refusal(u16),
    /// The response that the object of this name does not exist.
    Missing(String),
    /// Texts, each sent this long after the one before. The response ends after the last one.
    Watch(Vec<(Duration, String)>),
    /// A watch that sends a text and stays open.
    OpenWatch(String),
    /// A response whose head comes this late.
    Late(Duration, Box<Answer>),
    Never,
    /// A panic of this process.
    Panic,
}

impl Answer {
    /// Returns a watch that ends after this time and sends nothing.
    pub(crate) fn idle_watch(lasts: Duration) -> Self {
        Self::Watch(vec![(lasts, String::new())])
    }

    /// Returns a watch that sends an error event and ends.
    pub(crate) fn error_event(code: u16) -> Self {
        Self::Watch(vec![(Duration::ZERO, event("ERROR", status(code)))])
    }

    /// Returns a watch of this many seconds that sends a bookmark each minute and one at its end.
    pub(crate) fn bookmarks(seconds: u64) -> Self {
        let object = json!({"apiVersion": "v1", "kind": "Any", "metadata": {"resourceVersion": "1"}});
        let minutes = (0..seconds / 60).map(|_| 60);
        let distances = minutes.chain([seconds % 60]).map(Duration::from_secs);
        Self::Watch(
            distances
                .map(|distance| (distance, event("BOOKMARK", &object)))
                .collect(),
        )
    }
}

/// Returns the line of an event of a watch. As in Go, its type comes first.
pub(crate) fn event(kind: &str, object: impl Display) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn status(code: u16) -> Value {
    let reason = match code {
        404 => "NotFound",
        410 => "Expired",
        422 => "Invalid",
        _ => "",
    };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "", "code": code})
}

/// Path of an open watch, and the sender of its texts.
type OpenWatch = (String, UnboundedSender<String>);

type Frames = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// Server that responds as its script says. Clones share the received requests and the open watches.
#[derive(Clone)]
pub(crate) struct ScriptedServer {
    script: Arc<dyn Fn(&ApiRequest) -> Answer + Send + Sync>,
    /// Maximum length of a frame of a response body.
    chunk: usize,
    requests: Arc<Mutex<Vec<ApiRequest>>>,
    watches: Arc<Mutex<Vec<OpenWatch>>>,
}

impl ScriptedServer {
    pub(crate) fn new(script: impl Fn(&ApiRequest) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            chunk: usize::MAX,
            requests: Arc::default(),
            watches: Arc::default(),
        }
    }

    /// Splits response bodies into frames of this length.
    pub(crate) fn in_chunks(self, chunk: usize) -> Self {
        Self { chunk, ..self }
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (server, request) = (server.clone(), ApiRequest::of(&request));
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// Returns the received requests, oldest first.
    pub(crate) fn requests(&self) -> Vec<ApiRequest> {
        lock(&self.requests).clone()
    }

    /// Returns the number of received requests that `counts` accepts.
    pub(crate) fn count(&self, counts: impl Fn(&ApiRequest) -> bool) -> usize {
        let requests = lock(&self.requests);
        requests.iter().filter(|request| counts(request)).count()
    }

    /// Sends `text` on the open watches of each path that `is_meant` accepts.
    pub(crate) fn send(&self, is_meant: impl Fn(&str) -> bool, text: &str) {
        lock(&self.watches)
            .retain(|(path, watch)| !is_meant(path) || watch.unbounded_send(text.to_owned()).is_ok());
    }

    /// Counts the watches that their clients have not ended.
    pub(crate) fn open_watches(&self) -> usize {
        let watches = lock(&self.watches);
        watches.iter().filter(|(_, watch)| !watch.is_closed()).count()
    }

    /// Ends all open watches.
    pub(crate) fn end_watches(&self) {
        lock(&self.watches).clear();
    }

    async fn answer(&self, request: ApiRequest) -> Response<StreamBody<Frames>> {
        lock(&self.requests).push(request.clone());
        let mut answer = (self.script)(&request);
        while let Answer::Late(after, late) = answer {
            sleep(after).await;
            answer = *late;
        }
        let (code, texts) = match answer {
            Answer::Body(body) => (200, stream::iter([body.to_string()]).boxed()),
            Answer::Refusal(code) => (code, stream::iter([status(code).to_string()]).boxed()),
            Answer::Missing(name) => {
                let mut missing = status(404);
                missing["details"] = json!({"name": name});
                (404, stream::iter([missing.to_string()]).boxed())
            }
            Answer::Watch(texts) => {
                let scripted = stream::iter(texts).then(|(after, text)| async move {
                    sleep(after).await;
                    text
                });
                (200, self.watch(request.path, scripted))
            }
            Answer::OpenWatch(text) => {
                let scripted = stream::iter([text]).chain(stream::pending());
                (200, self.watch(request.path, scripted))
            }
            Answer::Late(..) => unreachable!("it is replaced by its response"),
            Answer::Never => pending().await,
            Answer::Panic => panic!("a bug"),
        };
        let size = self.chunk;
        let frames = texts.flat_map(move |text| {
            let chunks = text.as_bytes().chunks(size).map(Bytes::copy_from_slice);
            let frames: Vec<_> = chunks.map(|chunk| Ok(Frame::data(chunk))).collect();
            stream::iter(frames)
        });
        let body = StreamBody::new(frames.boxed());
        Response::builder().status(code).body(body).unwrap()
    }

    /// Returns the texts of a watch: the scripted ones, and those of [`Self::send`].
    fn watch(
        &self,
        path: String,
        scripted: impl Stream<Item = String> + Send + 'static,
    ) -> BoxStream<'static, String> {
        let (sender, sent) = mpsc::unbounded();
        lock(&self.watches).push((path, sender));
        let end = || stream::once(ready(None::<String>));
        let both = stream::select(scripted.map(Some).chain(end()), sent.map(Some).chain(end()));
        // `select` alone would go on until both have ended.
        both.scan((), |(), text| ready(text)).boxed()
    }
}
