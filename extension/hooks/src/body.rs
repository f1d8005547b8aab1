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

/// Up to here a body is a small one. A usual one has 3 to 15 KB, so it never waits for the large ones of others.
const SMALL: usize = 64 * 1024;

/// What small bodies may take together.
const SMALL_KIB: usize = 8 * 1024;

/// What large bodies may take together, whole. Both make the 32 MiB that requests may take in all.
const LARGE_KIB: usize = 24 * 1024;

/// The memory for bodies, counted from their first byte.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            small: Arc::new(Semaphore::new(SMALL_KIB)),
            large: Arc::new(Semaphore::new(LARGE_KIB)),
        }
    }
}

/// What one body has taken of the budget.
#[derive(Default)]
struct Share<'a> {
    kib: usize,
    large: bool,
    permit: Option<SemaphorePermit<'a>>,
}

impl<'a> Share<'a> {
    /// Waits until the budget has room for a body of `total` bytes so far. One that turns out to be large gives back what it had
    /// as a small one.
    async fn cover(&mut self, total: usize, budget: &'a Budget) -> Result<(), Unread> {
        if total > SMALL && !self.large {
            *self = Self {
                large: true,
                ..Self::default()
            };
        }
        let more = total.div_ceil(1024).saturating_sub(self.kib);
        if more == 0 {
            return Ok(());
        }
        let part = if self.large { &budget.large } else { &budget.small };
        let permits = u32::try_from(more).unwrap_or(u32::MAX);
        let permit = part.acquire_many(permits).await.map_err(|_| Unread::Late)?;
        self.kib += more;
        match &mut self.permit {
            Some(taken) => taken.merge(permit),
            taken => *taken = Some(permit),
        }
        Ok(())
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
    let mut share = Share::default();
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

async fn read<'a>(body: &mut Body, budget: &'a Budget, share: &mut Share<'a>) -> Result<Bytes, Unread> {
    if http_body::Body::size_hint(body).lower() > MAX_BODY as u64 {
        return Err(Unread::TooLarge);
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unread::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        if total > MAX_BODY {
            return Err(Unread::TooLarge);
        }
        share.cover(total, budget).await?;
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
