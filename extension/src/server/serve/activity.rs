//! Activity of a connection, and the timeouts of its peer.
//!
//! The request path only stores numbers; a check reads them about once a second.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http::header::CONNECTION;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Limits;

/// Activity of a connection, written by its requests and reads, and checked about once a second.
#[derive(Debug)]
pub(super) struct Activity {
    h2: bool,
    opened: Instant,
    in_flight: AtomicUsize,
    served: AtomicBool,
    /// Milliseconds after `opened` at which the last request ended.
    idle_since: AtomicU64,
    /// Milliseconds after `opened` at which a request head began; 0 while there is none.
    head_since: AtomicU64,
    /// Close with the next response. An idle HTTP/1.1 connection that is closed from this side races with the peer's next request, and
    /// clients do not retry a POST.
    retiring: AtomicBool,
    /// A response requested the end of an HTTP/2 connection, which has no header for it.
    leave: Notify,
    leaving: Leaving,
}

/// Shutdown request of a connection. Each request has it as an extension: one with a long response can end it cleanly.
#[derive(Clone, Debug, Default)]
pub struct Leaving(CancellationToken);

impl Leaving {
    /// Returns whether the shutdown is requested.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns once the shutdown is requested.
    pub async fn begun(&self) {
        self.0.cancelled().await;
    }
}

impl Activity {
    pub(super) fn new(h2: bool) -> Self {
        Self {
            h2,
            opened: Instant::now(),
            in_flight: AtomicUsize::new(0),
            served: AtomicBool::new(false),
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            retiring: AtomicBool::new(false),
            leave: Notify::new(),
            leaving: Leaving::default(),
        }
    }

    pub(super) const fn is_h2(&self) -> bool {
        self.h2
    }

    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Ends the connection with its next response.
    pub(super) fn retire(&self) {
        self.retiring.store(true, Ordering::Relaxed);
    }

    /// Ends the HTTP/2 connection after the requests in flight.
    fn leave(&self) {
        self.leave.notify_one();
    }

    /// Returns once a response has requested the end of the HTTP/2 connection.
    pub(super) async fn left(&self) {
        self.leave.notified().await;
    }

    /// Returns the shutdown request of the connection, for its requests.
    pub(super) fn leaving(&self) -> Leaving {
        self.leaving.clone()
    }

    /// Requests the shutdown of the connection.
    pub(super) fn leaves(&self) {
        self.leaving.0.cancel();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// HTTP/2 bytes between requests may be pings and acknowledgements; only in HTTP/1.1 they begin a head.
    fn bytes_read(&self) {
        if !self.h2
            && self.in_flight.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == 0
        {
            self.head_since.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    /// Returns the limit that the peer exceeds, if any.
    pub(super) fn overstays(&self, limits: &Limits) -> Option<&'static str> {
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

/// Request in flight; ends when dropped, also when the peer gives up.
pub(super) struct InFlight(Arc<Activity>);

impl InFlight {
    /// Returns whether the connection ends with this response.
    pub(super) fn is_last(&self) -> bool {
        self.0.retiring.load(Ordering::Relaxed)
    }

    /// Ends the connection with a `Connection: close` header. HTTP/1.1 reads the header itself; hyper would remove it in HTTP/2, with a
    /// warning and no effect.
    pub(super) fn answered(&self, headers: &mut HeaderMap) {
        if self.0.h2 && headers.remove(CONNECTION).is_some() {
            self.0.leave();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Stream with recorded reads.
pub(super) struct Watched<T> {
    pub(super) io: T,
    pub(super) activity: Arc<Activity>,
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
