//! When calls are due.
//!
//! Calls are numbered, and each number has its time. The first stream that is free takes the next number, waits until it is due, and makes the
//! call; one that is made late, because all streams waited for answers, has the time at which it was due all the same, and so has one that
//! was never made. Nothing is queued.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

/// The times of all calls of a run.
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
    /// Calls before are the warm-up.
    pub(super) counts_from: Instant,
    /// The last call is due before.
    pub(super) ends: Instant,
    /// Calls that count, at most.
    most: u64,
    /// Seconds between two calls; absent where a call is due as soon as a stream is free.
    every: Option<f64>,
    next: AtomicU64,
    /// Calls after the warm-up, where they have no times.
    counted: AtomicU64,
}

/// One call that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    /// When, from which its latency counts.
    pub(super) at: Instant,
}

impl Pace {
    /// `rate` calls a second, or as many as are answered, from `start` for a warm-up and then for so long, or until `most` count.
    pub(super) fn new(
        start: Instant,
        rate: Option<f64>,
        warmup: Duration,
        lasts: Duration,
        most: u64,
    ) -> Self {
        Self {
            start,
            counts_from: start + warmup,
            ends: start + warmup + lasts,
            most,
            every: rate.map(|rate| 1.0 / rate),
            next: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        }
    }

    /// The next call, once it is due; none at the end. Streams that share a clock wait for their turn.
    pub(super) async fn next(&self, clock: &Clock) -> Result<Option<Due>> {
        let Some(every) = self.every else {
            return Ok(self.next_unpaced(Instant::now()));
        };
        let mut clock = clock.0.lock().await;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.end_of(every) {
            return Ok(None);
        }
        let at = self.due(every, number);
        clock.until(at).await?;
        Ok(Some(Due { number, at }))
    }

    fn next_unpaced(&self, now: Instant) -> Option<Due> {
        let counts = now >= self.counts_from;
        let is_over =
            now >= self.ends || (counts && self.counted.fetch_add(1, Ordering::Relaxed) >= self.most);
        (!is_over).then(|| Due {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            at: now,
        })
    }

    /// The calls that count, were due, and were taken by no stream: when, and how many. Of very many some are taken together.
    pub(super) fn unsent(&self) -> impl Iterator<Item = (Instant, u64)> {
        const GROUPS: u64 = 10_000;
        let every = self.every.unwrap_or(f64::MAX);
        let (first, end) = match self.every {
            Some(every) => (
                self.next.load(Ordering::Relaxed).max(self.warmup(every)),
                self.end_of(every),
            ),
            None => (0, 0),
        };
        let step = (end.saturating_sub(first) / GROUPS).max(1);
        (first..end)
            .step_by(usize::try_from(step).unwrap_or(usize::MAX))
            .map(move |number| {
                let calls = step.min(end - number);
                (self.due(every, number + calls / 2), calls)
            })
    }

    /// Whether it was the number of calls that ended the run.
    pub(super) const fn is_counted_out(&self, calls: u64) -> bool {
        calls >= self.most
    }

    #[expect(clippy::cast_precision_loss, reason = "a run has far fewer calls than 2^52")]
    fn due(&self, every: f64, number: u64) -> Instant {
        self.start + Duration::from_secs_f64(every * number as f64)
    }

    /// The first number that is no call of the run.
    fn end_of(&self, every: f64) -> u64 {
        let all = numbers(self.ends - self.start, every);
        all.min(self.warmup(every).saturating_add(self.most))
    }

    /// The first number that counts.
    fn warmup(&self, every: f64) -> u64 {
        numbers(self.counts_from - self.start, every)
    }
}

/// How many calls are due before the end of a time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a run has far fewer calls than 2^52"
)]
fn numbers(time: Duration, every: f64) -> u64 {
    // What rounding adds to a whole number is no call.
    (time.as_secs_f64() / every - 1e-6).ceil().max(0.0) as u64
}

/// Returns at a time within tens of microseconds. The timer of tokio has whole milliseconds, which is more than an answer takes.
#[derive(Debug)]
pub(super) struct Clock(Mutex<Timer>);

#[derive(Debug)]
struct Timer {
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
        Ok(Self(Mutex::new(Timer { timer, readable })))
    }
}

impl Timer {
    async fn until(&mut self, at: Instant) -> Result<()> {
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

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn calls_have_their_times_whoever_is_late() {
        // It began a moment ago: the first calls are late.
        let start = Instant::now().checked_sub(5 * MILLISECOND).unwrap();
        let pace = Pace::new(start, Some(1_000.0), 10 * MILLISECOND, 10 * MILLISECOND, 1_000);
        let clock = Clock::new().unwrap();
        for expected in 0..15 {
            let Due { number, at } = pace.next(&clock).await.unwrap().unwrap();
            assert_eq!(
                (number, at),
                (expected, start + MILLISECOND * u32::try_from(expected).unwrap())
            );
            assert!(Instant::now() >= at, "call {number} is waited for");
        }
        assert_eq!(pace.unsent().map(|(_, calls)| calls).sum::<u64>(), 5, "15 to 19");
        pace.next.store(20, Ordering::Relaxed);
        assert!(pace.next(&clock).await.unwrap().is_none(), "the end");
    }

    #[tokio::test]
    async fn a_run_has_as_many_calls_that_count_as_it_may() {
        let now = Instant::now();
        let clock = Clock::new().unwrap();
        for rate in [Some(1e6), None] {
            let begun = now.checked_sub(MILLISECOND).unwrap();
            let pace = Pace::new(begun, rate, MILLISECOND, Duration::from_mins(1), 2);
            let mut counted = 0;
            while let Some(due) = pace.next(&clock).await.unwrap() {
                counted += u32::from(due.at >= pace.counts_from);
            }
            assert_eq!(counted, 2, "{rate:?}");
        }
    }

    #[test]
    fn very_many_calls_are_taken_together() {
        let pace = Pace::new(
            Instant::now(),
            Some(1e6),
            Duration::ZERO,
            Duration::from_hours(1),
            u64::MAX,
        );
        let unsent: Vec<_> = pace.unsent().collect();
        assert!(unsent.len() <= 10_001, "{}", unsent.len());
        assert_eq!(unsent.iter().map(|(_, calls)| calls).sum::<u64>(), 3_600_000_000);
    }
}
