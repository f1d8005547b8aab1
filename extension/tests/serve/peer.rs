//! A TLS client that tests configure, and the listener under test.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use sluice::server::serve::{CertificateHealth, Config, Drained, Limits, Metrics, Server, TlsConfig};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::authority::{Authority, Mount, Pair};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for a future; after the timeout it panics with the name of the wait.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(TIMEOUT, future)
        .await
        .unwrap_or_else(|_| panic!("waited {TIMEOUT:?} for {what}"))
}

/// Repeats a request until `accept` takes the response.
pub(crate) async fn until<T: std::fmt::Debug, F: Future<Output = T>>(
    what: &str,
    mut ask: impl FnMut() -> F,
    accept: impl Fn(&T) -> bool,
) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let seen = ask().await;
        if accept(&seen) {
            return seen;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited {TIMEOUT:?} for {what}, last saw {seen:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Connects from the address `127.0.0.<number>`.
pub(crate) async fn connect_from(number: u8, listener: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 0, number), 0).into()).unwrap();
    socket.connect(listener).await.unwrap()
}

/// A running listener. `/` responds at once, `/slow` after a notification of `release`.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: CertificateHealth,
    pub(crate) shutdown: CancellationToken,
    pub(crate) entered: Arc<Notify>,
    pub(crate) release: Arc<Notify>,
    pub(crate) metrics: Metrics,
    pub(crate) run: JoinHandle<Drained>,
}

pub(crate) fn quick() -> Limits {
    Limits {
        handshake: Duration::from_millis(300),
        head: Duration::from_millis(300),
        drain: Duration::from_secs(10),
        ..Limits::default()
    }
}

pub(crate) fn tls(mount: &Mount) -> TlsConfig {
    TlsConfig {
        reload_every: Duration::from_millis(20),
        ..TlsConfig::new(mount.files())
    }
}

pub(crate) fn loopback(tls: Option<TlsConfig>, limits: Limits) -> Config {
    Config {
        serves: "a test",
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        flags: "--a-flag",
        tls,
        limits,
    }
}

impl Listener {
    pub(crate) async fn start(tls: TlsConfig, limits: Limits) -> Self {
        let metrics = Metrics::default();
        let server = Server::bind(loopback(Some(tls), limits), metrics.clone())
            .await
            .unwrap();
        let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (entered, release) = (Arc::clone(&entered), Arc::clone(&release));
            move || async move {
                entered.notify_one();
                release.notified().await;
                "slow"
            }
        };
        let router = Router::new()
            .route("/", get(|| async { "quick" }))
            .route(
                "/echo",
                post(|body: Body| async move { body.collect().await.unwrap().to_bytes() }),
            )
            .route("/slow", get(slow));
        let shutdown = CancellationToken::new();
        let (address, certificate) = (server.local_addr(), server.certificate().unwrap());
        let run = tokio::spawn(server.run(router, shutdown.clone()));
        Self {
            address,
            certificate,
            shutdown,
            entered,
            release,
            metrics,
            run,
        }
    }
}

/// How a peer connects.
#[derive(Clone)]
pub(crate) struct Peer {
    config: Arc<ClientConfig>,
}

impl Peer {
    pub(crate) fn trusting(authority: &Authority) -> Self {
        Self::with(authority, &[&version::TLS13, &version::TLS12], None, &[])
    }

    pub(crate) fn offering(self, protocols: &[&str]) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self {
            config: Arc::new(config),
        }
    }

    pub(crate) fn with(
        authority: &Authority,
        versions: &[&'static SupportedProtocolVersion],
        client: Option<&Pair>,
        protocols: &[&str],
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
            .unwrap();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Self {
            config: Arc::new(config),
        }
        .offering(protocols)
    }

    pub(crate) async fn handshake(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        self.handshake_over(TcpStream::connect(address).await?).await
    }

    pub(crate) async fn handshake_over(&self, tcp: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::clone(&self.config))
            .connect(name, tcp)
            .await
    }

    /// Connects and speaks whatever the listener chose.
    pub(crate) async fn connect(&self, address: SocketAddr) -> std::io::Result<Connection> {
        let stream = self.handshake(address).await?;
        let (_, session) = stream.get_ref();
        let version = session.protocol_version().unwrap();
        let leaf = session.peer_certificates().unwrap()[0].clone().into_owned();
        let h2 = session.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        let (sender, task) = if h2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(std::io::Error::other)?;
            (Sender::H2(sender), tokio::spawn(connection))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(std::io::Error::other)?;
            (Sender::H1(sender), tokio::spawn(connection))
        };
        Ok(Connection {
            sender,
            task,
            version,
            leaf,
        })
    }
}

pub(crate) struct Connection {
    sender: Sender,
    pub(crate) task: JoinHandle<hyper::Result<()>>,
    pub(crate) version: rustls::ProtocolVersion,
    pub(crate) leaf: CertificateDer<'static>,
}

enum Sender {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) fn is_h2(&self) -> bool {
        matches!(self.sender, Sender::H2(_))
    }

    pub(crate) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::H1(sender) => sender.is_closed(),
            Sender::H2(sender) => sender.is_closed(),
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::H1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> hyper::Result<Response<Incoming>> {
        let uri = format!("https://localhost{path}");
        let request = Request::get(uri)
            .header("host", "localhost")
            .body(Full::default())
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn text(&mut self, path: &str) -> hyper::Result<String> {
        let body = self.get(path).await?.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
