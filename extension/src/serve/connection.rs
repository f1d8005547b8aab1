//! One connection: handshake, protocol by ALPN, and the limits on a peer that takes its time.

use std::future::Future;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::debug;

use super::certificate::Identity;
use super::metrics::Metrics;
use super::{Limits, tls};

/// What all connections of a listener share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) metrics: Metrics,
    /// Finish what is in flight, then go.
    pub(super) drain: CancellationToken,
    /// Go now.
    pub(super) abort: CancellationToken,
}

/// Serves one accepted connection to its end. `number` spreads the ages of connections.
pub(super) async fn serve(
    shared: Arc<Shared>,
    tcp: TcpStream,
    serving: Option<watch::Receiver<Identity>>,
    number: u64,
) {
    // Without it the last bytes of an answer wait for the peer's delayed acknowledgement, 40 ms.
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Some(mut serving) = serving else {
        return http(&shared, tcp, false, None, number).await;
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&serving.borrow_and_update().server));
    let handshake = timeout(shared.limits.handshake, acceptor.accept(tcp));
    let tls = tokio::select! {
        () = shared.drain.cancelled() => return,
        result = handshake => match result {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => {
                debug!(%error, "Refusing a TLS handshake");
                return shared.metrics.handshake_failed("Refused");
            }
            Err(_) => return shared.metrics.handshake_failed("Timeout"),
        },
    };
    let h2 = tls.get_ref().1.alpn_protocol() == Some(tls::H2);
    http(&shared, tls, h2, Some(serving), number).await;
}

async fn http<T>(shared: &Shared, io: T, h2: bool, serving: Option<watch::Receiver<Identity>>, number: u64)
where
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
            .max_header_list_size(16 * 1024)
            .initial_stream_window_size(256 * 1024)
            .initial_connection_window_size(1024 * 1024)
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
        activity.opened.elapsed() >= self.age
            || self
                .serving
                .as_ref()
                .is_some_and(|serving| serving.has_changed().unwrap_or(false))
    }
}

/// Runs a connection until it ends, is told to go, or takes longer than its peer is allowed.
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
                    if activity.h2 {
                        leaving = Some(Instant::now());
                        connection.as_mut().graceful_shutdown();
                    } else {
                        activity.retiring.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

/// What a connection is doing, written by its requests and its reads, looked at every second or so.
#[derive(Debug)]
struct Activity {
    h2: bool,
    opened: Instant,
    in_flight: AtomicUsize,
    served: AtomicBool,
    /// Milliseconds after `opened` at which the last request ended.
    idle_since: AtomicU64,
    /// Milliseconds after `opened` at which a request head began; 0 while there is none.
    head_since: AtomicU64,
    /// Close with the next answer. An idle HTTP/1.1 connection that is closed from this side races with the peer's next
    /// request, and a POST is not sent again.
    retiring: AtomicBool,
}

impl Activity {
    fn new(h2: bool) -> Self {
        Self {
            h2,
            opened: Instant::now(),
            in_flight: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            retiring: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Bytes of HTTP/2 between requests may be pings and acknowledgements; only in HTTP/1.1 they begin a head.
    fn bytes_read(&self) {
        if !self.h2
            && self.in_flight.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == 0
        {
            self.head_since.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// The limit that the peer is over, if any.
    fn overstays(&self, limits: &Limits) -> Option<&'static str> {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let now = self.now();
        let over = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) >= limit.as_millis();
        let head = self.head_since.load(Ordering::Relaxed);
        if head > 0 && over(head, limits.head) {
            Some("Head")
        } else if !self.served.load(Ordering::Relaxed) && over(0, limits.head) {
            Some("Silent")
        } else if over(self.idle_since.load(Ordering::Relaxed), limits.idle) {
            Some("Idle")
        } else {
            None
        }
    }
}

/// One request being answered; ends when dropped, also when the peer gives up.
struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The router, with its requests counted.
#[derive(Debug, Clone)]
struct Service {
    router: Router,
    activity: Arc<Activity>,
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let in_flight = self.activity.begin();
        let answer = self.router.clone().oneshot(request.map(Body::new));
        Box::pin(async move {
            let mut response = answer.await?;
            let activity = &in_flight.0;
            if !activity.h2 && activity.retiring.load(Ordering::Relaxed) {
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

/// A stream whose reads are noted.
struct Watched<T> {
    io: T,
    activity: Arc<Activity>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.io).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_read();
        }
        poll
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
