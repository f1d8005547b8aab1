//! A server with TLS, set up as little as it can be.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const H2: &[u8] = b"h2";

/// Serves HTTP/1.1 and HTTP/2 at `address`, with the certificate and the key of these PEM files, until the process ends.
///
/// # Errors
/// A file cannot be read, or the address is not free.
pub async fn serve<F, A>(address: SocketAddr, cert: &Path, key: &Path, answer: F) -> Result<()>
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send + 'static,
{
    let config = Arc::new(tls(cert, key)?);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}"))?;
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            continue;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        tokio::spawn(connection(tcp, acceptor, answer.clone()));
    }
}

async fn connection<F, A>(tcp: TcpStream, acceptor: TlsAcceptor, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Send + 'static,
    A: Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send + 'static,
{
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Ok(tls) = acceptor.accept(tcp).await else {
        return;
    };
    let is_h2 = tls.get_ref().1.alpn_protocol() == Some(H2);
    let service = service_fn(answer);
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

fn tls(cert: &Path, key: &Path) -> Result<ServerConfig> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    let chain = CertificateDer::pem_slice_iter(&read(cert)?)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("read --cert {}", cert.display()))?;
    let key = PrivateKeyDer::from_pem_slice(&read(key)?)
        .with_context(|| format!("read --key {}", key.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("--cert and --key")?;
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
