//! One address for all replicas, as a Service provides it: calls go to the replicas in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Response;
use axum::serve::Listener as _;
use http::request::Parts;
use http::{Request, StatusCode};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::task::AbortHandle;

use crate::processes::tls::Tls;
use crate::stack::pki::ClusterPki;

/// Forwards calls. Dropping it ends the listener, and connections that are open at their end.
pub(super) struct Front {
    url: String,
    server: AbortHandle,
}

/// The replicas, and whose turn it is.
struct Turns {
    replicas: Vec<Client>,
    next: AtomicUsize,
}

impl Front {
    /// Listens on a port of its own. `replicas` are URLs of servers whose certificates `pki` has signed.
    pub(super) async fn start(pki: &ClusterPki, replicas: impl Iterator<Item = String>) -> Result<Self> {
        let replicas: Result<Vec<Client>> = replicas.map(|url| client(pki, &url)).collect();
        let turns = Turns {
            replicas: replicas?,
            next: AtomicUsize::new(0),
        };
        let listener = Tls::bind(&pki.server_certificate()?, &["h2", "http/1.1"]).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let router = Router::new()
            .fallback(pass_on)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::new(turns));
        let server = tokio::spawn(axum::serve(listener, router).into_future()).abort_handle();
        Ok(Self { url, server })
    }

    /// Where it listens: `https://127.0.0.1:<port>`.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A client that asks once: its caller tries again.
fn client(pki: &ClusterPki, url: &str) -> Result<Client> {
    let mut config = Config::new(url.parse()?);
    let authority = CertificateDer::from_pem_slice(pki.ca().as_bytes()).context("read the authority")?;
    config.root_cert = Some(vec![authority.to_vec()]);
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// The answer of the replica whose turn it is, or of the next one that can be reached. One that is reached and does not answer
/// keeps its caller waiting, as in a cluster until its probe has failed.
async fn pass_on(State(turns): State<Arc<Turns>>, head: Parts, body: Bytes) -> Response {
    let turn = turns.next.fetch_add(1, Ordering::Relaxed);
    let count = turns.replicas.len();
    let mut failures = String::new();
    for replica in (0..count).map(|offset| &turns.replicas[(turn + offset) % count]) {
        match ask(replica, &head, &body).await {
            Ok(answer) => return answer,
            Err(error) => failures = format!("{failures}{error:#}\n"),
        }
    }
    let mut answer = Response::new(failures.into());
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}

async fn ask(replica: &Client, head: &Parts, body: &Bytes) -> Result<Response> {
    let path = head.uri.path_and_query().context("a call without path")?;
    let request = Request::builder().method(head.method.clone());
    let request = request.uri(path.as_str()).body(body.to_vec().into())?;
    let answer = replica.send(request).await?;
    let mut passed = Response::new(());
    *passed.status_mut() = answer.status();
    for name in [http::header::CONTENT_TYPE, http::header::RETRY_AFTER] {
        if let Some(value) = answer.headers().get(&name) {
            passed.headers_mut().insert(name, value.clone());
        }
    }
    let body = axum::body::to_bytes(Body::new(answer.into_body()), usize::MAX).await?;
    Ok(passed.map(|()| Body::from(body)))
}
