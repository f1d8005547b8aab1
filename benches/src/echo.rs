//! The least that a server of hooks can do: it reads each body whole and answers always the same bytes, without looking at them.
//!
//! hyper and rustls are set up as little as they can be. What an extension takes beyond this is its own.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Args;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use sluice_hooks::{DiscoveryResponse, Profile};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const H2: &[u8] = b"h2";

/// Answers every hook with the same hold, as a floor to compare extensions with.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:9443")]
    pub address: SocketAddr,
    /// PEM file of the serving certificate.
    #[arg(long, value_name = "FILE")]
    pub cert: PathBuf,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The message of each answer.
    #[arg(long, default_value = "wait")]
    pub message: String,
}

/// Serves until the process ends.
pub fn serve(arguments: &Arguments) -> Result<()> {
    let config = Arc::new(tls(arguments)?);
    let answer = json!({"status": "Success", "message": arguments.message, "retryAfterSeconds": 1});
    let answer = Bytes::from(answer.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = arguments.address;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("listen on {address}"))?;
        loop {
            let Ok((tcp, _)) = listener.accept().await else {
                continue;
            };
            tokio::spawn(connection(
                tcp,
                TlsAcceptor::from(Arc::clone(&config)),
                answer.clone(),
            ));
        }
    })
}

async fn connection(tcp: TcpStream, acceptor: TlsAcceptor, hold: Bytes) {
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Ok(tls) = acceptor.accept(tcp).await else {
        return;
    };
    let is_h2 = tls.get_ref().1.alpn_protocol() == Some(H2);
    let service = service_fn(|request| answer(request, hold.clone()));
    let io = TokioIo::new(tls);
    // How a connection ends is the business of the peer.
    let _ended = if is_h2 {
        http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, service)
            .await
    } else {
        http1::Builder::new().serve_connection(io, service).await
    };
}

async fn answer(request: Request<Incoming>, hold: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_discovery = request.uri().path().ends_with("/discovery");
    let _body = request.into_body().collect().await;
    let answer = if is_discovery {
        Bytes::from(serde_json::to_vec(&DiscoveryResponse::of(Profile::Current)).unwrap_or_default())
    } else {
        hold
    };
    Ok(Response::new(Full::new(answer)))
}

fn tls(arguments: &Arguments) -> Result<ServerConfig> {
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("read {}", path.display()));
    let chain = CertificateDer::pem_slice_iter(&read(&arguments.cert)?)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("read --cert {}", arguments.cert.display()))?;
    let key = PrivateKeyDer::from_pem_slice(&read(&arguments.key)?)
        .with_context(|| format!("read --key {}", arguments.key.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("--cert and --key")?;
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
