//! Allow-list reader for the kubeconfig of a workload cluster.
//!
//! A kubeconfig is code: in the usual readers `exec` and `auth-provider` start programs, `tokenFile` sends a local file to the
//! address in `server`, and `proxy-url` redirects connections. Its Secret belongs to a tenant. So Sluice reads only data fields,
//! with its own structs, and refuses a file with any other field, used or not.

mod redacted;
mod refused;
mod section;
#[cfg(test)]
mod tests;
mod yaml;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

pub use redacted::Redacted;
pub use refused::Refused;
use section::Section;

/// Size limit of a kubeconfig, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// Connection data from a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadKubeconfig {
    /// `https` URL of the API server, without user, query or fragment.
    pub server: String,
    /// CA bundle used to verify the server certificate, PEM.
    pub certificate_authority: Vec<u8>,
    /// Name in the server certificate if it differs from the host of the URL.
    pub tls_server_name: Option<String>,
    /// Credentials of Sluice on this API server.
    pub credentials: Credentials,
}

/// Credentials of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Bearer token.
    Token(Redacted<String>),
    /// Client certificate with its key.
    ClientCertificate {
        /// Certificate, PEM.
        certificate: Vec<u8>,
        /// Private key, PEM.
        key: Redacted<Vec<u8>>,
    },
}

/// Parses a kubeconfig and selects the current context, or the only one.
///
/// # Errors
/// The first refused field, by name. No message repeats the content of the file.
pub fn parse(bytes: &[u8]) -> Result<WorkloadKubeconfig, Refused> {
    let tree = yaml::read(bytes)?;
    let file = Section::root(&tree)?;
    file.allow(&[
        "apiVersion",
        "kind",
        "clusters",
        "users",
        "contexts",
        "current-context",
        "preferences",
        "extensions",
    ])?;
    file.constant("apiVersion", "v1")?;
    file.constant("kind", "Config")?;
    // Reads every entry before selecting one, so an unused entry cannot hide a refused field.
    let clusters = file.entries("clusters", Cluster::read)?;
    let users = file.entries("users", User::read)?;
    let contexts = file.entries("contexts", Context::read)?;

    let context = match (file.text("current-context")?, &contexts[..]) {
        (Some(name), _) => named(&contexts, name, || file.field("current-context"))?,
        (None, [only]) => only,
        (None, _) => return Err(Refused::NoContext),
    };
    let context = &context.content;
    let cluster = named(&clusters, &context.cluster, || {
        format!("{}.cluster", context.path)
    })?;
    let user = named(&users, &context.user, || format!("{}.user", context.path))?;
    cluster.content.with(user.content.credentials()?)
}

/// Returns the digest of a stored kubeconfig. A new digest requires a new connection.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    crate::digest::hex(&Sha256::digest(bytes))
}

/// Entry of one of the three lists.
struct Entry<T> {
    name: String,
    content: T,
}

fn named<'a, T>(
    entries: &'a [Entry<T>],
    name: &str,
    field: impl FnOnce() -> String,
) -> Result<&'a Entry<T>, Refused> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Refused::Dangling { field: field() })
}

struct Cluster<'a> {
    section: Section<'a>,
}

impl<'a> Cluster<'a> {
    fn read(entry: &Section<'a>) -> Result<Self, Refused> {
        entry.allow(&["name", "cluster"])?;
        let section = entry.section("cluster")?;
        section.allow(&[
            "server",
            "certificate-authority-data",
            "tls-server-name",
            "disable-compression",
            "extensions",
        ])?;
        Ok(Self { section })
    }

    fn with(&self, credentials: Credentials) -> Result<WorkloadKubeconfig, Refused> {
        let cluster = &self.section;
        let server = cluster.required("server")?;
        if !is_https_address(server) {
            return Err(Refused::Server {
                field: cluster.field("server"),
            });
        }
        Ok(WorkloadKubeconfig {
            server: server.to_owned(),
            certificate_authority: base64(cluster, "certificate-authority-data")?,
            tls_server_name: cluster.text("tls-server-name")?.map(str::to_owned),
            credentials,
        })
    }
}

struct User<'a> {
    section: Section<'a>,
}

impl<'a> User<'a> {
    fn read(entry: &Section<'a>) -> Result<Self, Refused> {
        entry.allow(&["name", "user"])?;
        let section = entry.section("user")?;
        section.allow(&[
            "token",
            "client-certificate-data",
            "client-key-data",
            "extensions",
        ])?;
        Ok(Self { section })
    }

    fn credentials(&self) -> Result<Credentials, Refused> {
        let user = &self.section;
        let certificate = user
            .text("client-certificate-data")?
            .or(user.text("client-key-data")?);
        match (user.text("token")?, certificate) {
            (Some(_), Some(_)) => Err(Refused::TwoCredentials { section: user.path() }),
            (None, None) => Err(Refused::NoCredentials { section: user.path() }),
            (Some(token), None) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Credentials::Token(Redacted::new(token.to_owned())))
            }
            (Some(_), None) => Err(Refused::Token {
                field: user.field("token"),
            }),
            (None, Some(_)) => Ok(Credentials::ClientCertificate {
                certificate: base64(user, "client-certificate-data")?,
                key: Redacted::new(base64(user, "client-key-data")?),
            }),
        }
    }
}

struct Context {
    path: String,
    cluster: String,
    user: String,
}

impl Context {
    fn read(entry: &Section<'_>) -> Result<Self, Refused> {
        entry.allow(&["name", "context"])?;
        let context = entry.section("context")?;
        context.allow(&["cluster", "user", "namespace", "extensions"])?;
        Ok(Self {
            path: context.path(),
            cluster: context.text("cluster")?.unwrap_or_default().to_owned(),
            user: context.text("user")?.unwrap_or_default().to_owned(),
        })
    }
}

fn base64(section: &Section<'_>, field: &'static str) -> Result<Vec<u8>, Refused> {
    // A block scalar keeps line ends; client-go's decoder skips them too.
    let text: String = section.required(field)?.split(['\r', '\n']).collect();
    match STANDARD.decode(text) {
        Ok(decoded) if !decoded.is_empty() => Ok(decoded),
        _ => Err(Refused::NotBase64 {
            field: section.field(field),
        }),
    }
}

/// Whether `url` is `https://host[:port][/path]` only, without a query and without a user, whose password would be in clear text.
fn is_https_address(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://") else {
        return false;
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_~%:".contains(&byte);
    !authority.is_empty() && authority.bytes().all(of_host) && path.bytes().all(of_path)
}
