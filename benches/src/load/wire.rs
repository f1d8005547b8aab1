//! One connection, and one call on it.

use std::error::Error;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::outcome::{Kind, Unanswered};
use super::target::Target;

/// How ALPN names HTTP/2.
pub(super) const H2: &[u8] = b"h2";

/// More than an answer to a hook has.
const LARGEST_ANSWER: usize = 1 << 20;

/// A connection. Clones of one that speaks HTTP/2 are the same connection.
#[derive(Debug)]
pub(super) enum Connection {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

/// Why a call on a connection has no answer.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) why: Unanswered,
    /// Whether the extension has surely not begun to handle it, so that it can be sent again.
    pub(super) is_unhandled: bool,
}

impl Lost {
    /// Lost for good.
    pub(super) const fn at_once(why: Unanswered) -> Self {
        Self {
            why,
            is_unhandled: false,
        }
    }
}

/// A request as Cluster API makes it: JSON without a Content-Type. Go offers to take gzip as well; this does not, and reads all answers.
pub(super) fn request(uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static("sluice-bench"));
    request
}

impl Connection {
    /// Connects, with a handshake.
    pub(super) async fn open(target: &Target) -> Result<Self, Unanswered> {
        let unreachable =
            |error| Unanswered::new(Kind::Unreachable, format_args!("{}: {error}", target.authority));
        let tcp = TcpStream::connect(target.addresses.as_slice())
            .await
            .map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        let failed = |error: &dyn Error| {
            Unanswered::new(
                Kind::Handshake,
                format_args!("{}: {}", target.authority, chain(error)),
            )
        };
        let connector = TlsConnector::from(target.tls.clone());
        let tls = connector
            .connect(target.name.clone(), tcp)
            .await
            .map_err(|error| failed(&error))?;
        let is_h2 = tls.get_ref().1.alpn_protocol() == Some(H2);
        let io = TokioIo::new(tls);
        if is_h2 {
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .handshake(io)
                .await
                .map_err(|error| failed(&error))?;
            tokio::spawn(connection);
            Ok(Self::H2(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(|error| failed(&error))?;
            tokio::spawn(connection);
            Ok(Self::H1(sender))
        }
    }

    pub(super) const fn is_h2(&self) -> bool {
        matches!(self, Self::H2(_))
    }

    /// Whether nothing more can be asked on it.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::H1(sender) => sender.is_closed(),
            Self::H2(sender) => sender.is_closed(),
        }
    }

    /// The same connection for another call at the same time; none in HTTP/1.1.
    pub(super) fn shared(&self) -> Option<Self> {
        match self {
            Self::H1(_) => None,
            Self::H2(sender) => Some(Self::H2(sender.clone())),
        }
    }

    /// Sends a request; the body of its answer if the code is 200.
    pub(super) async fn ask(&mut self, mut request: Request<Full<Bytes>>) -> Result<Bytes, Lost> {
        let answer = match self {
            Self::H2(sender) => {
                *request.version_mut() = Version::HTTP_2;
                sender.try_send_request(request).await
            }
            Self::H1(sender) => {
                as_http1(&mut request);
                // It is still busy with the end of the answer before.
                match sender.ready().await {
                    Ok(()) => sender.try_send_request(request).await,
                    Err(error) => {
                        let why = closed(&error);
                        return Err(Lost {
                            why,
                            is_unhandled: true,
                        });
                    }
                }
            }
        };
        let answer = answer.map_err(lost)?;
        body(answer).await.map_err(Lost::at_once)
    }
}

/// HTTP/1.1 names the host in a header, and only the path in the first line.
fn as_http1(request: &mut Request<Full<Bytes>>) {
    if let Some(host) = request
        .uri()
        .authority()
        .and_then(|host| HeaderValue::from_str(host.as_str()).ok())
    {
        request.headers_mut().insert(HOST, host);
    }
    let path = request.uri().path_and_query().cloned();
    if let Some(path) = path {
        *request.uri_mut() = Uri::from(path);
    }
}

async fn body(answer: Response<Incoming>) -> Result<Bytes, Unanswered> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
    let body = body
        .map_err(|error| Unanswered::new(Kind::Closed, chain(error.as_ref())))?
        .to_bytes();
    if status == StatusCode::OK {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
    Err(Unanswered::new(Kind::Status, format_args!("{status} {text}")))
}

fn lost(mut error: TrySendError<Request<Full<Bytes>>>) -> Lost {
    Lost {
        is_unhandled: error.take_message().is_some() || is_refused(error.error()),
        why: closed(error.error()),
    }
}

/// Whether HTTP/2 says that the stream was not handled: there were too many, as before the settings of the server are known.
fn is_refused(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.reason() == Some(h2::Reason::REFUSED_STREAM))
}

fn closed(error: &hyper::Error) -> Unanswered {
    Unanswered::new(Kind::Closed, chain(error))
}

/// An error and what caused it, on one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
