//! Certificates and keys of one cluster, and kubeconfigs that use them. ECDSA P-256 and PKCS#8 throughout.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use serde_json::json;

/// A certificate authority of the harness.
type Authority = CertifiedIssuer<'static, KeyPair>;

/// Names under which servers of the stack are reached.
const SERVER_NAMES: [&str; 4] = ["localhost", "kubernetes.default.svc", "127.0.0.1", "10.0.0.1"];

/// A certificate with its key, both PEM.
#[derive(Debug, Clone)]
pub struct KeyedCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key, PKCS#8.
    pub key: String,
}

impl KeyedCertificate {
    /// Writes `<name>.crt` and `<name>.key`.
    pub fn write(&self, directory: &Path, name: &str) -> Result<()> {
        write(&directory.join(format!("{name}.crt")), &self.certificate)?;
        write(&directory.join(format!("{name}.key")), &self.key)
    }
}

/// Everything that one API server needs, written to a directory: `ca`, `front`, `apiserver`, `admin`,
/// `proxy` (each `.crt` and `.key`), `sa.key` and `sa.pub`.
#[derive(Debug)]
pub struct ClusterPki {
    directory: PathBuf,
    authority: Authority,
    admin: KeyedCertificate,
}

impl ClusterPki {
    /// Makes a new authority and its certificates in `directory`.
    pub fn create(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let authority = authority("cluster")?;
        let front = authority_files("front-proxy", &directory, "front")?;
        KeyedCertificate {
            certificate: authority.pem(),
            key: authority.key().serialize_pem(),
        }
        .write(&directory, "ca")?;

        server_certificate(&authority)?.write(&directory, "apiserver")?;
        client_certificate(&front, "front-proxy-client", None)?.write(&directory, "proxy")?;
        let admin = client_certificate(&authority, "admin", Some("system:masters"))?;
        admin.write(&directory, "admin")?;

        let tokens = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        write(&directory.join("sa.key"), &tokens.serialize_pem())?;
        write(&directory.join("sa.pub"), &tokens.public_key_pem())?;
        Ok(Self {
            directory,
            authority,
            admin,
        })
    }

    /// Where the files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Path of one of the files.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Certificate of the authority, PEM.
    #[must_use]
    pub fn ca(&self) -> String {
        self.authority.pem()
    }

    /// Certificate of the authority as a `caBundle`: base64 of PEM.
    #[must_use]
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(self.ca())
    }

    /// A certificate for a server on loopback (webhooks, the extension).
    pub fn server_certificate(&self) -> Result<KeyedCertificate> {
        server_certificate(&self.authority)
    }

    /// A client certificate; `group` is its organization.
    pub fn client_certificate(&self, user: &str, group: Option<&str>) -> Result<KeyedCertificate> {
        client_certificate(&self.authority, user, group)
    }

    /// A kubeconfig of the administrator (group system:masters), with inline certificates.
    #[must_use]
    pub fn admin_kubeconfig(&self, server: &str) -> String {
        kubeconfig(
            server,
            &self.ca(),
            &json!({
                "client-certificate-data": STANDARD.encode(&self.admin.certificate),
                "client-key-data": STANDARD.encode(&self.admin.key),
            }),
        )
    }

    /// A kubeconfig of a user without groups, with inline certificates.
    pub fn user_kubeconfig(&self, server: &str, user: &str) -> Result<String> {
        let user = self.client_certificate(user, None)?;
        Ok(kubeconfig(
            server,
            &self.ca(),
            &json!({
                "client-certificate-data": STANDARD.encode(&user.certificate),
                "client-key-data": STANDARD.encode(&user.key),
            }),
        ))
    }

    /// A kubeconfig that authenticates with a bearer token.
    #[must_use]
    pub fn token_kubeconfig(&self, server: &str, token: &str) -> String {
        kubeconfig(server, &self.ca(), &json!({ "token": token }))
    }
}

/// A kubeconfig with one cluster, one user and one context. It is JSON, which is YAML.
#[must_use]
pub fn kubeconfig(server: &str, ca: &str, user: &serde_json::Value) -> String {
    format!(
        "{:#}\n",
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority-data": STANDARD.encode(ca)}}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "context",
        })
    )
}

fn authority(name: &str) -> Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    CertifiedIssuer::self_signed(params, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
        .context("sign an authority")
}

fn authority_files(name: &str, directory: &Path, file: &str) -> Result<Authority> {
    let authority = authority(name)?;
    KeyedCertificate {
        certificate: authority.pem(),
        key: authority.key().serialize_pem(),
    }
    .write(directory, file)?;
    Ok(authority)
}

fn server_certificate(authority: &Authority) -> Result<KeyedCertificate> {
    let params = CertificateParams::new(SERVER_NAMES.map(str::to_owned))?;
    sign(
        authority,
        params,
        "server",
        None,
        ExtendedKeyUsagePurpose::ServerAuth,
    )
}

fn client_certificate(authority: &Authority, user: &str, group: Option<&str>) -> Result<KeyedCertificate> {
    sign(
        authority,
        CertificateParams::default(),
        user,
        group,
        ExtendedKeyUsagePurpose::ClientAuth,
    )
}

fn sign(
    authority: &Authority,
    mut params: CertificateParams,
    name: &str,
    organization: Option<&str>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<KeyedCertificate> {
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organization) = organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = params
        .signed_by(&key, authority)
        .with_context(|| format!("sign the certificate of {name}"))?;
    Ok(KeyedCertificate {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}
