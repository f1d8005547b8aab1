//! Responses that stay in memory until their peer reads them.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::{Buf as _, Bytes};
use futures::stream;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::lock::lock;

/// Bytes of a response that a connection takes at once. It may hold them until it ends.
pub(crate) const PIECE: usize = 16 * 1024;

/// The peer has not read a response in time.
#[derive(Debug, thiserror::Error)]
#[error("the response was not read within {0:?}")]
struct NotRead(Duration);

/// Rest of a response.
struct Rest<K> {
    data: Bytes,
    trailers: Option<HeaderMap>,
    _kept: K,
}

/// Response until it is read or given up.
struct Unread<K> {
    rest: Arc<Mutex<Option<Rest<K>>>>,
    within: Duration,
    _gives_up: AbortOnDropHandle<()>,
}

/// Returns `answer`, which is complete at once, and holds `kept` while it is in memory: until it is read, at most for `within`.
///
/// A connection does not poll a response while its peer grants no bytes, so nothing would notice a deadline inside the response. Pieces are
/// copied, because a part of a buffer keeps all of it in memory.
pub(crate) async fn read_within<K: Send + 'static>(answer: Response, within: Duration, kept: K) -> Response {
    let (head, body) = answer.into_parts();
    let body = match body.collect().await {
        Ok(whole) => {
            let trailers = whole.trailers().cloned();
            let rest = Rest {
                data: whole.to_bytes(),
                trailers,
                _kept: kept,
            };
            Body::new(Unread::new(rest, within))
        }
        Err(error) => Body::from_stream(stream::iter([Err::<Bytes, _>(error)])),
    };
    Response::from_parts(head, body)
}

impl<K: Send + 'static> Unread<K> {
    fn new(rest: Rest<K>, within: Duration) -> Self {
        let rest = Arc::new(Mutex::new(Some(rest)));
        let late = Arc::clone(&rest);
        let gives_up = tokio::spawn(async move {
            sleep(within).await;
            drop(lock(&late).take());
        });
        Self {
            rest,
            within,
            _gives_up: AbortOnDropHandle::new(gives_up),
        }
    }
}

impl<K> Drop for Unread<K> {
    fn drop(&mut self) {
        // The task of the timeout ends some time later.
        drop(lock(&self.rest).take());
    }
}

impl<K> hyper::body::Body for Unread<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut rest = lock(&self.rest);
        let Some(Rest { data, trailers, .. }) = &mut *rest else {
            return Poll::Ready(Some(Err(axum::Error::new(NotRead(self.within)))));
        };
        if data.is_empty() {
            return Poll::Ready(trailers.take().map(Frame::trailers).map(Ok));
        }
        let piece = Bytes::copy_from_slice(&data[..data.len().min(PIECE)]);
        data.advance(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        let rest = lock(&self.rest);
        rest.as_ref()
            .is_some_and(|rest| rest.data.is_empty() && rest.trailers.is_none())
    }

    fn size_hint(&self) -> SizeHint {
        match &*lock(&self.rest) {
            Some(Rest {
                data, trailers: None, ..
            }) => SizeHint::with_exact(data.len() as u64),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Request;
    use http_body_util::Empty;
    use hyper::{client, server, service::service_fn};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::duplex;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    /// Returns a response of 1 MiB with its end as the server sees it.
    async fn answer(kept: Arc<()>) -> Response {
        let whole = Response::new(Body::from(vec![b'x'; 1 << 20]));
        read_within(whole, WITHIN, kept).await
    }

    /// Opens an HTTP/2 connection whose peer grants this many bytes of each response, and sends a request.
    async fn asked(window: u32, kept: &Arc<()>) -> Response<hyper::body::Incoming> {
        let (here, there) = duplex(64 * 1024);
        let kept = Arc::clone(kept);
        let service = service_fn(move |_| {
            let kept = Arc::clone(&kept);
            async move { Ok::<_, Infallible>(answer(kept).await) }
        });
        let server = server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(server.serve_connection(TokioIo::new(there), service));
        let mut builder = client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        let (mut sender, connection) = builder.handshake(TokioIo::new(here)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("https://localhost/").body(Empty::<Bytes>::new());
        sender.send_request(request.unwrap()).await.unwrap()
    }

    /// The connection never polls such a response again.
    #[tokio::test(start_paused = true)]
    async fn an_answer_of_which_a_peer_takes_nothing_is_given_up() {
        for window in [0, 1] {
            let kept = Arc::new(());
            let _unread = asked(window, &kept).await;
            let began = Arc::strong_count(&kept);
            sleep(Duration::from_secs(9)).await;
            assert_eq!(Arc::strong_count(&kept), began, "it may still be read");
            sleep(Duration::from_secs(2)).await;
            assert_eq!(Arc::strong_count(&kept), began - 1, "with a window of {window}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_is_whole_and_not_kept() {
        let kept = Arc::new(());
        let read = asked(64 * 1024, &kept).await;
        let whole = read.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(whole.len(), 1 << 20);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
