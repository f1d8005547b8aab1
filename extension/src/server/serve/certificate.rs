//! Serving certificate: loading, validation and expiration.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::{Error, TlsConfig, tls};

const CHAIN: &str = "serving certificate";
const KEY: &str = "serving key";
const CLIENT_CA: &str = "client authorities";

/// Certificates of a listener, ready for use.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) server: Arc<ServerConfig>,
    /// Digest of the bytes of all files; shows changes without a second copy of the key.
    pub(super) digest: [u8; 32],
    /// Expiration of the leaf; `None` when the leaf does not reveal it, which does not prevent serving.
    pub(super) not_after: Option<Timestamp>,
}

/// Reads and validates all certificates and keys of the listener.
pub(super) fn load(config: &TlsConfig) -> Result<Identity, Error> {
    let (chain_path, key_path) = (config.files.certificate(), config.files.key());
    let chain_pem = read(CHAIN, &chain_path)?;
    let key_pem = read(KEY, &key_path)?;
    let client_pem = config
        .client_ca
        .as_deref()
        .map(|path| read(CLIENT_CA, path))
        .transpose()?;

    let chain = certificates(CHAIN, &chain_path, &chain_pem)?;
    let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| invalid(KEY, &key_path, &error))?;
    let not_after = chain.first().and_then(not_after);
    let clients = match (&config.client_ca, &client_pem) {
        (Some(path), Some(pem)) => Some(authorities(path, pem)?),
        _ => None,
    };

    let server =
        tls::server_config(chain, key, clients, config.min_version, config.http2_only).map_err(|reason| {
            Error::Mismatch {
                certificate: chain_path,
                key: key_path,
                reason: reason.to_string(),
            }
        })?;
    let digest = digest(&[&chain_pem, &key_pem, client_pem.as_deref().unwrap_or_default()]);
    Ok(Identity {
        server: Arc::new(server),
        digest,
        not_after,
    })
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|reason| Error::Unreadable {
        what,
        path: path.to_owned(),
        reason,
    })
}

fn invalid(what: &'static str, path: &Path, reason: &dyn ToString) -> Error {
    Error::Invalid {
        what,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn certificates(what: &'static str, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(what, path, &error))?;
    if chain.is_empty() {
        Err(invalid(what, path, &"no certificate in it"))
    } else {
        Ok(chain)
    }
}

fn authorities(path: &Path, pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(CLIENT_CA, path, pem)? {
        roots
            .add(certificate)
            .map_err(|error| invalid(CLIENT_CA, path, &error))?;
    }
    Ok(roots)
}

fn not_after(leaf: &CertificateDer<'_>) -> Option<Timestamp> {
    let certificate = Certificate::from_der(leaf).ok()?;
    let end = certificate
        .tbs_certificate()
        .validity()
        .not_after
        .to_unix_duration();
    Timestamp::from_second(i64::try_from(end.as_secs()).ok()?).ok()
}

/// A length precedes each part, so that bytes cannot move from one file to the next unnoticed.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Validity check of the served certificate.
#[derive(Clone, Debug)]
pub struct CertificateHealth(pub(super) watch::Receiver<Identity>);

impl CertificateHealth {
    /// Fails with a message once the served certificate has expired.
    pub fn check(&self, now: Timestamp) -> Result<(), String> {
        match self.not_after() {
            Some(end) if end <= now => Err(format!("serving certificate expired at {end}")),
            _ => Ok(()),
        }
    }

    /// Returns the expiration of the served certificate, if known.
    #[must_use]
    pub fn not_after(&self) -> Option<Timestamp> {
        self.0.borrow().not_after
    }
}
