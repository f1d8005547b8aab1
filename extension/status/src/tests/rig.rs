//! Test rig of a service with filled caches, an API server with configurable reviews, and clients.

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::Router;
use bytes::Bytes;
use futures::{FutureExt as _, channel::mpsc, future::BoxFuture};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::{Body, Client};
use serde_json::{Value, json};
use sluice_core::{cluster::ClusterRef, lock::lock};
use sluice_proto::status::v1::status_service_client::StatusServiceClient;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::service_fn;

use crate::{Caches, Changed, ClusterView, Lifecycle, Status, StatusMetrics};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for an event with a timeout.
pub(super) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(TIMEOUT, future)
        .await
        .unwrap_or_else(|_| panic!("waited {TIMEOUT:?} for {what}"))
}

/// Result of a token review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// The token belongs to a user of this name, who may see everything.
    Allowed,
    /// The token belongs to a user who may see nothing.
    Denied,
    /// The token belongs to no user.
    Unknown,
    /// The request never gets a response.
    Nothing,
}

/// Configurable reviews.
#[derive(Debug, Clone, Default)]
pub(super) struct Reviews(Arc<Mutex<Asked>>);

#[derive(Debug, Default)]
struct Asked {
    said: HashMap<String, Said>,
    tokens: Vec<String>,
}

impl Reviews {
    /// Sets the result of a token from now on; other tokens are unknown.
    pub(super) fn say(&self, token: &str, said: Said) {
        lock(&self.0).said.insert(token.to_owned(), said);
    }

    /// Returns the number of reviewed tokens with this prefix.
    pub(super) fn asked(&self, prefix: &str) -> usize {
        let asked = lock(&self.0);
        let of_prefix = asked.tokens.iter().filter(|token| token.starts_with(prefix));
        of_prefix.count()
    }

    /// Returns the result of a token by its longest configured prefix.
    fn of(&self, token: &str) -> Said {
        let asked = lock(&self.0);
        let said = asked.said.iter().filter(|(prefix, _)| token.starts_with(*prefix));
        let longest = said.max_by_key(|(prefix, _)| prefix.len());
        longest.map_or(Said::Unknown, |(_, said)| *said)
    }

    pub(super) fn client(&self) -> Client {
        let reviews = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let reviews = reviews.clone();
            async move {
                let is_token = request.uri().path().ends_with("/tokenreviews");
                let body = request.into_body().collect().await?.to_bytes();
                let review: Value = serde_json::from_slice(&body).unwrap();
                let (token, status) = if is_token {
                    let token = review["spec"]["token"].as_str().unwrap().to_owned();
                    lock(&reviews.0).tokens.push(token.clone());
                    let known = matches!(reviews.of(&token), Said::Allowed | Said::Denied);
                    let status = json!({"authenticated": known, "user": {"username": token}});
                    (token, status)
                } else {
                    let user = review["spec"]["user"].as_str().unwrap().to_owned();
                    let allowed = reviews.of(&user) == Said::Allowed;
                    (user, json!({"allowed": allowed}))
                };
                if reviews.of(&token) == Said::Nothing {
                    std::future::pending::<()>().await;
                }
                let answer = json!({"spec": review["spec"], "status": status}).to_string();
                Ok::<_, kube::Error>(Response::new(Body::from(answer.into_bytes())))
            }
        });
        Client::new(service, "default")
    }
}

/// Filled caches without a Cluster.
pub(super) struct NoClusters {
    /// Time of the last response of the API server; `None` if it never falls silent.
    pub(super) last_response: Option<Instant>,
}

impl Caches for NoClusters {
    fn filled(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn clusters(&self) -> Vec<ClusterRef> {
        Vec::new()
    }

    fn view(&self, _: &ClusterRef) -> Option<ClusterView> {
        None
    }

    fn silent_for(&self) -> Duration {
        self.last_response.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

/// Service that follows caches.
pub(super) struct Rig {
    pub(super) status: Status,
    pub(super) router: Router,
    pub(super) life: Lifecycle,
    pub(super) reviews: Reviews,
    _changes: mpsc::UnboundedSender<Changed>,
    _ends: DropGuard,
}

impl Rig {
    /// Creates a service without caches.
    pub(super) fn new() -> (Self, impl FnOnce()) {
        let status = Status::new(StatusMetrics::default());
        let life = Lifecycle {
            leaves: CancellationToken::new(),
            ends: CancellationToken::new(),
            beat: Arc::new(|| {}),
            panicked: || panic!("the service has survived a panic"),
        };
        let (sender, changes) = mpsc::unbounded();
        let (router, following) = status.router_and_follower(changes, life.clone()).unwrap();
        tokio::spawn(following);
        let reviews = Reviews::default();
        let (knowing, client) = (status.clone(), reviews.client());
        let knows = move || {
            let last_response = None;
            knowing.set_caches(NoClusters { last_response }, client);
        };
        let rig = Self {
            status,
            router,
            _changes: sender,
            _ends: life.ends.clone().drop_guard(),
            life,
            reviews,
        };
        (rig, knows)
    }

    /// Creates a service with filled, empty caches. Token `good` may see everything.
    pub(super) async fn filled() -> Self {
        let (rig, knows) = Self::new();
        knows();
        rig.reviews.say("good", Said::Allowed);
        soon("the snapshots", rig.status.0.filled.wait()).await;
        rig
    }

    /// Publishes Cluster `ns/<name>`, or its deletion, as [`super::super::follow`] does.
    pub(super) fn put(&self, name: &str, there: bool) {
        let cluster = ClusterRef::new("ns", name);
        let message = sluice_proto::status::v1::Cluster {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            ..Default::default()
        };
        let encoded = there.then(|| Bytes::from(prost::Message::encode_to_vec(&message)));
        lock(&self.status.0.board).put(&cluster, encoded);
    }

    pub(super) fn client(&self) -> StatusServiceClient<Router> {
        StatusServiceClient::new(self.router.clone())
    }

    /// Signals a change of the snapshot store.
    pub(super) fn changed(&self) {
        self.status.0.changes.send_modify(|changes| *changes += 1);
    }
}

/// Returns a request with a token.
pub(super) fn with_token<T>(token: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let header = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", header);
    request
}
