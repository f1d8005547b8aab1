//! TLS servers of tests, with certificates of authorities of their own.

use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

/// Certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Certificate with its key.
pub(crate) struct Identity {
    pub(crate) certificate: Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let params = authority(name, Vec::new());
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a DNS name or an IP address.
    pub(crate) fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        Identity {
            certificate: params.signed_by(&key, &self.0).unwrap(),
            key,
        }
    }
}

impl Identity {
    /// Returns a self-signed certificate that is marked as an authority, as `openssl req -x509` makes it.
    pub(crate) fn self_signed(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self {
            certificate: authority(name, vec![name.to_owned()]).self_signed(&key).unwrap(),
            key,
        }
    }

    /// Returns the TLS side of a server, which requires client certificates of `clients` if given.
    pub(crate) fn acceptor(&self, clients: Option<&Authority>) -> TlsAcceptor {
        let builder = match clients {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.0.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let chain = vec![self.certificate.der().clone()];
        TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
    }

    /// Returns the TLS side of a server that negotiates one of these protocols.
    pub(crate) fn negotiating(&self, protocols: &[&str]) -> TlsAcceptor {
        let mut config = ServerConfig::clone(self.acceptor(None).config());
        config.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

fn authority(name: &str, names: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
