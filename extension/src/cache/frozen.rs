//! API server of tests.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::Request;
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::{Body, Client};
use serde_json::json;
use tokio::{sync::watch, time::sleep};
use tower::service_fn;

use crate::kube_client::requests::{is_watch, streams_list};

/// In-memory API server over a network that can be frozen.
#[derive(Clone)]
pub(crate) struct Frozen {
    still: watch::Sender<bool>,
    /// Suffix of the paths to freeze.
    path: &'static str,
}

impl Frozen {
    pub(crate) fn new() -> Self {
        Self {
            still: watch::Sender::new(false),
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

    /// Lists return what `items` returns for the path. Watches deliver a bookmark each minute, and end after the requested time. No response arrives while
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
                let list = if streams {
                    json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": ""})
                } else {
                    json!({
                        "apiVersion": "v1", "kind": "List",
                        "metadata": {"resourceVersion": "1"},
                        "items": items(request.uri().path()),
                    })
                };
                let pairs = request.uri().query().unwrap_or_default().split('&');
                let mut seconds = pairs.filter_map(|pair| pair.strip_prefix("timeoutSeconds="));
                let left: u64 = seconds.next().map_or(0, |seconds| seconds.parse().unwrap());
                let begins = if watch {
                    Answer::Watch(left)
                } else {
                    Answer::List(list.to_string())
                };
                let frames = stream::unfold(begins, move |answer| {
                    let (frozen, path) = (frozen.clone(), path.clone());
                    async move {
                        let (text, next) = match answer {
                            Answer::List(list) => (list, Answer::End),
                            Answer::Watch(left) => {
                                sleep(Duration::from_secs(left.min(BOOKMARKS))).await;
                                frozen.thawed(&path).await;
                                let next = left.checked_sub(BOOKMARKS).map(Answer::Watch);
                                (bookmark(), next.unwrap_or(Answer::End))
                            }
                            Answer::End => return None,
                        };
                        Some((Ok(Frame::data(Bytes::from(text))), next))
                    }
                });
                let answer = http::Response::builder().status(if streams { 422 } else { 200 });
                Ok::<_, Infallible>(answer.body(infallible(StreamBody::new(frames))).unwrap())
            }
        });
        Client::new(service, "default")
    }
}

/// Rest of a response.
enum Answer {
    List(String),
    /// Seconds that are left of a watch.
    Watch(u64),
    End,
}

/// Seconds between two bookmarks.
const BOOKMARKS: u64 = 60;

fn bookmark() -> String {
    let object = json!({"apiVersion": "v1", "kind": "Any", "metadata": {"resourceVersion": "1"}});
    json!({"type": "BOOKMARK", "object": object}).to_string() + "\n"
}

/// Names the error type of an infallible body.
fn infallible<S>(body: StreamBody<S>) -> StreamBody<S>
where
    S: futures::Stream<Item = Result<Frame<Bytes>, Infallible>>,
{
    body
}
