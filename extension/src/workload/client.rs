//! Client of a kubeconfig that passed the allow-list; no other part of kube's configuration is used.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{Client, Config, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;
use sluice_core::kubeconfig::{Credentials, WorkloadKubeconfig};

use crate::kube_client::{
    bounded::{Bounds, bounded},
    pool,
};

/// Limits of a request to a workload API server. Objects have at most 1.5 MiB there, and a page has 250. Real objects have a few KiB, so
/// these limits are far above the PackageInstalls and Apps of one namespace.
pub(super) const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    answer: 8 * 1024 * 1024,
    memory: 16 * 1024 * 1024,
    list: 16 * 1024 * 1024,
    page: 256 * 1024,
    pace: 2 * 1024 * 1024,
};

/// Time without received data after which a waiting connection is closed. Longer than a watch lasts.
const SILENCE: Duration = Duration::from_secs(45);

/// Idle connections to one workload cluster that are kept, besides those of its two watches.
const IDLE: usize = 1;

/// Error of building a client from a kubeconfig. Carries field names only, never content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("field server is not a URL")]
    Server,
    /// Not PEM.
    #[error("field certificate-authority-data holds no PEM certificate")]
    CertificateAuthority,
    /// The TLS library refuses a certificate or key. Its message is left out: it may quote content.
    #[error("fields client-certificate-data and client-key-data make no TLS identity")]
    Identity,
}

/// Builds a client of the workload API server, with limits on every request.
pub fn connect(kubeconfig: &WorkloadKubeconfig) -> Result<Client, Error> {
    let mut config = Config::new(kubeconfig.server.parse().map_err(|_| Error::Server)?);
    let authorities: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(&kubeconfig.certificate_authority)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|_| Error::CertificateAuthority)?;
    if authorities.is_empty() {
        return Err(Error::CertificateAuthority);
    }
    config.root_cert = Some(authorities);
    config.tls_server_name.clone_from(&kubeconfig.tls_server_name);
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(BOUNDS.time);
    config.proxy_url = None;
    // Otherwise one request retries a 429 or 503 for minutes, and a reconcile cannot report that kapp-controller does not serve its API
    // yet. The next reconcile retries.
    config.default_retry = false;
    config.auth_info = auth(&kubeconfig.credentials)?;
    let client = pool::client(config, IDLE, pool::IDLE).map_err(|_| Error::Identity)?;
    Ok(bounded(client, BOUNDS))
}

fn auth(credentials: &Credentials) -> Result<AuthInfo, Error> {
    let fields = match credentials {
        Credentials::Token(token) => json!({"token": token.expose()}),
        Credentials::ClientCertificate { certificate, key } => json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key.expose()),
        }),
    };
    serde_json::from_value(fields).map_err(|_| Error::Identity)
}

#[cfg(test)]
mod tests;
