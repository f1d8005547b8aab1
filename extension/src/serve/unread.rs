//! Answers that are in memory until they are read.

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

/// Bytes of an answer that a connection takes at once. It may keep them until it ends.
pub(crate) const PIECE: usize = 16 * 1024;

/// The peer has not read an answer in time.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read within {0:?}")]
struct NotRead(Duration);

/// What is left of an answer.
struct Rest<K> {
    data: Bytes,
    trailers: Option<HeaderMap>,
    _kept: K,
}

/// An answer until it is read or given up.
struct Unread<K> {
    rest: Arc<Mutex<Option<Rest<K>>>>,
    within: Duration,
    _gives_up: AbortOnDropHandle<()>,
}

/// `answer`, which is whole at once, and `kept` for as long as it is in memory: until it is read, or else for this time.
///
/// A peer that grants no bytes keeps a connection from looking at an answer, so that a deadline of the answer itself would be noticed by
/// nothing. What a connection has of it is copied, because a part of a buffer keeps all of it.
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
        // The task that gives it up ends some time later.
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
