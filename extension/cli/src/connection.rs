//! Connection to a status service, and its errors.

use std::{
    error::Error,
    fs, io, iter,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use http::uri::Authority;
use sluice_proto::status::v1::status_service_client::StatusServiceClient;
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use super::{arguments::ServerArgs, terminal::clean};

/// Timeout of the connection and its handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// Interval and timeout of HTTP/2 keep-alive pings.
const ALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Timeout of one page or one Cluster.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// Exit code of a wrong command line.
const WRONG_USAGE: u8 = 2;

/// Error of a verb.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Usage(String),
    /// No release is the target that the user names.
    #[error("--to {}", clean(.0))]
    Target(String),
    /// A value of a flag that does not fit the Cluster.
    #[error("{}", clean(.0))]
    Flag(String),
    /// The management cluster does not give the answer, for this reason.
    #[error("{}", clean(.0))]
    NotAnswered(String),
    #[error("{server} {}", refusal(.status))]
    Refused { server: String, status: Box<Status> },
    #[error("{server} {}; --token-file {} has no other token", refusal(.status), file.display())]
    NoOtherToken {
        server: String,
        status: Box<Status>,
        file: PathBuf,
    },
    #[error("{server} cannot be reached: {}", clean(why))]
    Unreachable { server: String, why: String },
    #[error("write the output: {0}")]
    Output(#[from] io::Error),
}

impl Trouble {
    pub(super) fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns the exit code.
    pub(super) fn code(&self) -> ExitCode {
        match self {
            Self::Target(_) | Self::Flag(_) => ExitCode::from(WRONG_USAGE),
            _ => ExitCode::FAILURE,
        }
    }

    /// Returns whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status, .. } => !matches!(
                status.code(),
                Code::Unauthenticated
                    | Code::PermissionDenied
                    | Code::InvalidArgument
                    | Code::NotFound
                    | Code::Unimplemented
            ),
            Self::NoOtherToken { .. }
            | Self::Usage(_)
            | Self::Target(_)
            | Self::Flag(_)
            | Self::NotAnswered(_)
            | Self::Output(_) => false,
        }
    }
}

/// Renders the status of a service on one line.
fn refusal(status: &Status) -> String {
    let code = match status.code() {
        Code::Unauthenticated => "does not know the caller".to_owned(),
        Code::PermissionDenied => "refuses".to_owned(),
        Code::NotFound => "finds nothing".to_owned(),
        Code::Unavailable | Code::Aborted => "does not answer now".to_owned(),
        code => format!("answers {code:?}"),
    };
    format!("{code}: {}", clean(status.message()))
}

/// Maximum length of a rendered error, in bytes. A server chooses the length of its message.
const LONGEST: usize = 4 * 1024;

/// Renders an error with its sources on one line, truncated.
fn with_sources(error: &dyn Error) -> String {
    let sources = iter::successors(error.source(), |&source| source.source());
    let mut text = sources.fold(error.to_string(), |text, source| format!("{text}: {source}"));
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// Authorization header of a call with a token.
type Authorization = MetadataValue<Ascii>;

/// Reads the current token of a token file.
///
/// # Errors
/// The file cannot be read or has no token.
fn authorization(file: &Path) -> Result<Authorization, Trouble> {
    let shown = file.display();
    let token = fs::read_to_string(file)
        .map_err(|error| Trouble::Usage(format!("read --token-file {shown}: {error}")))?;
    let authorization = MetadataValue::try_from(format!("Bearer {}", token.trim())).ok();
    let mut authorization = authorization
        .filter(|_| !token.trim().is_empty())
        .ok_or_else(|| Trouble::Usage(format!("--token-file {shown} has no token")))?;
    authorization.set_sensitive(true);
    Ok(authorization)
}

/// Cause of the end of a stream.
pub(super) enum Ended {
    /// Error that ended the stream.
    By(Trouble),
    /// The token was refused, and the token file has a new one.
    ForAnotherToken(Trouble),
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Self::By(trouble)
    }
}

/// Connection and the token that opened it.
pub(super) struct Connection {
    pub(super) client: StatusServiceClient<Channel>,
    server: String,
    token_file: PathBuf,
    authorization: Authorization,
}

impl Connection {
    /// Connects to the service in `asked`.
    ///
    /// # Errors
    /// A file is invalid, or the service is unreachable.
    pub(super) async fn open(asked: &ServerArgs) -> Result<Self, Trouble> {
        let ServerArgs {
            server,
            ca,
            server_name,
            token_file,
        } = asked;
        let shown = ca.display();
        let pem = fs::read(ca).map_err(|error| Trouble::Usage(format!("read --ca {shown}: {error}")))?;
        if !pem.windows(11).any(|window| window == b"-----BEGIN ") {
            return Err(Trouble::Usage(format!(
                "--ca {shown} is no PEM file with certificates"
            )));
        }
        let authorization = authorization(token_file)?;
        let host = server
            .parse::<Authority>()
            .map(|authority| authority.host().to_owned());
        let host = host.map_err(|error| Trouble::Usage(format!("--server {server}: {error}")))?;
        let name = server_name.clone().unwrap_or(host);
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(pem))
            .domain_name(name.trim_matches(['[', ']']));
        let unreachable = |error: &dyn Error| Trouble::Unreachable {
            server: server.clone(),
            why: with_sources(error),
        };
        let endpoint = Endpoint::from_shared(format!("https://{server}"))
            .and_then(|endpoint| endpoint.tls_config(tls))
            .map_err(|error| unreachable(&error))?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(ALIVE.0)
            .keep_alive_timeout(ALIVE.1);
        let channel = tokio::time::timeout(CONNECT, endpoint.connect()).await;
        let late = |_| Trouble::Unreachable {
            server: server.clone(),
            why: format!("no connection within {} s", CONNECT.as_secs()),
        };
        let channel = channel.map_err(late)?.map_err(|error| unreachable(&error))?;
        Ok(Self {
            client: StatusServiceClient::new(channel),
            server: server.clone(),
            token_file: token_file.clone(),
            authorization,
        })
    }

    /// Maps the status of an ended stream. After a refused token, returns whether the file has a new one, so that the stream can be
    /// reopened.
    pub(super) fn ended(&self, status: Status) -> Ended {
        if status.code() != Code::Unauthenticated {
            return Ended::By(self.refused(status));
        }
        match authorization(&self.token_file) {
            Ok(now) if now != self.authorization => Ended::ForAnotherToken(self.refused(status)),
            Ok(_) => Ended::By(Trouble::NoOtherToken {
                server: self.server.clone(),
                status: Box::new(status),
                file: self.token_file.clone(),
            }),
            Err(trouble) => Ended::By(trouble),
        }
    }

    /// Returns a request with the token.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request
            .metadata_mut()
            .insert("authorization", self.authorization.clone());
        request
    }

    /// Maps the status of a failed call.
    pub(super) fn refused(&self, status: Status) -> Trouble {
        // A broken connection carries no code of the service.
        if let Some(source) = status.source() {
            return Trouble::Unreachable {
                server: self.server.clone(),
                why: with_sources(source),
            };
        }
        Trouble::Refused {
            server: self.server.clone(),
            status: Box::new(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error with a message and a source.
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Because(String, #[source] io::Error);

    #[test]
    fn an_error_names_its_sources_and_is_truncated() {
        let because = |text: String| Because(text, io::Error::other("the source"));
        let short = because("the error".to_owned());
        assert_eq!(with_sources(&short), "the error: the source");
        let long = because(format!("a{}", "ä".repeat(LONGEST)));
        assert_eq!(with_sources(&long).len(), LONGEST - 1);
    }
}
