//! Serves one connection: handshake, protocol by ALPN, timeouts of its peer, and its end.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, pending};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use sluice_hooks::{Peer, Repeats};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, info};

use super::certificate::Identity;
use super::{Limits, Metrics, tls};
use crate::lock::lock;

/// Bytes that an HTTP/2 connection may send ahead, in one request or in all. Bodies are read at once into counted memory. A small window
/// costs a busy connection some round trips; a large one costs memory when reading falls behind.
const WINDOW: u32 = 128 * 1024;

/// Bytes of the header of a request. HTTP/1.1 reads bodies in pieces of this size, too.
const HEADER: u32 = 16 * 1024;

/// State shared by all connections of a listener.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) http: Builder<TokioExecutor>,
    /// Peers without HTTP/2 are refused.
    pub(super) http2_only: bool,
    pub(super) metrics: Metrics,
    pub(super) refused: Repeats<&'static str>,
    /// Shutdown of the listener: finish requests in flight.
    pub(super) drain: CancellationToken,
    /// Connections that did not end within the drain timeout.
    pub(super) cut: AtomicUsize,
}

impl Shared {
    /// Logs a refused connection of `peer`. A peer may open any number of these, so the log lines are rate-limited.
    pub(super) fn refuse(&self, peer: IpAddr, reason: &'static str, error: impl fmt::Display) {
        if let Some(left_out) = self.refused.begins(peer, reason, std::time::Instant::now()) {
            info!(%peer, reason, %error, left_out, "Refused connection");
        } else {
            debug!(%peer, reason, %error, "Refused connection");
        }
    }
}

/// Returns the settings of HTTP for the connections of a listener.
pub(super) fn http(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        // It would be a limit on idle connections, which `Connection::overstays` has for both versions of HTTP.
        .header_read_timeout(None)
        .max_headers(64)
        .max_buf_size(HEADER as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_send_buf_size(limits.send_buffer)
        .max_header_list_size(HEADER)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping / 2);
    builder
}

/// Serves one accepted connection to its end.
pub(super) async fn serve(
    shared: &Shared,
    tcp: TcpStream,
    serving: Option<watch::Receiver<Identity>>,
    peer: &Peer,
) {
    // Without it the last bytes of a response wait 40 ms for the peer's delayed acknowledgement.
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Some(mut serving) = serving else {
        return exchange(shared, tcp, false, None, peer).await;
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&serving.borrow_and_update().server));
    let accepted = tokio::select! {
        () = shared.drain.cancelled() => return,
        accepted = timeout(shared.limits.handshake, acceptor.accept(tcp)) => accepted,
    };
    match accepted {
        Ok(Ok(tls)) => {
            let h2 = shared.http2_only || tls.get_ref().1.alpn_protocol() == Some(tls::H2);
            exchange(shared, tls, h2, Some(serving), peer).await;
        }
        Ok(Err(error)) => {
            shared.refuse(peer.address(), "HandshakeRefused", error);
            shared.metrics.handshake_failed("Refused");
        }
        Err(error) => {
            shared.refuse(peer.address(), "HandshakeTimeout", error);
            shared.metrics.handshake_failed("Timeout");
        }
    }
}

/// Answers the requests of a connection until it ends, is asked to end, or exceeds a timeout.
async fn exchange<T>(
    shared: &Shared,
    io: T,
    h2: bool,
    serving: Option<watch::Receiver<Identity>>,
    peer: &Peer,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Shared { limits, metrics, .. } = shared;
    let connection = Arc::new(Connection {
        router: shared.router.clone(),
        peer: peer.clone(),
        h2,
        serving: serving.clone(),
        leaving: Leaving(shared.drain.child_token()),
        requests: Mutex::new(Requests {
            in_flight: 0,
            served: false,
            idle_since: Instant::now(),
        }),
    });
    // The handshake determines the protocol, so that nothing guesses it from the first bytes.
    let builder = shared.http.clone();
    let builder = if h2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    };
    let service = service_fn(|request| connection.answer(request));
    let graceful = GracefulShutdown::new();
    let http = graceful.watch(builder.serve_connection(TokioIo::new(io), service));
    let leave = async {
        tokio::select! {
            () = rotated(serving), if h2 => {}
            () = connection.leaving.0.cancelled() => {}
        }
        connection.leaving.0.cancel();
        // It returns at the end of the connection, too, which `http` reports first.
        drop(timeout(limits.drain, graceful.shutdown()).await);
    };
    tokio::select! {
        biased;
        _ended = http => {}
        () = leave => {
            metrics.connection_closed("Drain");
            shared.cut.fetch_add(shared.drain.is_cancelled().into(), Ordering::Relaxed);
        }
        limit = connection.overstays(limits) => metrics.connection_closed(limit),
    }
}

/// Returns once another certificate is served.
async fn rotated(serving: Option<watch::Receiver<Identity>>) {
    if let Some(mut serving) = serving
        && serving.changed().await.is_ok()
    {
        return;
    }
    pending::<()>().await;
}

/// Shutdown request of a connection. Each request has it as an extension: one with a long response can end it cleanly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaving(pub(crate) CancellationToken);

/// Connection with its requests.
struct Connection {
    router: Router,
    peer: Peer,
    h2: bool,
    serving: Option<watch::Receiver<Identity>>,
    leaving: Leaving,
    requests: Mutex<Requests>,
}

/// Requests of a connection.
struct Requests {
    in_flight: usize,
    served: bool,
    /// End of the last request; without one, end of the handshake.
    idle_since: Instant,
}

impl Connection {
    fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send + use<> {
        let in_flight = InFlight::begin(Arc::clone(self));
        request.extensions_mut().insert(self.peer.clone());
        request.extensions_mut().insert(self.leaving.clone());
        let answer = self.router.clone().oneshot(request.map(Body::new));
        async move {
            let mut response = answer.await?;
            in_flight.0.may_end_with(&mut response);
            if response.body().size_hint().exact().is_some() {
                return Ok(response);
            }
            // A stream is in flight until it ends, however rarely it sends data.
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _kept_until_the_end = &in_flight;
                    frame
                }))
            }))
        }
    }

    /// Ends the connection with a response that has `Connection: close`, or that is the next one after a rotation of the certificate.
    fn may_end_with(&self, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        if self.h2 {
            // HTTP/2 has no header for it: hyper would remove it with a warning and no effect.
            if headers.remove(CONNECTION).is_some() {
                self.leaving.0.cancel();
            }
        } else if self
            .serving
            .as_ref()
            .is_some_and(|serving| serving.has_changed().unwrap_or(false))
        {
            // A shutdown would close an idle HTTP/1.1 connection at once. That races with the next request, and clients do not retry a
            // POST.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Returns once the peer has exceeded a limit, which it names. Requests only store when they end.
    async fn overstays(&self, limits: &Limits) -> &'static str {
        loop {
            let (limit, end) = lock(&self.requests).limit(limits);
            if end <= Instant::now() {
                return limit;
            }
            sleep_until(end).await;
        }
    }
}

impl Requests {
    /// Returns the limit that the peer exceeds next, and when at the earliest.
    fn limit(&self, limits: &Limits) -> (&'static str, Instant) {
        if self.in_flight > 0 {
            ("Idle", Instant::now() + limits.idle)
        } else if self.served {
            ("Idle", self.idle_since + limits.idle)
        } else {
            ("Head", self.idle_since + limits.head)
        }
    }
}

/// Request in flight; ends when dropped, also when the peer gives up.
struct InFlight(Arc<Connection>);

impl InFlight {
    fn begin(connection: Arc<Connection>) -> Self {
        let mut requests = lock(&connection.requests);
        requests.in_flight += 1;
        requests.served = true;
        drop(requests);
        Self(connection)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut requests = lock(&self.0.requests);
        requests.in_flight -= 1;
        requests.idle_since = Instant::now();
    }
}
