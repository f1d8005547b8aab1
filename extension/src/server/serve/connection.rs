//! Serves one connection: handshake, protocol by ALPN, and timeouts.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use sluice_hooks::{Peer, Repeats};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::{debug, info};

use super::activity::{Activity, Watched};
use super::certificate::Identity;
use super::metrics::Metrics;
use super::shares::Share;
use super::{Limits, tls};

/// Bytes that an HTTP/2 connection may send ahead, in one request or in all. Bodies are read at once into counted memory. A small window
/// costs a busy connection some round trips; a large one costs memory when reading falls behind.
const WINDOW: u32 = 128 * 1024;

/// State shared by all connections of a listener.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) router: Router,
    pub(super) limits: Limits,
    /// Peers without HTTP/2 are refused.
    pub(super) http2_only: bool,
    pub(super) metrics: Metrics,
    pub(super) refused: Repeats<&'static str>,
    /// Graceful shutdown: finish requests in flight.
    pub(super) drain: CancellationToken,
    /// Immediate shutdown.
    pub(super) abort: CancellationToken,
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

/// Serves one accepted connection to its end; `number` spreads the maximum ages.
pub(super) async fn serve(
    shared: Arc<Shared>,
    tcp: TcpStream,
    serving: Option<watch::Receiver<Identity>>,
    share: Share,
    number: u64,
) {
    // Without it the last bytes of a response wait 40 ms for the peer's delayed acknowledgement.
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Some(mut serving) = serving else {
        return http(&shared, tcp, false, None, &share, number).await;
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&serving.borrow_and_update().server));
    let handshake = timeout(shared.limits.handshake, acceptor.accept(tcp));
    let tls = tokio::select! {
        () = shared.drain.cancelled() => return,
        result = handshake => match result {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => {
                shared.refuse(share.peer().address(), "HandshakeRefused", error);
                return shared.metrics.handshake_failed("Refused");
            }
            Err(error) => {
                shared.refuse(share.peer().address(), "HandshakeTimeout", error);
                return shared.metrics.handshake_failed("Timeout");
            }
        },
    };
    let h2 = tls.get_ref().1.alpn_protocol() == Some(tls::H2);
    // The handshake already refused a peer that offers only other protocols.
    if shared.http2_only && !h2 {
        shared.refuse(
            share.peer().address(),
            "NotHttp2",
            "it does not ask for h2 by ALPN",
        );
        return shared.metrics.connection_closed("NotHttp2");
    }
    http(&shared, tls, h2, Some(serving), &share, number).await;
}

async fn http<T>(
    shared: &Shared,
    io: T,
    h2: bool,
    serving: Option<watch::Receiver<Identity>>,
    share: &Share,
    number: u64,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::new(h2));
    let io = TokioIo::new(Watched {
        io,
        activity: Arc::clone(&activity),
    });
    let service = Service {
        router: shared.router.clone(),
        activity: Arc::clone(&activity),
        peer: share.peer().clone(),
    };
    let lease = Lease {
        serving,
        age: shared.limits.age + shared.limits.age / 5 * spread(number) / 64,
    };
    // The handshake determines the protocol. Guessing it from the first bytes would wait for them without limit.
    if h2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(shared.limits.streams)
            .max_send_buf_size(shared.limits.send_buffer)
            .max_header_list_size(16 * 1024)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(15));
        drive(builder.serve_connection(io, service), shared, &activity, lease).await;
    } else {
        let mut builder = http1::Builder::new();
        // hyper's own limit on the head counts idle time too; the head is timed by `Activity` instead.
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_headers(64)
            .max_buf_size(64 * 1024);
        drive(builder.serve_connection(io, service), shared, &activity, lease).await;
    }
}

const fn spread(number: u64) -> u32 {
    (number % 64) as u32
}

/// Lifetime of a connection: until its maximum age, or a change of the certificate.
struct Lease {
    serving: Option<watch::Receiver<Identity>>,
    age: Duration,
}

impl Lease {
    fn is_over(&self, activity: &Activity) -> bool {
        activity.age() >= self.age
            || self
                .serving
                .as_ref()
                .is_some_and(|serving| serving.has_changed().unwrap_or(false))
    }
}

/// Runs a connection until it ends, is asked to shut down, or exceeds a timeout.
async fn drive<C: GracefulConnection>(connection: C, shared: &Shared, activity: &Activity, lease: Lease) {
    let limits = &shared.limits;
    let mut connection = pin!(connection);
    let mut ticks =
        interval((limits.head.min(limits.idle).min(limits.drain) / 4).min(Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leaving: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            () = shared.abort.cancelled() => return,
            () = shared.drain.cancelled(), if leaving.is_none() => {
                leaving = Some(Instant::now());
                activity.leaves();
                connection.as_mut().graceful_shutdown();
            }
            () = activity.left(), if leaving.is_none() => {
                leaving = Some(Instant::now());
                activity.leaves();
                connection.as_mut().graceful_shutdown();
            }
            _ = ticks.tick() => {
                if leaving.is_some_and(|since| since.elapsed() >= limits.drain) {
                    return shared.metrics.connection_closed("Drain");
                }
                if let Some(limit) = activity.overstays(limits) {
                    return shared.metrics.connection_closed(limit);
                }
                if leaving.is_none() && lease.is_over(activity) {
                    if activity.is_h2() {
                        leaving = Some(Instant::now());
                        activity.leaves();
                        connection.as_mut().graceful_shutdown();
                    } else {
                        activity.retire();
                    }
                }
            }
        }
    }
}

/// Router with counted requests.
#[derive(Debug, Clone)]
struct Service {
    router: Router,
    activity: Arc<Activity>,
    peer: Peer,
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let in_flight = self.activity.begin();
        request.extensions_mut().insert(self.peer.clone());
        request.extensions_mut().insert(self.activity.leaving());
        let answer = self.router.clone().oneshot(request.map(Body::new));
        Box::pin(async move {
            let mut response = answer.await?;
            if in_flight.is_last() {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            in_flight.answered(response.headers_mut());
            if hyper::body::Body::size_hint(response.body()).exact().is_some() {
                return Ok(response);
            }
            // A stream is in flight until it ends, however rarely it sends data.
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _kept_until_the_end = &in_flight;
                    frame
                }))
            }))
        })
    }
}
