//! The status service behind its listener.

use std::{convert::Infallible, fs};

use axum::{Router, body::Body, response::Response};
use http::Request;
use http_body_util::BodyExt as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use sluice_proto::status::v1::{
    Change, WatchClustersRequest, WatchClustersResponse, status_service_client::StatusServiceClient,
};
use sluice_status::{Lifecycle, StatusMetrics};
use tempfile::TempDir;
use tokio_util::sync::DropGuard;
use tonic::{
    Code, Streaming,
    transport::{Certificate, ClientTlsConfig, Endpoint},
};
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::{
    app::status_listener::routes,
    server::serve::{CertificateFiles, Server, TlsConfig},
};

/// Waits for an event with a timeout.
async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let waited = timeout(Duration::from_secs(20), future).await;
    waited.unwrap_or_else(|_| panic!("waited 20 s for {what}"))
}

/// API server of reviews. Each token belongs to a user who may see everything.
fn reviews() -> kube::Client {
    let service = service_fn(|request: Request<kube::client::Body>| async move {
        let status = if request.uri().path().ends_with("/tokenreviews") {
            json!({"authenticated": true, "user": {"username": "ada"}})
        } else {
            json!({"allowed": true})
        };
        let answer = json!({"spec": {}, "status": status}).to_string();
        let body = kube::client::Body::from(answer.into_bytes());
        Ok::<_, Infallible>(http::Response::new(body))
    });
    kube::Client::new(service, "default")
}

/// Service of a replica without Clusters.
struct Service {
    router: Router,
    ends: DropGuard,
    _following: [AbortOnDrop; 2],
}

impl Service {
    /// Starts a service with filled caches.
    async fn filled() -> Self {
        let status = Status::new(StatusMetrics::default());
        let ends = CancellationToken::new();
        let life = Lifecycle {
            leaves: CancellationToken::new(),
            ends: ends.clone(),
            beat: Arc::new(|| {}),
            panicked: || panic!("the service has survived a panic"),
        };
        let handlers = EventHandlers::default();
        let (router, following) = routes(&status, handlers.shown.listen(), life).unwrap();
        let last_response = LastResponse::default();
        let watched = last_response
            .noting(Frozen::new().client(|_| Vec::new()))
            .into_client();
        let (stores, filling) = Stores::open(&watched, "tkg-system", &handlers);
        let service = Self {
            router,
            ends: ends.drop_guard(),
            _following: [
                AbortOnDrop(tokio::spawn(following)),
                AbortOnDrop(tokio::spawn(filling)),
            ],
        };
        attach(&status, stores, reviews(), last_response);
        soon("the snapshots", async {
            while code(&service.list().await) == Some(Code::Unavailable) {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        service
    }

    /// Lists all Clusters.
    async fn list(&self) -> Response {
        let request = Request::post("https://localhost/sluice.status.v1.StatusService/ListClusters")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", "Bearer any")
            // The prefix of an empty message.
            .body(Body::from(vec![0; 5]));
        self.router.clone().oneshot(request.unwrap()).await.unwrap()
    }

    /// Returns unread responses, until one is refused.
    async fn unread(&self) -> Vec<Response> {
        let mut unread = Vec::new();
        loop {
            let answer = self.list().await;
            match code(&answer) {
                None => unread.push(answer),
                refused => {
                    assert_eq!(refused, Some(Code::ResourceExhausted));
                    return unread;
                }
            }
            assert!(unread.len() <= 16, "answers that are not read have no bound");
        }
    }
}

/// Returns the status code of a response without a message.
fn code(answer: &Response) -> Option<Code> {
    tonic::Status::from_header_map(answer.headers()).map(|status| status.code())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_is_given_up_after_thirty_seconds() {
    let service = Service::filled().await;
    let mut before = service.unread().await;
    sleep(Duration::from_secs(29)).await;
    assert_eq!(service.unread().await.len(), 0);
    let whole = before.pop().unwrap().into_body().collect().await.unwrap();
    assert!(!whole.to_bytes().is_empty(), "it is read in time");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(service.unread().await.len(), before.len() + 1);
    for late in before {
        assert!(late.into_body().collect().await.is_err(), "nothing is left of it");
    }
}

/// Files of a serving certificate for `localhost`, and their authority.
struct Certificates {
    authority: CertifiedIssuer<'static, KeyPair>,
    files: TempDir,
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificates = Self {
            authority: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap(),
            files: tempfile::tempdir().unwrap(),
        };
        certificates.rotate();
        certificates
    }

    /// Writes another certificate.
    fn rotate(&self) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        fs::write(self.files.path().join("tls.crt"), certificate.pem()).unwrap();
        fs::write(self.files.path().join("tls.key"), key.serialize_pem()).unwrap();
    }
}

/// Serves on a port of this host, and returns a stream that was read until it is synced.
async fn synced(
    router: &Router,
    drained: &CancellationToken,
    certificates: &Certificates,
) -> Streaming<WatchClustersResponse> {
    let config = serve::Config {
        serves: "status",
        tls: Some(TlsConfig {
            http2_only: true,
            reload_every: Duration::from_millis(20),
            ..TlsConfig::new(CertificateFiles::in_dir(certificates.files.path()))
        }),
        ..plain((Ipv4Addr::LOCALHOST, 0).into())
    };
    let server = Server::bind(config, serve::Metrics::default()).await.unwrap();
    let address = server.local_addr();
    tokio::spawn(server.run(router.clone(), drained.clone()));

    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(certificates.authority.as_ref().pem()))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
    let channel = soon("a connection", endpoint.tls_config(tls).unwrap().connect()).await;
    let mut client = StatusServiceClient::new(channel.unwrap());
    let mut request = tonic::Request::new(WatchClustersRequest::default());
    let token = "Bearer any".parse().unwrap();
    request.metadata_mut().insert("authorization", token);
    let opened = soon("a stream", client.watch_clusters(request)).await;
    let mut stream = opened.unwrap().into_inner();
    let first = soon("CHANGE_SYNCED", stream.message()).await.unwrap().unwrap();
    assert_eq!(first.change(), Change::Synced);
    stream
}

/// Returns the final status of a stream without changes.
async fn end(mut stream: Streaming<WatchClustersResponse>) -> tonic::Status {
    let ended = soon("the end of a stream", stream.message()).await;
    ended.expect_err("a stream has ended without a reason")
}

#[tokio::test]
async fn a_rotated_certificate_ends_streams_in_good_order() {
    let (service, certificates) = (Service::filled().await, Certificates::new());
    let drained = CancellationToken::new();
    let _drains = drained.clone().drop_guard();
    let stream = synced(&service.router, &drained, &certificates).await;
    certificates.rotate();
    let status = end(stream).await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("new connection"), "{status:?}");
}

#[tokio::test]
async fn a_replica_that_ends_says_so_on_open_connections() {
    let (service, certificates) = (Service::filled().await, Certificates::new());
    let ends = service.ends.disarm();
    let stream = synced(&service.router, &ends, &certificates).await;
    ends.cancel();
    let status = end(stream).await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("watch again"), "{status:?}");
}
