//! TLS configuration of connections to workload API servers. It accepts what client-go accepts, as far as rustls permits.

use std::sync::{Arc, OnceLock};

use http::Uri;
use kube::{Config, client::ConfigExt as _};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InconsistentKeys, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::aws_lc_rs::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
    sign::{CertifiedKey, SingleCertAndKey},
};
use sluice_core::kubeconfig::{ClientCertificate, WorkloadKubeconfig};

use super::client::Error;

/// Protocols of a connection to an API server, best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Servers whose sessions a configuration keeps for resumption. The default reserves memory for 32.
const SERVERS: usize = 1;

/// Returns the configuration of connections to the API server of a kubeconfig.
pub(super) fn config(kubeconfig: &WorkloadKubeconfig) -> Result<ClientConfig, Error> {
    let mut config = verifying(kubeconfig.certificate_authority.as_deref())?;
    if let Some(certificate) = &kubeconfig.credentials.certificate {
        authenticate(&mut config, certificate)?;
    }
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    // A session of one Cluster must not be resumed for another, which has other credentials.
    config.resumption = Resumption::in_memory_sessions(SERVERS);
    Ok(config)
}

/// Returns a configuration that verifies servers with a CA bundle (PEM), or with the CA certificates of the system.
pub(super) fn verifying(authority: Option<&[u8]>) -> Result<ClientConfig, Error> {
    let Some(authority) = authority else {
        return with_authorities_of_system();
    };
    // Like Go, ignores what is no readable certificate.
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(authority).flatten().collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    let chains = WebPkiServerVerifier::builder(Arc::new(roots))
        .build()
        .map_err(|_| Error::CertificateAuthority)?;
    let verifier = Verifier { chains, certificates };
    Ok(ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Returns a configuration with the CA certificates of the system. The first call reads them.
fn with_authorities_of_system() -> Result<ClientConfig, Error> {
    static SYSTEM: OnceLock<Option<ClientConfig>> = OnceLock::new();
    let config = SYSTEM.get_or_init(|| Config::new(Uri::default()).rustls_client_config().ok());
    config.clone().ok_or(Error::NoAuthorities)
}

/// Adds the client certificate to a configuration.
fn authenticate(config: &mut ClientConfig, by: &ClientCertificate) -> Result<(), Error> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&by.certificate)
        .flatten()
        .collect();
    if chain.is_empty() {
        return Err(Error::ClientCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(by.key.expose()).map_err(|_| Error::ClientKey)?;
    let key = any_supported_type(&key).map_err(|_| Error::ClientKey)?;
    let identity = CertifiedKey::new(chain, key);
    // rustls cannot read a certificate of version 1, as `openssl x509 -req` makes it; the server can.
    let mismatch = rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch);
    if identity.keys_match().is_err_and(|error| error == mismatch) {
        return Err(Error::KeyMismatch);
    }
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity));
    Ok(())
}

/// Verifier of chains that, like Go, also accepts a server certificate that is itself in the CA bundle.
///
/// webpki looks for an issuer only: it refuses a certificate without issuer in the bundle, and one that is marked as a CA, as `openssl req
/// -x509` makes it.
#[derive(Debug)]
struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.chains
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(why))
                if lacks_issuer(&why) && self.certificates.iter().any(|known| known == end_entity) =>
            {
                // The name is what webpki has not verified yet.
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Returns whether webpki found the certificate valid at this time, and missed only its issuer.
fn lacks_issuer(why: &CertificateError) -> bool {
    match why {
        CertificateError::UnknownIssuer => true,
        // The type of this error is webpki's, which rustls does not export.
        CertificateError::Other(other) => other.0.to_string() == "CaUsedAsEndEntity",
        _ => false,
    }
}
