//! Token bucket: a rate limit that allows bursts.

use std::time::{Duration, Instant};

/// Token bucket that refills continuously, up to its capacity. A token is measured by the time of its refill: events that cost one second
/// each happen once per second in the long run, and as many at once as the capacity has seconds.
#[derive(Debug, Clone, Copy)]
pub struct TokenBucket {
    capacity: Duration,
    /// Tokens at `at`.
    tokens: Duration,
    /// Time of the last change. In the future while the bucket owes tokens.
    at: Instant,
}

impl TokenBucket {
    /// Returns a full bucket.
    #[must_use]
    pub const fn full(capacity: Duration, now: Instant) -> Self {
        Self {
            capacity,
            tokens: capacity,
            at: now,
        }
    }

    /// Takes `cost`, if the bucket has as many tokens. Returns whether it has.
    pub fn try_take(&mut self, cost: Duration, now: Instant) -> bool {
        let has = self.available_at(cost) <= now;
        if has {
            self.take(cost, now);
        }
        has
    }

    /// Takes `cost` in any case. The bucket then owes what it lacks, and refills only after that.
    pub fn take(&mut self, cost: Duration, now: Instant) {
        if let Some(passed) = now.checked_duration_since(self.at) {
            self.tokens = self.capacity.min(self.tokens.saturating_add(passed));
            self.at = now;
        }
        let lacking = cost.saturating_sub(self.tokens);
        self.tokens = self.tokens.saturating_sub(cost);
        self.at += lacking;
    }

    /// Returns the time from which on the bucket has `cost`, which may be in the past. A cost above the capacity is available later than
    /// the bucket is full: such events leave a reserve to others.
    #[must_use]
    pub fn available_at(&self, cost: Duration) -> Instant {
        self.at + cost.saturating_sub(self.tokens)
    }

    /// Returns the time from which on the bucket is full.
    #[must_use]
    pub fn full_at(&self) -> Instant {
        self.available_at(self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(SECOND * 3, now);
        let taken = |bucket: &mut TokenBucket, now| (0..10).filter(|_| bucket.try_take(SECOND, now)).count();
        assert_eq!(taken(&mut bucket, now), 3);
        assert_eq!(bucket.available_at(SECOND), now + SECOND);
        assert_eq!(taken(&mut bucket, now + SECOND / 2), 0);
        assert_eq!(taken(&mut bucket, now + SECOND * 2), 2);
        assert_eq!(
            taken(&mut bucket, now + SECOND * 1000),
            3,
            "never more than its capacity"
        );
    }

    #[test]
    fn a_debt_is_paid_back_first() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(SECOND * 3, now);
        bucket.take(SECOND * 5, now);
        assert_eq!(bucket.available_at(Duration::ZERO), now + SECOND * 2);
        assert_eq!(bucket.available_at(SECOND), now + SECOND * 3);
        assert_eq!(bucket.full_at(), now + SECOND * 5);
        bucket.take(SECOND, now + SECOND);
        assert_eq!(bucket.full_at(), now + SECOND * 6);
    }

    proptest! {
        /// Within any time, events cost no more than the capacity and the time.
        #[test]
        fn the_rate_is_kept(asked in proptest::collection::vec((0_u64..3_000, 1_u64..2_000), 1..200)) {
            let began = Instant::now();
            let capacity = SECOND * 3;
            let (mut bucket, mut now, mut cost) = (TokenBucket::full(capacity, began), began, Duration::ZERO);
            for (after, of) in asked {
                now += Duration::from_millis(after);
                let of = Duration::from_millis(of);
                let at = bucket.available_at(of);
                prop_assert_eq!(bucket.try_take(of, now), at <= now);
                if at <= now {
                    cost += of;
                }
                prop_assert!(cost <= capacity + (now - began));
                prop_assert!(bucket.full_at() <= now + capacity);
            }
        }
    }
}
