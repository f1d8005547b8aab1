//! Reads request bodies: whole, before a deadline, and within a memory budget.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::Version;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// Size limit of a body; that of the reference server of the Runtime SDK.
pub(crate) const MAX_BODY: usize = 20 * 1024 * 1024;

/// Deadline of a request, below the advertised 3 s, so that a caller gets a response instead of a timeout.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// Size limit of a small body. A usual body has 3 to 15 KB and rarely over 100. Small bodies have their own budget, so large bodies of
/// other peers cannot use it up.
const SMALL: usize = 128 * 1024;

/// Budget of all small bodies. Each request takes at least 1 KiB of it, so it also limits the number of requests whose body arrives.
const SMALL_KIB: usize = 16 * 1024;

/// Budget of the small bodies of one peer without other peers: a half, enough for more concurrent bodies of 100 KB than Cluster API has
/// workers. With other peers it is as much as the peer leaves, so a few peers cannot use up the whole budget.
const SMALL_KIB_OF_PEER: usize = SMALL_KIB / 2;

/// Budget of all large bodies. Both budgets together are the 40 MiB for all requests.
const LARGE_KIB: usize = 24 * 1024;

/// Budget of the large bodies of one peer: the size of the largest body.
const LARGE_KIB_OF_PEER: usize = MAX_BODY / 1024;

/// Number of bodies of one peer that [`in_turn`] reads concurrently.
const TURNS: usize = 4;

/// Time that a body waits for its turn. After it, and after the body, there is still time for a response.
const TURN: Duration = Duration::from_secs(1);

/// Memory budget for bodies, counted from the head of their request. Clones share the budget.
#[derive(Clone, Debug)]
pub struct Budget {
    parts: Parts,
    largest: usize,
    /// Whether a peer leaves as much as its large bodies take. Otherwise one peer may take the largest body of 20 MiB.
    is_fair: bool,
}

impl Budget {
    /// Creates a budget in KiB for bodies up to 128 KiB, and for larger ones, of which a peer leaves as much as it takes. `largest` is the
    /// size limit of a body in bytes.
    #[must_use]
    pub fn of(small_kib: usize, large_kib: usize, largest: usize) -> Self {
        Self {
            parts: Parts::of(small_kib, large_kib),
            largest,
            is_fair: true,
        }
    }
}

/// The budget for hooks: 40 MiB.
impl Default for Budget {
    fn default() -> Self {
        Self {
            parts: Parts::of(SMALL_KIB, LARGE_KIB),
            largest: MAX_BODY,
            is_fair: false,
        }
    }
}

/// Sender of requests, and the share of its bodies in the budget. The peer is an extension of a request; a request without it
/// counts as a separate peer. Clones share the state.
#[derive(Clone, Debug)]
pub struct Peer {
    address: IpAddr,
    bodies: Parts,
    turns: Arc<Semaphore>,
}

impl Peer {
    /// Creates the peer at an address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self {
            address,
            bodies: Parts::of(SMALL_KIB_OF_PEER, LARGE_KIB_OF_PEER),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }

    /// Returns the memory of its small or its large bodies.
    fn taken_kib(&self, large: bool) -> usize {
        let most = if large {
            LARGE_KIB_OF_PEER
        } else {
            SMALL_KIB_OF_PEER
        };
        most - self.bodies.part(large).available_permits()
    }

    /// Returns its address; unspecified if unknown.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }
}

impl Default for Peer {
    fn default() -> Self {
        Self::at(Ipv4Addr::UNSPECIFIED.into())
    }
}

/// Memory in KiB.
#[derive(Clone, Debug)]
struct Parts {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Parts {
    fn of(small: usize, large: usize) -> Self {
        Self {
            small: Arc::new(Semaphore::new(small)),
            large: Arc::new(Semaphore::new(large)),
        }
    }

    const fn part(&self, large: bool) -> &Arc<Semaphore> {
        if large { &self.large } else { &self.small }
    }

    /// Does not wait: unread bodies that wait for memory would block other bodies of their connection.
    fn take(&self, large: bool, kib: usize) -> Result<OwnedSemaphorePermit, Unread> {
        let permits = u32::try_from(kib).unwrap_or(u32::MAX);
        let part = Arc::clone(self.part(large));
        part.try_acquire_many_owned(permits).map_err(|_| Unread::Busy)
    }
}

/// Budgets of one body.
#[derive(Clone, Copy)]
struct Budgets<'a> {
    all: &'a Budget,
    peer: &'a Peer,
}

/// Share of one body in one budget.
#[derive(Debug, Default)]
struct Taken {
    kib: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Taken {
    fn reach(&mut self, bytes: usize, of: &Parts, large: bool) -> Result<(), Unread> {
        let more = bytes.div_ceil(1024).saturating_sub(self.kib);
        if more == 0 {
            return Ok(());
        }
        let permit = of.take(large, more)?;
        self.kib += more;
        match &mut self.permit {
            Some(taken) => taken.merge(permit),
            taken => *taken = Some(permit),
        }
        Ok(())
    }
}

/// Share of one body in the common budget and in that of its peer. Dropping the share releases the memory.
#[derive(Debug, Default)]
pub struct Share {
    large: bool,
    of_peer: Taken,
    of_all: Taken,
}

impl Share {
    /// Takes the memory of a body with `total` bytes so far and `announced` bytes in all. A body that turns out to be large releases
    /// its share as a small one.
    ///
    /// Takes the peer's part at once, so that an excess is refused early.
    fn cover(&mut self, total: usize, announced: usize, budgets: Budgets<'_>) -> Result<(), Unread> {
        let whole = total.max(announced);
        if whole > SMALL && !self.large {
            *self = Self {
                large: true,
                ..Self::default()
            };
        }
        // One KiB stands for the request itself.
        self.of_peer
            .reach(whole.max(1), &budgets.peer.bodies, self.large)?;
        let Budget { parts, is_fair, .. } = budgets.all;
        // A small body is next to nothing of what is left, a large one is not.
        let own = if self.large { whole.div_ceil(1024) } else { 0 };
        let left = parts.part(self.large).available_permits() + self.of_all.kib;
        if (*is_fair || !self.large) && budgets.peer.taken_kib(self.large) + own > left {
            return Err(Unread::Busy);
        }
        self.of_all.reach(total.max(1), parts, self.large)
    }

    /// Also takes the memory of the parsed body, if it exceeds that of the body.
    ///
    /// # Errors
    /// The budget is exceeded.
    pub fn also_cover(&mut self, bytes: usize, all: &Budget, peer: &Peer) -> Result<(), Unread> {
        self.cover(bytes, bytes, Budgets { all, peer })
    }
}

/// Reason why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    /// The body exceeds the size limit.
    TooLarge,
    /// The body did not arrive before the deadline.
    Late,
    /// Other bodies have used up the memory budget.
    Busy,
    /// The connection failed.
    Broken(String),
}

/// Reads a body and passes it to `answer`; holds its share of the budget until then.
///
/// In HTTP/1.1 a peer that is still sending sees the closed connection before the response, so the rest of a refused body is read first.
/// In HTTP/2 a refusal ends its stream only.
///
/// # Errors
/// The body was not read.
pub async fn with_body<T>(
    body: Body,
    version: Version,
    all: &Budget,
    peer: &Peer,
    answer: impl FnOnce(&[u8]) -> T,
) -> Result<T, Unread> {
    let (bytes, _share) = whole(body, version, Budgets { all, peer }).await?;
    Ok(answer(&bytes))
}

/// Like [`with_body`], for untrusted callers: reads and parses four bodies of a peer concurrently; its other bodies wait for a second at
/// most. Returns the share of the budget too, because the result of `parse` takes memory until the response.
///
/// # Errors
/// The body was not read.
pub async fn in_turn<T>(
    body: Body,
    version: Version,
    all: &Budget,
    peer: &Peer,
    parse: impl FnOnce(&[u8]) -> T,
) -> Result<(T, Share), Unread> {
    let Ok(Ok(_turn)) = timeout(TURN, peer.turns.acquire()).await else {
        let until = Instant::now() + DEADLINE;
        return Err(refused(body, version, all.largest, Unread::Busy, until).await);
    };
    let (bytes, share) = whole(body, version, Budgets { all, peer }).await?;
    Ok((parse(&bytes), share))
}

async fn whole(mut body: Body, version: Version, budgets: Budgets<'_>) -> Result<(Bytes, Share), Unread> {
    let mut share = Share::default();
    let until = Instant::now() + DEADLINE;
    match timeout_at(until, read(&mut body, budgets, &mut share)).await {
        Ok(Ok(bytes)) => Ok((bytes, share)),
        Ok(Err(unread @ (Unread::TooLarge | Unread::Busy))) => {
            drop(share);
            Err(refused(body, version, budgets.all.largest, unread, until).await)
        }
        Ok(Err(unread)) => Err(unread),
        Err(_) => Err(Unread::Late),
    }
}

/// Returns `unread`, after it has read the rest of the body if necessary, up to a limit in bytes.
async fn refused(mut body: Body, version: Version, most: usize, unread: Unread, until: Instant) -> Unread {
    if version < Version::HTTP_2 {
        let _ = timeout_at(until, discard(&mut body, most)).await;
    }
    unread
}

/// Discards the rest of a body, up to a limit in bytes.
async fn discard(body: &mut Body, most: usize) {
    let mut total = 0;
    while let Some(Ok(frame)) = body.frame().await {
        total += frame.data_ref().map_or(0, Bytes::len);
        if total > most {
            return;
        }
    }
}

async fn read(body: &mut Body, budgets: Budgets<'_>, share: &mut Share) -> Result<Bytes, Unread> {
    let announced = http_body::Body::size_hint(body).lower();
    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
    let largest = budgets.all.largest;
    if announced > largest {
        return Err(Unread::TooLarge);
    }
    share.cover(0, announced, budgets)?;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unread::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        if total > largest {
            return Err(Unread::TooLarge);
        }
        share.cover(total, announced, budgets)?;
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream::{self, StreamExt as _};
    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::*;

    /// A body of this many bytes in one piece: with its length, or one that never ends.
    fn body(bytes: usize, ends: bool) -> Body {
        let piece = Bytes::from(vec![0; bytes]);
        if ends {
            return Body::from(piece);
        }
        let piece = stream::iter([Ok::<_, Infallible>(piece)]);
        Body::from_stream(piece.chain(stream::pending()))
    }

    async fn length(body: Body, all: &Budget) -> Result<usize, Unread> {
        with_body(body, Version::HTTP_11, all, &Peer::default(), <[u8]>::len).await
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_many_peers_share_the_memory_of_all() {
        for (large, bytes, fit) in [(true, 8 << 20, 3), (false, 64 << 10, 256)] {
            let all = Budget::default();
            let mut unfinished = JoinSet::new();
            for _ in 0..fit {
                let all = all.clone();
                unfinished.spawn(async move { length(body(bytes, false), &all).await });
            }
            sleep(DEADLINE / 2).await;
            let began = Instant::now();
            let other = if large { 64 << 10 } else { 8 << 20 };
            assert_eq!(
                length(body(other, true), &all).await,
                Ok(other),
                "bodies of the other size have their own"
            );
            assert_eq!(length(body(bytes, true), &all).await, Err(Unread::Busy));
            assert_eq!(began.elapsed(), Duration::ZERO, "nothing is waited for");
            assert_eq!(length(body(bytes, false), &all).await, Err(Unread::Busy));
            assert_eq!(
                began.elapsed(),
                DEADLINE,
                "what follows is read first, for as long as a body may take"
            );
            while let Some(given_up) = unfinished.join_next().await {
                assert_eq!(given_up.unwrap(), Err(Unread::Late));
            }
            assert_eq!(
                length(body(bytes, true), &all).await,
                Ok(bytes),
                "the memory was given back"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_follows_a_body_that_is_too_large_has_a_deadline() {
        let began = Instant::now();
        let all = Budget::default();
        let read = timeout_at(began + DEADLINE * 2, length(body(MAX_BODY + 1, false), &all)).await;
        assert_eq!(read, Ok(Err(Unread::TooLarge)));
        assert_eq!(began.elapsed(), DEADLINE);
    }
}
