//! A client from a kubeconfig that passed the allow-list; nothing else of kube's configuration is used.

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

/// What a request to a workload API server may take. Objects are of 1.5 MiB at most there, and 250 are on a page: real ones have some
/// KiB, so that these bounds are far from what PackageInstalls and Apps of one namespace need.
pub(super) const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    answer: 8 * 1024 * 1024,
    memory: 16 * 1024 * 1024,
    list: 16 * 1024 * 1024,
    page: 256 * 1024,
    pace: 2 * 1024 * 1024,
};

/// A connection on which nothing arrives for this long while something is waited for is given up. Longer than a watch lasts.
const SILENCE: Duration = Duration::from_secs(45);

/// Connections to one workload cluster that are kept while nothing uses them, beside those of its two watches.
const IDLE: usize = 1;

/// Why no client can be made of a kubeconfig. Carries field names only, never content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("field server is not a URL")]
    Server,
    /// Not PEM.
    #[error("field certificate-authority-data holds no PEM certificate")]
    CertificateAuthority,
    /// The TLS library refuses a certificate or key. Its message is kept out: it may quote content.
    #[error("fields client-certificate-data and client-key-data make no TLS identity")]
    Identity,
}

/// A client of the workload API server, with bounds on every request.
///
/// # Errors
/// See [`Error`].
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
    // Otherwise a 429 or 503 is tried again for minutes inside one request, and a pass cannot say that kapp-controller does not
    // serve its API yet. The next pass tries again.
    config.default_retry = false;
    config.auth_info = auth(&kubeconfig.credentials)?;
    let client = pool::client(config, IDLE).map_err(|_| Error::Identity)?;
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
