//! Address, protocol and handlers of an extension.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::Uri;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde_json::json;
use sluice_hooks::{API_VERSION, GROUP_VERSION, Hook};
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::arguments::{Arguments, Protocol};
use super::wire::{self, Connection};

/// How long Cluster API waits for discovery, and for an answer where the extension says nothing else.
const DEFAULT: Duration = Duration::from_secs(10);

/// A handler of a hook.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) hook: Hook,
    pub(super) path: String,
    /// How long its answer is waited for.
    pub(super) timeout: Duration,
}

/// An extension.
#[derive(Debug)]
pub(super) struct Target {
    /// All that the host is resolved to; the first that takes a connection is used.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) name: ServerName<'static>,
    /// `host:port`, as in the URL.
    pub(super) authority: String,
    /// The path of the URL, without a slash at its end.
    prefix: String,
    pub(super) tls: Arc<ClientConfig>,
    /// How long the answer to a discovery request is waited for.
    timeout: Duration,
}

impl Target {
    /// Reads the URL and the certificates, and resolves the host.
    pub(super) async fn of(arguments: &Arguments) -> Result<Self> {
        let url = &arguments.url;
        let uri: Uri = url.parse().with_context(|| format!("{url} is no URL"))?;
        ensure!(
            uri.scheme_str() == Some("https"),
            "{url} does not begin with https://, as Cluster API requires"
        );
        let host = uri.host().with_context(|| format!("{url} has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(443);
        let found = lookup_host((host, port))
            .await
            .with_context(|| format!("{host} in {url} is not found"))?;
        let addresses: Vec<_> = found.collect();
        let elsewhere = addresses.iter().find(|address| !is_here(address.ip()));
        if let (Some(address), false) = (elsewhere, arguments.remote) {
            bail!(
                "{host} is {}, not this machine: --remote allows to put load on another one",
                address.ip()
            );
        }
        let name = arguments.server_name.as_deref().unwrap_or(host).to_owned();
        Ok(Self {
            addresses,
            name: ServerName::try_from(name.clone())
                .with_context(|| format!("{name} is no name of a server"))?,
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            tls: Arc::new(tls(arguments)?),
            timeout: arguments.timeout.unwrap_or(DEFAULT),
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.addresses.first().map_or(443, SocketAddr::port)
    }

    /// The handlers of hooks. Fails unless the extension says that it has one for each.
    pub(super) async fn handlers(&self, hooks: &[Hook]) -> Result<Vec<Found>> {
        // The URL may already name the handler of one hook; other servers than extensions discover nothing.
        if let Some((_, rest)) = self.prefix.split_once(GROUP_VERSION) {
            let asked = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
            for hook in hooks {
                ensure!(
                    hook.as_str().eq_ignore_ascii_case(asked),
                    "the URL names the handler of {asked:?}, and {} is asked for",
                    hook.as_str()
                );
            }
            let found = |hook: &Hook| Found {
                hook: *hook,
                path: self.prefix.clone(),
                timeout: self.timeout,
            };
            return Ok(hooks.iter().map(found).collect());
        }
        let found = timeout(self.timeout, self.discover())
            .await
            .with_context(|| format!("no answer to the discovery request within {:?}", self.timeout))??;
        let handler = |hook: &Hook| {
            let handler = found
                .iter()
                .find(|handler| handler.request_hook.hook == hook.as_str());
            let Handler {
                name,
                timeout_seconds,
                ..
            } = handler.with_context(|| format!("the extension has no handler of {}", hook.as_str()))?;
            let hook_in_path = hook.as_str().to_ascii_lowercase();
            Ok(Found {
                hook: *hook,
                path: format!("{}/{GROUP_VERSION}/{hook_in_path}/{name}", self.prefix),
                timeout: timeout_seconds.map_or(DEFAULT, Duration::from_secs),
            })
        };
        hooks.iter().map(handler).collect()
    }

    async fn discover(&self) -> Result<Vec<Handler>> {
        let body = json!({"apiVersion": API_VERSION, "kind": "DiscoveryRequest"}).to_string();
        let uri = self.uri(
            &format!("{}/{GROUP_VERSION}/discovery", self.prefix),
            self.timeout,
        )?;
        let mut connection = Connection::open(self).await.map_err(anyhow::Error::msg)?;
        let answer = connection.ask(wire::request(&uri, Bytes::from(body))).await;
        let answer = answer.map_err(|error| anyhow::anyhow!("discovery: {}", error.why))?;
        let discovery: Discovery = serde_json::from_slice(&answer)
            .context("discovery: the answer is no DiscoveryResponse; is it a runtime extension?")?;
        if discovery.status != "Success" {
            bail!("discovery: {} {}", discovery.status, discovery.message);
        }
        Ok(discovery.handlers)
    }

    /// The address of a handler. Cluster API names the time in which it has to answer.
    pub(super) fn uri(&self, path: &str, timeout: Duration) -> Result<Uri> {
        let uri = format!(
            "https://{}{path}?timeout={}s",
            self.authority,
            timeout.as_secs().max(1)
        );
        uri.parse().with_context(|| format!("{uri} is no URL"))
    }
}

/// What an extension says of itself.
#[derive(Debug, Deserialize)]
struct Discovery {
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    handlers: Vec<Handler>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Handler {
    name: String,
    request_hook: RequestHook,
    #[serde(default)]
    timeout_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct RequestHook {
    hook: String,
}

fn is_here(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// TLS as Go speaks it: the hybrid key exchange first, and no session is resumed.
fn tls(arguments: &Arguments) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = Arguments::read("--ca", &arguments.ca)?;
    for certificate in CertificateDer::pem_slice_iter(&ca) {
        let certificate = certificate.with_context(|| format!("read --ca {}", arguments.ca.display()))?;
        roots
            .add(certificate)
            .with_context(|| format!("--ca {}", arguments.ca.display()))?;
    }
    ensure!(
        !roots.is_empty(),
        "--ca {} has no certificate",
        arguments.ca.display()
    );
    let provider = CryptoProvider {
        kx_groups: vec![
            aws_lc_rs::kx_group::X25519MLKEM768,
            aws_lc_rs::kx_group::X25519,
            aws_lc_rs::kx_group::SECP256R1,
            aws_lc_rs::kx_group::SECP384R1,
        ],
        ..aws_lc_rs::default_provider()
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match (&arguments.client_cert, &arguments.client_key) {
        (Some(chain), Some(key)) => {
            let certificates = CertificateDer::pem_slice_iter(&Arguments::read("--client-cert", chain)?)
                .collect::<Result<Vec<_>, _>>()
                .with_context(|| format!("read --client-cert {}", chain.display()))?;
            let key = PrivateKeyDer::from_pem_slice(&Arguments::read("--client-key", key)?)
                .with_context(|| format!("read --client-key {}", key.display()))?;
            builder
                .with_client_auth_cert(certificates, key)
                .context("--client-cert and --client-key")?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = match arguments.protocol {
        Protocol::H1 => vec![b"http/1.1".to_vec()],
        // A caller that makes a connection for each call offers both as well.
        Protocol::H2 | Protocol::Handshake => vec![wire::H2.to_vec(), b"http/1.1".to_vec()],
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}
