//! A listener with TLS for servers of this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::stack::pki::KeyedCertificate;

/// How long a handshake may take, since the next one waits for it.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Connections with TLS on a port of 127.0.0.1.
pub struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Listens on a port of its own. A client may choose among `protocols` (`h2`).
    pub async fn bind(certificate: &KeyedCertificate, protocols: &[&str]) -> Result<Self> {
        let chain =
            CertificateDer::pem_slice_iter(certificate.certificate.as_bytes()).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes())?;
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        Ok(Self {
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            // A peer that does not speak TLS, or not soon, is sent away.
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
