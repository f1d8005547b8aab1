//! Growing, jittered delays between tries.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

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
    pub fn failed(&mut self, now: Instant) -> Duration {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_mins(1);

    /// The delays of a thing that fails `after` each try, and when the last of them is over.
    fn delays(backoff: &mut Backoff, after: Duration) -> (Vec<Duration>, Instant) {
        let mut now = Instant::now();
        let delays = (0..40).map(|_| {
            let delay = backoff.failed(now);
            now += delay + after;
            delay
        });
        (delays.collect(), now)
    }

    #[test]
    fn delays_grow_up_to_the_longest() {
        let mut backoff = Backoff::new(MIN, MAX);
        let (delays, now) = delays(&mut backoff, Duration::from_secs(10));
        let within = |delay: &Duration| (MIN..=MAX).contains(delay);
        assert!(delays.iter().all(within), "{delays:?}");
        assert!(delays[0] <= MIN * 2, "{delays:?}");
        assert!(delays[30..].iter().all(|delay| *delay >= MAX / 2), "{delays:?}");
        backoff.reset();
        assert!(backoff.failed(now) <= MIN * 2);
    }

    #[test]
    fn what_has_worked_for_a_while_begins_again() {
        let mut backoff = Backoff::new(MIN, MAX);
        let (_, now) = delays(&mut backoff, Duration::ZERO);
        assert!(backoff.failed(now + HEALTHY) <= MIN * 2);
    }
}
