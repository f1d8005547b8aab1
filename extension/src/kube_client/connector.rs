//! TCP connections to an API server, direct or through a proxy.

mod http_tunnel;
mod socks5;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Uri, uri::InvalidUri};
use hyper_rustls::{DefaultServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{ClientConfig, client::Resumption};
use sluice_core::kubeconfig::{Proxy, ProxyProtocol};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tower::{BoxError, Service, ServiceExt as _};

/// Failure of a proxy. The text is constant as long as the cause is, and has no address and no credentials. A tenant may choose the proxy,
/// and each change of the text makes Cluster API write the Cluster: there are few texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    /// No connection to the proxy.
    #[error("the proxy cannot be reached")]
    Unreachable(#[source] BoxError),
    /// No answer in time, in this phase.
    #[error("the proxy does not answer: no {0} in time")]
    Silent(&'static str),
    /// The connection to the proxy ended during the handshake.
    #[error("the proxy closed the connection")]
    Closed(#[source] io::Error),
    /// The proxy refuses the request for a tunnel with this HTTP status code, or with one of this class.
    #[error("the proxy answered {0}")]
    Answered(&'static str),
    /// The proxy refuses the request for a tunnel for this reason.
    #[error("the proxy answered: {0}")]
    Refused(&'static str),
    /// The proxy reports that the connection to the API server failed.
    #[error("the proxy does not reach the API server")]
    ServerUnreachable,
    /// The proxy requires credentials, or another kind of them.
    #[error("the proxy requires other credentials than user name and password of its URL")]
    CredentialsMissing,
    /// The proxy refuses the credentials.
    #[error("the proxy refused user name and password of its URL")]
    CredentialsRefused,
    /// The answer is not of the protocol.
    #[error("the proxy does not speak {0}")]
    Protocol(&'static str),
    /// The address of the API server does not fit into a request.
    #[error("the address of the API server is too long for the proxy")]
    Address,
}

/// Connects to an API server without encryption.
#[derive(Clone)]
pub(crate) struct Connector {
    direct: HttpConnector,
    hop: Option<Arc<Hop>>,
}

/// Connection to a proxy.
struct Hop {
    proxy: Proxy,
    url: Uri,
    connector: HttpsConnector<HttpConnector>,
    /// Time to connect and to open the tunnel.
    time: Duration,
}

/// Connection to a proxy or an API server.
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

impl Connector {
    /// Returns a connector without proxy.
    pub(crate) fn direct() -> Self {
        let mut direct = HttpConnector::new();
        direct.enforce_http(false);
        Self { direct, hop: None }
    }

    /// Returns a connector through `proxy`, which has this time to open a tunnel; `tls` verifies a proxy with protocol `https`.
    ///
    /// # Errors
    /// The host of the proxy is not the host of a URL.
    pub(crate) fn through(proxy: Proxy, tls: &ClientConfig, time: Duration) -> Result<Self, InvalidUri> {
        let scheme = match proxy.protocol {
            ProxyProtocol::Http | ProxyProtocol::Socks5 => "http",
            ProxyProtocol::Https => "https",
        };
        let url = format!("{scheme}://{}/", proxy.authority()).parse::<Uri>()?;
        let Self { direct, .. } = Self::direct();
        let names = Arc::new(DefaultServerNameResolver::default());
        let mut tls = tls.clone();
        // A session of the proxy must not be resumed with the API server, and the other way round.
        tls.resumption = Resumption::default();
        let connector = HttpsConnector::new(direct.clone(), tls, false, names);
        let hop = Hop {
            proxy,
            url,
            connector,
            time,
        };
        Ok(Self {
            direct,
            hop: Some(Arc::new(hop)),
        })
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.direct.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        if let Some(hop) = self.hop.clone() {
            return async move { Ok::<_, BoxError>(hop.connect(&server).await?) }.boxed();
        }
        let connecting = self.direct.call(server);
        async move { Ok::<_, BoxError>(MaybeHttpsStream::Http(connecting.await?)) }.boxed()
    }
}

impl Hop {
    /// Connects to the API server of a URL.
    async fn connect(&self, server: &Uri) -> Result<Stream, ProxyError> {
        let deadline = Instant::now() + self.time;
        let connecting = self.connector.clone().oneshot(self.url.clone());
        let connected = timeout_at(deadline, connecting).await;
        let stream = connected.map_err(|_| ProxyError::Silent("connection"))?;
        let mut stream = TokioIo::new(stream.map_err(ProxyError::Unreachable)?);
        let opened = timeout_at(deadline, self.open(&mut stream, server)).await;
        opened.map_err(|_| ProxyError::Silent("tunnel"))??;
        Ok(stream.into_inner())
    }

    /// Opens a tunnel to the API server of a URL.
    async fn open(&self, stream: &mut TokioIo<Stream>, server: &Uri) -> Result<(), ProxyError> {
        let host = server.host().unwrap_or_default();
        let default_port = if server.scheme_str() == Some("http") {
            80
        } else {
            443
        };
        let port = server.port_u16().unwrap_or(default_port);
        let credentials = self.proxy.credentials.as_ref().map(|credentials| {
            let (user, password) = credentials.expose();
            (user.as_str(), password.as_str())
        });
        match self.proxy.protocol {
            ProxyProtocol::Http | ProxyProtocol::Https => {
                http_tunnel::open(stream, &format!("{host}:{port}"), credentials).await
            }
            ProxyProtocol::Socks5 => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                socks5::open(stream, host, port, credentials).await
            }
        }
    }
}
