//! Client of a parsed kubeconfig; no other part of kube's configuration is used.

use std::{sync::Arc, time::Duration};

use http::Uri;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use kube::{Config, config::AuthInfo};
use rustls::pki_types::ServerName;
use serde_json::json;
use sluice_core::kubeconfig::{Authorization, Proxies, Proxy, WorkloadKubeconfig};

use super::tls;
use crate::kube_client::{
    bounded::{Bounds, bounded},
    connector::Connector,
    middleware::Transport,
    pool,
};

/// Limits of a request to a workload API server. Objects have at most 1.5 MiB there, and a page has 250. Real objects have a few KiB, so
/// these limits are far above the PackageInstalls and Apps of one namespace.
pub(super) const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    silence: SILENCE,
    answer: 8 * 1024 * 1024,
    memory: 16 * 1024 * 1024,
    list: 16 * 1024 * 1024,
    page: 256 * 1024,
    pace: 2 * 1024 * 1024,
};

/// Time to connect, including proxy and TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);

/// Share of [`CONNECT`] for the proxy, so that a silent proxy is reported as such.
const PROXY: Duration = Duration::from_secs(4);

/// Time without received data after which a watch ends, and a waiting connection is closed. Longer than a watch lasts.
///
/// Also the time for which an unused connection is kept. The watches of a hot Cluster start again every 30 s, so the pool keeps their HTTP/2
/// connection.
const SILENCE: Duration = Duration::from_secs(45);

/// Connections to one workload cluster that are kept for further requests. Over HTTP/1.1 each of its two watches has another one.
const IDLE: usize = 1;

/// Error of building a client from a kubeconfig. Carries field names only, never content. Messages of the TLS library are left out: they
/// may quote content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("field server is not a URL")]
    Server,
    /// Neither a DNS name nor an IP address.
    #[error("field tls-server-name is no name that a certificate can have")]
    ServerName,
    /// Not PEM.
    #[error("field certificate-authority-data holds no PEM certificate")]
    CertificateAuthority,
    /// No CA certificates to verify the server with.
    #[error(
        "field certificate-authority-data is missing, and the container of Sluice has no CA certificates; see docs/reference/kubeconfigs.md"
    )]
    NoAuthorities,
    /// Not PEM.
    #[error("field client-certificate-data holds no PEM certificate")]
    ClientCertificate,
    /// Not PEM, encrypted, or of another algorithm.
    #[error(
        "field client-key-data holds no private key that Sluice can use (PEM of RSA, ECDSA or Ed25519, not encrypted)"
    )]
    ClientKey,
    /// Certificate and key do not belong together.
    #[error("field client-key-data is not the key of the certificate in client-certificate-data")]
    KeyMismatch,
    /// Not a value of a header.
    #[error("fields token, username and password make no header")]
    Header,
    /// The operator does not allow the proxy.
    #[error("field proxy-url names a proxy that flag --remote-allow-proxy does not allow")]
    ProxyNotAllowed,
    /// Not an address.
    #[error("the host of the proxy is not the host of a URL")]
    Proxy,
}

/// Builds a transport to the API server of the kubeconfig, with limits on every request.
pub(super) fn connect(kubeconfig: &WorkloadKubeconfig, proxies: &Proxies) -> Result<Transport, Error> {
    let server: Uri = kubeconfig.server.parse().map_err(|_| Error::Server)?;
    let proxy = proxies
        .choose(kubeconfig.proxy.as_ref(), server.host().unwrap_or_default())
        .map_err(|_| Error::ProxyNotAllowed)?;
    let connector = connector(proxy, kubeconfig)?;
    let connector = encrypted(kubeconfig, connector)?;
    let mut config = Config::new(server);
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(BOUNDS.time);
    // Otherwise one request retries a 429 or 503 for minutes, and a reconcile cannot report that kapp-controller does not serve its API
    // yet. The next reconcile retries.
    config.default_retry = false;
    config.auth_info = auth(kubeconfig.credentials.authorization.as_ref())?;
    let transport = pool::over(connector, &config, IDLE, SILENCE).map_err(|_| Error::Header)?;
    Ok(bounded(transport, BOUNDS))
}

/// Returns a connector without encryption, through the proxy if there is one. Like Go, verifies a proxy with the CA of the kubeconfig.
fn connector(proxy: Option<&Proxy>, kubeconfig: &WorkloadKubeconfig) -> Result<Connector, Error> {
    let Some(proxy) = proxy else {
        return Ok(Connector::direct());
    };
    // Only the API server gets the client certificate, and may choose HTTP/2.
    let tls = tls::verifying(kubeconfig.certificate_authority.as_deref())?;
    Connector::through(proxy.clone(), &tls, PROXY).map_err(|_| Error::Proxy)
}

/// Encrypts the connections of a connector.
fn encrypted(
    kubeconfig: &WorkloadKubeconfig,
    connector: Connector,
) -> Result<HttpsConnector<Connector>, Error> {
    let names: Arc<dyn ResolveServerName + Send + Sync> = match &kubeconfig.tls_server_name {
        None => Arc::new(DefaultServerNameResolver::default()),
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|_| Error::ServerName)?;
            Arc::new(FixedServerNameResolver::new(name))
        }
    };
    Ok(HttpsConnector::new(
        connector,
        tls::config(kubeconfig)?,
        false,
        names,
    ))
}

fn auth(authorization: Option<&Authorization>) -> Result<AuthInfo, Error> {
    let fields = match authorization {
        None => json!({}),
        Some(Authorization::Token(token)) => json!({"token": token.expose()}),
        Some(Authorization::Basic { username, password }) => {
            json!({"username": username, "password": password.expose()})
        }
    };
    serde_json::from_value(fields).map_err(|_| Error::Header)
}

#[cfg(test)]
mod tests;
