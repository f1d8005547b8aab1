//! Growing, jittered delays between tries.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// Each delay is a fifth longer than the one before, jitter not counted, so that a recovery is noticed early in proportion to the time
/// that the failure lasted.
const FACTOR: f32 = 1.2;

/// What has not failed for so long after a try is taken to work.
pub(crate) const HEALTHY: Duration = Duration::from_secs(20);

/// The delays of one thing that is tried again whenever it fails.
#[derive(Debug)]
pub struct Backoff {
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
    last: Duration,
    failed_at: Option<Instant>,
}

impl Backoff {
    /// Delays from `min` to `max`. The upper half of a delay is random, so that those that failed together do not stay together.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        let builder = ExponentialBuilder::new()
            .with_min_delay(min)
            .with_max_delay(max / 2)
            .with_factor(FACTOR)
            .with_jitter()
            .without_max_times();
        Self {
            delays: builder.build(),
            builder,
            last: Duration::ZERO,
            failed_at: None,
        }
    }

    /// How long to wait after a failure: as at first, if what was tried after the last delay has not failed for some time.
    pub fn failed(&mut self) -> Duration {
        let now = Instant::now();
        let failed_at = self.failed_at.replace(now);
        if failed_at.is_some_and(|at| now.duration_since(at) >= self.last + HEALTHY) {
            self.reset();
        }
        self.last = self.delays.next().unwrap_or_default();
        self.last
    }

    /// The next failure is the first one.
    pub fn reset(&mut self) {
        self.delays = self.builder.build();
    }
}

/// The delays of several things, each of its own.
#[derive(Debug)]
pub struct Backoffs<K> {
    min: Duration,
    max: Duration,
    failed: Mutex<HashMap<K, Backoff>>,
}

impl<K: Eq + Hash> Backoffs<K> {
    /// Delays from `min` to `max`. Nothing has failed yet.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            failed: Mutex::default(),
        }
    }

    /// How long to wait after `what` has failed.
    pub fn failed(&self, what: K) -> Duration {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let backoff = failed
            .entry(what)
            .or_insert_with(|| Backoff::new(self.min, self.max));
        backoff.failed()
    }

    /// The next failure of `what` is the first one.
    pub fn forget(&self, what: &K) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.remove(what);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_mins(1);

    /// The delays of a thing that fails `after` each try.
    async fn delays(backoff: &mut Backoff, after: Duration) -> Vec<Duration> {
        let mut delays = Vec::new();
        for _ in 0..40 {
            let delay = backoff.failed();
            delays.push(delay);
            sleep(delay + after).await;
        }
        delays
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_up_to_the_longest() {
        let mut backoff = Backoff::new(MIN, MAX);
        let delays = delays(&mut backoff, Duration::from_secs(10)).await;
        let within = |delay: &Duration| (MIN..=MAX).contains(delay);
        assert!(delays.iter().all(within), "{delays:?}");
        assert!(delays[0] <= MIN * 2, "{delays:?}");
        assert!(delays[30..].iter().all(|delay| *delay >= MAX / 2), "{delays:?}");
        backoff.reset();
        assert!(backoff.failed() <= MIN * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_worked_for_a_while_begins_again() {
        let mut backoff = Backoff::new(MIN, MAX);
        delays(&mut backoff, Duration::ZERO).await;
        sleep(HEALTHY).await;
        assert!(backoff.failed() <= MIN * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn each_has_growing_delays_of_its_own() {
        let backoffs = Backoffs::new(MIN, MAX);
        let last = (0..40).map(|_| backoffs.failed("a")).last();
        assert!(last >= Some(MAX / 2));
        assert!(backoffs.failed("b") <= MIN * 2);

        backoffs.forget(&"a");
        assert!(backoffs.failed("a") <= MIN * 2, "begins again");
    }
}
