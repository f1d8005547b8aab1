//! Reads request bodies: whole, in time, and within the memory that is set aside for them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::Version;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// As much as the reference server of the Runtime SDK takes.
pub(crate) const MAX_BODY: usize = 20 * 1024 * 1024;

/// Under the 3 s that are advertised, so that a caller gets an answer instead of a timeout.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

/// Up to here a body is a small one. A usual one has 3 to 15 KB and hardly one over 100, so it never lacks the memory that large ones of
/// others take.
const SMALL: usize = 128 * 1024;

/// What small bodies may take together. Each request takes 1 KiB of it at least, so that this is how many there are at once, too.
const SMALL_KIB: usize = 16 * 1024;

/// What small bodies of one peer may take together while there is no other: a half, and with it more bodies of 100 KB at once than Cluster API
/// has workers. Where others have taken some it is as much as the peer leaves, so that some is left after any few peers have all they may.
const SMALL_KIB_OF_PEER: usize = SMALL_KIB / 2;

/// What large bodies may take together, whole. Both make the 40 MiB that requests may take in all.
const LARGE_KIB: usize = 24 * 1024;

/// What large bodies of one peer may take together: as much as the largest one.
const LARGE_KIB_OF_PEER: usize = MAX_BODY / 1024;

/// How many bodies of one peer [`in_turn`] reads at once.
const TURNS: usize = 4;

/// How long a body waits for its turn. A caller that has waited for this, and for its body, still has time for an answer.
const TURN: Duration = Duration::from_secs(1);

/// The memory for bodies, counted from the head of their request. All clones are one.
#[derive(Clone, Debug)]
pub struct Budget {
    parts: Parts,
    largest: usize,
    /// Whether a peer leaves as much as its large bodies take. Without that, one takes the largest of 20 MiB.
    is_fair: bool,
}

impl Budget {
    /// So many KiB for bodies up to 128 KiB, and so many for larger ones, of which a peer leaves as much as it takes. A body has `largest`
    /// bytes at most.
    #[must_use]
    pub fn of(small_kib: usize, large_kib: usize, largest: usize) -> Self {
        Self {
            parts: Parts::of(small_kib, large_kib),
            largest,
            is_fair: true,
        }
    }
}

/// That of hooks: 40 MiB.
impl Default for Budget {
    fn default() -> Self {
        Self {
            parts: Parts::of(SMALL_KIB, LARGE_KIB),
            largest: MAX_BODY,
            is_fair: false,
        }
    }
}

/// Who sends requests, and what their bodies may take of the memory for all. A request has it among its extensions; without, it
/// is a peer of its own. All clones are one.
#[derive(Clone, Debug)]
pub struct Peer {
    address: IpAddr,
    bodies: Parts,
    turns: Arc<Semaphore>,
}

impl Peer {
    /// The peer at an address, of which nothing was read yet.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self {
            address,
            bodies: Parts::of(SMALL_KIB_OF_PEER, LARGE_KIB_OF_PEER),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }

    /// What its small, or its large, bodies have taken.
    fn taken_kib(&self, large: bool) -> usize {
        let most = if large {
            LARGE_KIB_OF_PEER
        } else {
            SMALL_KIB_OF_PEER
        };
        most - self.bodies.part(large).available_permits()
    }

    /// Where it is; unspecified if that is not known.
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

    /// Does not wait: bodies that wait for memory, and are not read meanwhile, would keep others of their connection from arriving.
    fn take(&self, large: bool, kib: usize) -> Result<OwnedSemaphorePermit, Unread> {
        let permits = u32::try_from(kib).unwrap_or(u32::MAX);
        let part = Arc::clone(self.part(large));
        part.try_acquire_many_owned(permits).map_err(|_| Unread::Busy)
    }
}

/// Where one body takes its memory from.
#[derive(Clone, Copy)]
struct Budgets<'a> {
    all: &'a Budget,
    peer: &'a Peer,
}

/// What one body has taken of one budget.
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

/// What one body has taken of the memory for all, and of that of its peer. Dropping it gives it back.
#[derive(Debug, Default)]
pub struct Share {
    large: bool,
    of_peer: Taken,
    of_all: Taken,
}

impl Share {
    /// Takes the memory of a body of `total` bytes so far that will have `announced` ones. One that turns out to be large gives back
    /// what it had as a small one.
    ///
    /// The peer's part is taken whole, so that it is refused before much of it has come.
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

    /// Takes the memory as well of what was made of the body, as far as it is more.
    ///
    /// # Errors
    /// There is not so much left.
    pub fn also_cover(&mut self, bytes: usize, all: &Budget, peer: &Peer) -> Result<(), Unread> {
        self.cover(bytes, bytes, Budgets { all, peer })
    }
}

/// Why a body was not read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    /// It has more bytes than are read.
    TooLarge,
    /// It did not arrive in time.
    Late,
    /// Other bodies have all the memory.
    Busy,
    /// The connection failed.
    Broken(String),
}

/// Reads a body and hands it to `answer`; its share of the budget is held until then.
///
/// In HTTP/1.1 a peer that is still sending hears of a closed connection before it hears an answer, so that what follows of a refused body
/// is read first. In HTTP/2 a refusal ends its stream only.
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

/// The same for callers that may be anybody: four bodies of a peer are read, and handed to `parse`, at once, and others of it wait for a
/// second at most. What `parse` has made of the body takes memory until it is answered, so that the share of the budget is returned.
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

/// `unread`, once what follows of the body was read where that has to be, so many bytes at most.
async fn refused(mut body: Body, version: Version, most: usize, unread: Unread, until: Instant) -> Unread {
    if version < Version::HTTP_2 {
        let _ = timeout_at(until, discard(&mut body, most)).await;
    }
    unread
}

/// Reads what follows, as much again as is taken of a good request.
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

    /// A body of so many bytes in one piece: with its length, or one that never ends.
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
