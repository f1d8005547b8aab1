//! Test rig of a service with filled caches, an API server with configurable reviews, and clients.

use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::{Body, Client};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use sluice_core::cluster::ClusterRef;
use sluice_proto::status::v1::status_service_client::StatusServiceClient;
use tempfile::TempDir;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tower::service_fn;

use crate::{
    cache::{event_handlers::EventHandlers, frozen::Frozen, stores::Stores},
    kube_client::last_response::LastResponse,
    lock::lock,
    server::{
        health::Health,
        serve::{CertificateFiles, Config, Limits, Metrics, Server, TlsConfig},
    },
    status::{Lifecycle, Status, StatusMetrics},
};

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

/// Service that follows caches.
pub(super) struct Rig {
    pub(super) status: Status,
    pub(super) router: Router,
    pub(super) life: Lifecycle,
    pub(super) reviews: Reviews,
    _ends: DropGuard,
}

impl Rig {
    /// Creates a service without caches.
    pub(super) fn new() -> (Self, impl FnOnce()) {
        let status = Status::new(StatusMetrics::default());
        let life = Lifecycle {
            leaves: CancellationToken::new(),
            ends: CancellationToken::new(),
            heart: Health::default().heartbeat("status", Duration::from_mins(1)),
        };
        let handlers = EventHandlers::default();
        let (router, following) = status
            .router_and_follower(handlers.shown.listen(), life.clone())
            .unwrap();
        tokio::spawn(following);
        let reviews = Reviews::default();
        let (knowing, client) = (status.clone(), reviews.client());
        let knows = move || {
            let last_response = LastResponse::default();
            let watched = last_response.noting(Frozen::new().client(|_| Vec::new()));
            let (stores, following) = Stores::open(&watched, "tkg-system", &handlers);
            tokio::spawn(following);
            knowing.set_caches(stores, client, last_response);
        };
        let rig = Self {
            status,
            router,
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

    /// Signals a change of the snapshot store.
    pub(super) fn changed(&self) {
        self.status.0.changes.send_modify(|changes| *changes += 1);
    }
}

/// Service on a port of its own.
pub(super) struct Served {
    address: SocketAddr,
    authority: CertifiedIssuer<'static, KeyPair>,
    files: TempDir,
}

impl Served {
    pub(super) async fn start(rig: &Rig, limits: Limits) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut served = Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            authority: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap(),
            files: tempfile::tempdir().unwrap(),
        };
        served.rotate();
        let config = Config {
            serves: "status",
            address: served.address,
            tls: Some(TlsConfig {
                http2_only: true,
                reload_every: Duration::from_millis(20),
                ..TlsConfig::new(CertificateFiles::in_dir(served.files.path()))
            }),
            limits,
        };
        let listener = Server::bind(config, Metrics::default()).await.unwrap();
        served.address = listener.local_addr();
        tokio::spawn(listener.run(rig.router.clone(), rig.life.ends.clone()));
        served
    }

    /// Writes another certificate.
    pub(super) fn rotate(&self) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        fs::write(self.files.path().join("tls.crt"), certificate.pem()).unwrap();
        fs::write(self.files.path().join("tls.key"), key.serialize_pem()).unwrap();
    }

    pub(super) async fn channel(&self) -> Channel {
        let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority.as_ref().pem()))
            .domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        soon("a connection", endpoint.tls_config(tls).unwrap().connect())
            .await
            .unwrap()
    }

    pub(super) async fn client(&self) -> StatusServiceClient<Channel> {
        StatusServiceClient::new(self.channel().await)
    }
}

/// Returns a request with a token.
pub(super) fn with_token<T>(token: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let header = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", header);
    request
}
