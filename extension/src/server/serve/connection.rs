//! One connection: handshake, protocol by ALPN, and the limits on a peer that takes its time.

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

/// What an HTTP/2 connection may send before any of it is read, in one request or in all. Bodies are read as soon as they come, into memory
/// that is counted, so that a small window costs a busy connection some round trips, and a large one memory when reading falls behind.
const WINDOW: u32 = 128 * 1024;

/// What all connections of a listener share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) router: Router,
    pub(super) limits: Limits,
    /// Peers that do not speak HTTP/2 are sent away.
    pub(super) http2_only: bool,
    pub(super) metrics: Metrics,
    pub(super) refused: Repeats<&'static str>,
    /// Finish what is in flight, then go.
    pub(super) drain: CancellationToken,
    /// Go now.
    pub(super) abort: CancellationToken,
}

impl Shared {
    /// A connection of `peer` is not served. A peer may open as many of these as it likes, so a line is due when it begins.
    pub(super) fn refuse(&self, peer: IpAddr, reason: &'static str, error: impl fmt::Display) {
        if let Some(left_out) = self.refused.begins(peer, reason, std::time::Instant::now()) {
            info!(%peer, reason, %error, left_out, "Refusing a connection");
        } else {
            debug!(%peer, reason, %error, "Refusing a connection");
        }
    }
}

/// Serves one accepted connection to its end; `number` spreads the ages of connections.
pub(super) async fn serve(
    shared: Arc<Shared>,
    tcp: TcpStream,
    serving: Option<watch::Receiver<Identity>>,
    share: Share,
    number: u64,
) {
    // Without it the last bytes of an answer wait for the peer's delayed acknowledgement, 40 ms.
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
    // A peer that offers protocols, and not this one, was refused in the handshake.
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
    // The protocol is known from the handshake. Guessing it from the first bytes would wait for them without limit.
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

/// How long a connection may be kept: until its age, or until another certificate is served.
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

/// Runs a connection until it ends, is asked to go, or takes longer than its peer is allowed.
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

/// The router, with its requests counted.
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
            // A stream is in flight until it ends, however rarely it says something.
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _kept_until_the_end = &in_flight;
                    frame
                }))
            }))
        })
    }
}
