//! TLS configuration of a listener.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::TlsVersion;

/// ALPN name of HTTP/2.
pub(super) const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

static FROM_1_2: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
static FROM_1_3: &[&SupportedProtocolVersion] = &[&TLS13];

/// Builds the configuration once per certificate; connections share it. Fails when chain and key do not match.
pub(super) fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<RootCertStore>,
    min_version: TlsVersion,
    http2_only: bool,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions = match min_version {
        TlsVersion::V1_2 => FROM_1_2,
        TlsVersion::V1_3 => FROM_1_3,
    };
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(roots) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| Error::General(error.to_string()))?,
        ),
    };
    let mut config = builder.with_single_cert(chain, key)?;
    // With HTTP/1.1 alone, Go keeps two idle connections per host and opens a new one for nearly every call.
    config.alpn_protocols = vec![H2.to_vec()];
    if !http2_only {
        config.alpn_protocols.push(HTTP_1_1.to_vec());
    }
    // Cluster API keeps no session cache: a ticket would never be used.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}
