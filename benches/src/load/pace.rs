//! When calls are due.
//!
//! Calls are numbered, and each number has its time. A stream that is free takes the next number, waits until it is due, and makes the
//! call; if it is late, the time counts all the same. So an extension that stalls is not asked less, and nothing is queued.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;

/// The times of all calls of a run.
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
    /// Between two calls; absent where a call is due as soon as a stream is free.
    every: Option<f64>,
    end: Instant,
    most: u64,
    next: AtomicU64,
}

/// One call that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// When, from which its latency counts.
    pub(super) at: Instant,
}

impl Pace {
    /// `rate` calls a second, or as many as are answered, from `start` for so long, `most` at most.
    pub(super) fn new(start: Instant, rate: Option<f64>, lasts: Duration, most: u64) -> Self {
        Self {
            start,
            every: rate.map(|rate| 1.0 / rate),
            end: start + lasts,
            most,
            next: AtomicU64::new(0),
        }
    }

    /// The next call, once it is due; none at the end.
    pub(super) async fn next(&self, clock: &Clock) -> Result<Option<Due>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(at) = self.due(number) else {
            return Ok(None);
        };
        clock.until(at).await?;
        // Without a rate, a call is due when a stream is free for it.
        let at = if self.every.is_some() {
            at
        } else {
            Instant::now().max(at)
        };
        Ok((at < self.end).then_some(Due { number, at }))
    }

    /// The calls that are due and that no stream has taken.
    pub(super) fn left(&self) -> impl Iterator<Item = Instant> {
        let first = self.next.load(Ordering::Relaxed);
        let is_paced = self.every.is_some();
        (first..).map_while(move |number| self.due(number).filter(|_| is_paced))
    }

    fn due(&self, number: u64) -> Option<Instant> {
        if number >= self.most {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a run has far fewer calls than 2^52")]
        let after = self.every.map_or(0.0, |every| every * number as f64);
        let at = self.start + Duration::from_secs_f64(after);
        (at < self.end).then_some(at)
    }
}

/// Wakes at a time within tens of microseconds. The timer of tokio has whole milliseconds, which is more than an answer takes.
#[derive(Debug)]
pub(super) struct Clock {
    timer: TimerFd,
    readable: AsyncFd<OwnedFd>,
}

impl Clock {
    pub(super) fn new() -> Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context("make a timer")?;
        let twin = timer.as_fd().try_clone_to_owned().context("make a timer")?;
        #[expect(
            deprecated,
            reason = "it is unsound for descriptors that others may close; its successor is unsafe to call"
        )]
        let readable = AsyncFd::new(twin).context("watch a timer")?;
        Ok(Self { timer, readable })
    }

    async fn until(&self, at: Instant) -> Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let once = Expiration::OneShot(TimeSpec::from_duration(left));
        self.timer
            .set(once, TimerSetTimeFlags::empty())
            .context("set a timer")?;
        loop {
            let mut ready = self.readable.readable().await.context("wait for a timer")?;
            let read = ready.try_io(|fd| {
                let mut expirations = [0; 8];
                nix::unistd::read(fd, &mut expirations).map_err(Into::into)
            });
            match read {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error).context("read a timer"),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_have_their_times_whoever_is_late() {
        // It began a moment ago: the first two calls are late.
        let start = Instant::now().checked_sub(Duration::from_millis(5)).unwrap();
        let pace = Pace::new(start, Some(1_000.0), Duration::from_millis(20), 1_000);
        let clock = Clock::new().unwrap();
        let first = pace.next(&clock).await.unwrap().unwrap();
        assert_eq!((first.number, first.at), (0, start));
        let second = pace.next(&clock).await.unwrap().unwrap();
        assert_eq!(
            second.at,
            start + Duration::from_millis(1),
            "its time is not moved"
        );
        let ahead = pace.next.fetch_add(12, Ordering::Relaxed);
        assert_eq!(ahead, 2);
        let late = pace.next(&clock).await.unwrap().unwrap();
        assert_eq!(late.number, 14);
        assert!(
            Instant::now() >= start + Duration::from_millis(14),
            "it is waited for"
        );
        assert_eq!(pace.left().count(), 5, "15 to 19");
        pace.next.store(20, Ordering::Relaxed);
        assert!(pace.next(&clock).await.unwrap().is_none(), "the end");
    }

    #[tokio::test]
    async fn a_run_has_no_more_calls_than_it_may() {
        let pace = Pace::new(Instant::now(), None, Duration::from_mins(1), 2);
        let clock = Clock::new().unwrap();
        assert!(pace.next(&clock).await.unwrap().is_some());
        assert!(pace.next(&clock).await.unwrap().is_some());
        assert!(pace.next(&clock).await.unwrap().is_none());
        assert_eq!(pace.left().count(), 0);
    }
}
