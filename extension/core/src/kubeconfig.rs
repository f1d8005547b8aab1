//! Reader for the kubeconfig of a workload cluster.
//!
//! A kubeconfig is code: in the usual readers `exec` and `auth-provider` start programs, `tokenFile` sends a local file to the
//! address in `server`, and `proxy-url` redirects connections. Its Secret belongs to a tenant. So Sluice reads data fields of the
//! current context only, with its own structs. It refuses fields there that start a program, read a file, impersonate a user or skip the
//! verification of the server. Like kapp-controller, it ignores other entries and unknown fields.
//! `docs/reference/kubeconfigs.md` compares the two.

mod host_pattern;
mod proxies;
mod proxy;
mod redacted;
mod refused;
mod section;
#[cfg(test)]
mod tests;
mod yaml;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

pub use host_pattern::HostPattern;
pub use proxies::{Proxies, ProxyNotAllowed};
pub use proxy::{Proxy, ProxyProtocol};
pub use redacted::Redacted;
pub use refused::Refused;
use section::{Entry, Section};

/// Size limit of a kubeconfig, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// Refused fields of a cluster, with the remedy.
const REFUSED_OF_CLUSTER: [(&str, &str); 2] = [
    ("certificate-authority", "put certificate-authority-data there"),
    ("insecure-skip-tls-verify", "put certificate-authority-data there"),
];

/// Refused fields of a user, with the remedy.
const REFUSED_OF_USER: [(&str, &str); 9] = [
    ("exec", "put a token or client-certificate-data there"),
    ("auth-provider", "put a token or client-certificate-data there"),
    ("tokenFile", "put token there"),
    ("client-certificate", "put client-certificate-data there"),
    ("client-key", "put client-key-data there"),
    ("as", "remove it"),
    ("as-uid", "remove it"),
    ("as-groups", "remove it"),
    ("as-user-extra", "remove it"),
];

/// Connection data from a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadKubeconfig {
    /// `https` URL of the API server, without user, query or fragment.
    pub server: String,
    /// CA bundle used to verify the server certificate, PEM; `None` for the CA certificates of the system.
    pub certificate_authority: Option<Vec<u8>>,
    /// Name in the server certificate if it differs from the host of the URL.
    pub tls_server_name: Option<String>,
    /// Proxy in front of the API server.
    pub proxy: Option<Proxy>,
    /// Credentials of Sluice on this API server.
    pub credentials: Credentials,
}

/// Credentials of a client. At least one of them is there, and all of them are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Content of header `Authorization`.
    pub authorization: Option<Authorization>,
    /// Client certificate of the TLS handshake.
    pub certificate: Option<ClientCertificate>,
}

/// Content of header `Authorization`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// Bearer token.
    Token(Redacted<String>),
    /// User and password.
    Basic {
        /// User name.
        username: String,
        /// Password; may be empty.
        password: Redacted<String>,
    },
}

/// Client certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Certificate chain, PEM.
    pub certificate: Vec<u8>,
    /// Private key, PEM.
    pub key: Redacted<Vec<u8>>,
}

/// Parses a kubeconfig and selects the current context, or the only one.
///
/// # Errors
/// The first refused field, by name. No message repeats the content of the file.
pub fn parse(bytes: &[u8]) -> Result<WorkloadKubeconfig, Refused> {
    let tree = yaml::read(bytes)?;
    let file = Section::root(&tree)?;
    file.constant("apiVersion", "v1")?;
    file.constant("kind", "Config")?;
    let clusters = file.entries("clusters")?;
    let users = file.entries("users")?;
    let contexts = file.entries("contexts")?;

    let context = match (file.text("current-context")?, &contexts[..]) {
        (Some(name), _) => named(&contexts, &name, || file.field("current-context"))?,
        (None, [only]) => only,
        (None, _) => return Err(Refused::NoContext),
    };
    let context = context.section.section("context")?;
    let cluster = context.text("cluster")?.unwrap_or_default();
    let cluster = named(&clusters, &cluster, || context.field("cluster"))?;
    let user = context.text("user")?.unwrap_or_default();
    let user = named(&users, &user, || context.field("user"))?;
    let credentials = credentials(&user.section.section("user")?)?;
    connection(&cluster.section.section("cluster")?, credentials)
}

/// Returns the digest of a stored kubeconfig. A new digest requires a new connection.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    crate::digest::hex(&Sha256::digest(bytes))
}

fn named<'e, 'a>(
    entries: &'e [Entry<'a>],
    name: &str,
    field: impl FnOnce() -> String,
) -> Result<&'e Entry<'a>, Refused> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Refused::Dangling { field: field() })
}

fn connection(cluster: &Section<'_>, credentials: Credentials) -> Result<WorkloadKubeconfig, Refused> {
    cluster.refuse(&REFUSED_OF_CLUSTER)?;
    let server = https_address(&cluster.required("server")?).ok_or_else(|| Refused::Server {
        field: cluster.field("server"),
    })?;
    let parse_proxy = |url: &str| {
        Proxy::parse(url).ok_or_else(|| Refused::Proxy {
            field: cluster.field("proxy-url"),
        })
    };
    Ok(WorkloadKubeconfig {
        server,
        certificate_authority: base64(cluster, "certificate-authority-data")?,
        tls_server_name: cluster.text("tls-server-name")?.map(Into::into),
        proxy: cluster
            .text("proxy-url")?
            .map(|url| parse_proxy(&url))
            .transpose()?,
        credentials,
    })
}

fn credentials(user: &Section<'_>) -> Result<Credentials, Refused> {
    user.refuse(&REFUSED_OF_USER)?;
    let certificate = client_certificate(user)?;
    let authorization = authorization(user)?;
    if certificate.is_none() && authorization.is_none() {
        if user.text("client-key-data")?.is_some() {
            user.required("client-certificate-data")?;
        }
        return Err(Refused::NoCredentials { section: user.path() });
    }
    Ok(Credentials {
        authorization,
        certificate,
    })
}

fn client_certificate(user: &Section<'_>) -> Result<Option<ClientCertificate>, Refused> {
    // client-go ignores a key without a certificate.
    let Some(certificate) = base64(user, "client-certificate-data")? else {
        return Ok(None);
    };
    let key = base64(user, "client-key-data")?.ok_or_else(|| Refused::Missing {
        field: user.field("client-key-data"),
    })?;
    Ok(Some(ClientCertificate {
        certificate,
        key: Redacted::new(key),
    }))
}

fn authorization(user: &Section<'_>) -> Result<Option<Authorization>, Refused> {
    let (username, password) = (user.text("username")?, user.text("password")?);
    match (user.text("token")?, username, password) {
        (None, None, None) => Ok(None),
        (Some(token), None, None) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(Authorization::Token(Redacted::new(token.into_owned()))))
        }
        (Some(_), None, None) => Err(Refused::Token {
            field: user.field("token"),
        }),
        // client-go refuses them as well.
        (Some(_), _, _) => Err(Refused::TwoCredentials { section: user.path() }),
        (None, None, Some(_)) => Err(Refused::Missing {
            field: user.field("username"),
        }),
        (None, Some(username), password) => Ok(Some(Authorization::Basic {
            username: username.into_owned(),
            password: Redacted::new(password.unwrap_or_default().into_owned()),
        })),
    }
}

/// Decodes a field; `None` if it is absent.
fn base64(section: &Section<'_>, field: &'static str) -> Result<Option<Vec<u8>>, Refused> {
    let Some(text) = section.text(field)? else {
        return Ok(None);
    };
    // A block scalar keeps line ends; client-go's decoder skips them too.
    let text: String = text.split(['\r', '\n']).collect();
    match STANDARD.decode(text) {
        Ok(decoded) if !decoded.is_empty() => Ok(Some(decoded)),
        _ => Err(Refused::NotBase64 {
            field: section.field(field),
        }),
    }
}

/// Returns the `https` URL of a server, which is `https://host[:port][/path]` or `host[:port]`. A query is not accepted, and no user,
/// whose password would be in clear text.
fn https_address(server: &str) -> Option<String> {
    let rest = match server.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest,
        Some(_) => return None,
        // client-go assumes https for a server with a CA, and accepts no path there.
        None if server.trim_end_matches('/').contains('/') => return None,
        None => server,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_~%:@!$&'()*+,;=".contains(&byte);
    let port = match authority.rsplit_once(':') {
        Some((_, port)) if !authority.ends_with(']') => port,
        _ => "",
    };
    let is_address = !authority.is_empty()
        && authority.bytes().all(of_host)
        && (port.is_empty() || port.parse::<u16>().is_ok())
        && path.bytes().all(of_path);
    is_address.then(|| format!("https://{rest}"))
}
