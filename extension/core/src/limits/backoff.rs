//! Exponential backoff with jitter.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Growth factor of the delays, without jitter. It is small, so that a recovery is noticed early in proportion to the duration of the
/// failure.
const FACTOR: f32 = 1.2;

/// Time without a failure after which an attempt counts as successful.
pub(crate) const HEALTHY: Duration = Duration::from_secs(20);

/// Delays between the attempts of one operation.
#[derive(Debug)]
pub struct Backoff {
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
    last: Duration,
    failed_at: Option<Instant>,
}

impl Backoff {
    /// Returns delays from `min` to `max`. The upper half of a delay is random, so that simultaneous failures do not retry simultaneously.
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

    /// Returns the delay after a failure. It is the first delay again if the last attempt worked for some time.
    pub fn failed(&mut self, now: Instant) -> Duration {
        let failed_at = self.failed_at.replace(now);
        if failed_at.is_some_and(|at| now.duration_since(at) >= self.last + HEALTHY) {
            self.reset();
        }
        self.last = self.delays.next().unwrap_or_default();
        self.last
    }

    /// Resets the delays.
    pub fn reset(&mut self) {
        self.delays = self.builder.build();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_mins(1);

    /// Returns the delays of an operation that fails `after` each attempt, and the end of the last delay.
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
    fn delays_are_reset_after_a_working_attempt() {
        let mut backoff = Backoff::new(MIN, MAX);
        let (_, now) = delays(&mut backoff, Duration::ZERO);
        assert!(backoff.failed(now + HEALTHY) <= MIN * 2);
    }
}
