//! Reads request bodies: whole, in time, and within the memory that is set aside for them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// As much as the reference server of the Runtime SDK takes.
pub(crate) const MAX_BODY: usize = 20 * 1024 * 1024;

/// Under the 3 s that are advertised, so that a caller gets an answer instead of a timeout.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// What a request may take without asking. A usual one has 3 to 15 KB, so it never waits for the large ones of others.
const FREE: usize = 64 * 1024;

/// What large requests may take together.
const SHARED_KIB: usize = 128 * 1024;

/// The memory for large bodies.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Semaphore>);

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED_KIB)))
    }
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLarge,
    Late,
    Broken(String),
}

/// Reads a body and hands it to `answer`; its share of the budget is held until then.
pub(crate) async fn with_body<T>(
    body: Body,
    budget: &Budget,
    answer: impl FnOnce(&[u8]) -> T,
) -> Result<T, Unread> {
    let mut body = body;
    let mut share = None;
    let until = Instant::now() + DEADLINE;
    let read = timeout_at(until, read(&mut body, budget, &mut share)).await;
    if matches!(read, Ok(Err(Unread::TooLarge))) {
        // A peer that is still sending hears of a closed connection before it hears the answer.
        drop(share);
        let _ = timeout_at(until, discard(&mut body)).await;
        return Err(Unread::TooLarge);
    }
    let bytes = read.map_err(|_| Unread::Late)??;
    Ok(answer(&bytes))
}

/// Reads what follows, as much again as is taken of a good request.
async fn discard(body: &mut Body) {
    let mut total = 0;
    while let Some(Ok(frame)) = body.frame().await {
        total += frame.data_ref().map_or(0, Bytes::len);
        if total > MAX_BODY {
            return;
        }
    }
}

async fn read<'a>(
    body: &mut Body,
    budget: &'a Budget,
    share: &mut Option<SemaphorePermit<'a>>,
) -> Result<Bytes, Unread> {
    if http_body::Body::size_hint(body).lower() > MAX_BODY as u64 {
        return Err(Unread::TooLarge);
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut total = 0;
    let mut paid = FREE;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unread::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        if total > MAX_BODY {
            return Err(Unread::TooLarge);
        }
        if total > paid {
            let kib = (total - paid).div_ceil(1024);
            paid += kib * 1024;
            let more = budget
                .0
                .acquire_many(u32::try_from(kib).unwrap_or(u32::MAX))
                .await;
            match (share.as_mut(), more.map_err(|_| Unread::Late)?) {
                (Some(share), more) => share.merge(more),
                (None, more) => *share = Some(more),
            }
        }
        // A usual body comes in one piece, and is not copied.
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.reserve(first.len() + data.len());
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}
