//! Streams that make calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::arguments::Protocol;
use super::calls::{Call, Calls};
use super::outcome::{self, Answered, Kind, Unanswered};
use super::pace::{Clock, Due, Pace};
use super::tally::Tally;
use super::target::Target;
use super::wire::{Connection, Lost};

/// How often a call is sent that the extension does not begin to handle, because its connection ends or has too many others.
const TRIES: u32 = 6;

/// What all threads share.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) target: Target,
    pub(super) pace: Pace,
    pub(super) calls: Calls,
    pub(super) protocol: Protocol,
    pub(super) streams: u64,
    pub(super) timeout: Duration,
    pub(super) seen: Seen,
}

/// The progress.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) answered: AtomicU64,
    pub(super) errors: AtomicU64,
    last: Mutex<Option<Instant>>,
}

impl Seen {
    /// When the last answer came that counts.
    pub(super) fn last(&self) -> Option<Instant> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread with so many connections, until all calls are made. Returns what it has counted.
pub(super) fn lane(run: &Arc<Run>, connections: u64) -> Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let tally = Arc::new(Mutex::new(Tally::new()?));
        let clock = Arc::new(Clock::new()?);
        let mut streams = JoinSet::new();
        for _ in 0..connections {
            let line = Arc::<Line>::default();
            let at_once = if run.protocol == Protocol::H2 {
                run.streams
            } else {
                1
            };
            for _ in 0..at_once {
                let stream = Stream {
                    run: Arc::clone(run),
                    line: Arc::clone(&line),
                    clock: Arc::clone(&clock),
                    tally: Arc::clone(&tally),
                };
                streams.spawn(stream.work());
            }
        }
        while let Some(ended) = streams.join_next().await {
            ended??;
        }
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::replace(&mut *tally, Tally::new()?))
    })
}

/// A call that was due and never made.
pub(super) fn unsent() -> Unanswered {
    Unanswered::new(Kind::Unsent, "all streams waited for answers")
}

/// A place for one connection, made again when it has ended.
#[derive(Debug, Default)]
struct Line(AsyncMutex<Option<Connection>>);

/// Makes one call after the other.
struct Stream {
    run: Arc<Run>,
    line: Arc<Line>,
    clock: Arc<Clock>,
    tally: Arc<Mutex<Tally>>,
}

impl Stream {
    async fn work(self) -> Result<()> {
        let run = Arc::clone(&self.run);
        let mut last = None;
        while let Some(Due { number, at }) = run.pace.next(&self.clock).await? {
            // Cluster API would have given it up by now.
            if Instant::now() >= run.pace.ends + run.timeout {
                self.count(at, Err(unsent()));
                break;
            }
            let call = run.calls.nth(number);
            let is_answered = match timeout(run.timeout, self.call(call)).await {
                Ok(Ok(body)) => self.count(at, outcome::read(call.hook, &body)),
                Ok(Err(why)) => self.count(at, Err(why)),
                Err(_) => self.count(at, Err(self.hung().await)),
            };
            if is_answered {
                last = Some(Instant::now());
            }
        }
        let mut seen = run.seen.last.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = (*seen).max(last);
        Ok(())
    }

    /// Counts a call, and says whether it was answered.
    fn count(&self, due: Instant, outcome: Result<Answered<'_>, Unanswered>) -> bool {
        let is_answered = outcome.is_ok();
        let Seen { answered, errors, .. } = &self.run.seen;
        let seen = if is_answered { answered } else { errors };
        seen.fetch_add(1, Ordering::Relaxed);
        if due >= self.run.pace.counts_from {
            self.tally().count(outcome, due.elapsed(), 1);
        }
        is_answered
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of HTTP/1.1 whose call was given up cannot be used again.
    async fn hung(&self) -> Unanswered {
        let mut line = self.line.0.lock().await;
        if line.as_ref().is_some_and(|connection| !connection.is_h2()) {
            *line = None;
        }
        Unanswered::new(
            Kind::Timeout,
            format_args!("no answer within {:?}", self.run.timeout),
        )
    }

    /// Makes one call. One that the extension has not begun to handle is sent again on another connection, as Go does it.
    async fn call(&self, call: &Call) -> Result<Bytes, Unanswered> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.ask(call.request()).await {
                Ok(body) => return Ok(body),
                Err(Lost {
                    is_unhandled: true, ..
                }) if tries < TRIES => {}
                Err(lost) => return Err(lost.why),
            }
        }
    }

    async fn ask(&self, request: http::Request<http_body_util::Full<Bytes>>) -> Result<Bytes, Lost> {
        if self.run.protocol == Protocol::Handshake {
            return self.open().await?.ask(request).await;
        }
        let mut line = self.line.0.lock().await;
        let connection = match &mut *line {
            Some(connection) if !connection.is_closed() => connection,
            ended => ended.insert(self.open().await?),
        };
        match connection.shared() {
            // Others may use it at the same time.
            Some(mut shared) => {
                drop(line);
                shared.ask(request).await
            }
            None => connection.ask(request).await,
        }
    }

    async fn open(&self) -> Result<Connection, Lost> {
        let connection = Connection::open(&self.run.target).await;
        let connection = connection.map_err(Lost::at_once)?;
        self.tally().opened += 1;
        Ok(connection)
    }
}
