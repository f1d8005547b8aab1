//! Freezable network to an API server of tests.

use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use kube::client::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::kube_client::{
    middleware::middleware,
    scripted_server::{Answer, ScriptedServer, Verb},
};

/// Network to an API server that can be frozen.
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
    pub(crate) fn client(&self, items: impl Fn(&str) -> Vec<Value> + Send + Sync + 'static) -> Client {
        let server = ScriptedServer::new(move |request| match request.verb {
            Verb::StreamingList => Answer::Refusal(422),
            Verb::Watch => {
                let seconds = request.parameter("timeoutSeconds").unwrap();
                Answer::bookmarks(seconds.parse().unwrap())
            }
            Verb::Read => Answer::Body(json!({
                "apiVersion": "v1", "kind": "List",
                "metadata": {"resourceVersion": "1"},
                "items": items(&request.path),
            })),
        });
        let frozen = self.clone();
        let network = middleware(server.client(), move |server, request| {
            let (frozen, path) = (frozen.clone(), request.uri().path().to_owned());
            async move {
                frozen.thawed(&path).await;
                let answer = server.send(request).await?;
                Ok(answer.map(|body| {
                    let chunks = body.into_data_stream().then(move |chunk| {
                        let (frozen, path) = (frozen.clone(), path.clone());
                        async move {
                            frozen.thawed(&path).await;
                            chunk.map(Frame::data)
                        }
                    });
                    StreamBody::new(chunks).boxed_unsync()
                }))
            }
        });
        network.into_client()
    }
}
