//! Retry delays per key.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use super::Backoff;

/// First delay after a failure.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// Longest delay. A change is noticed earlier.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// First delay after a conflict.
const CONFLICT: Duration = Duration::from_millis(100);

/// Delay before a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Short delay: another client wrote first, and its write will arrive through the watch.
    Soon(Duration),
    /// Growing delay after a failure.
    Later(Duration),
}

impl Again {
    /// Returns the delay.
    #[must_use]
    pub const fn wait(self) -> Duration {
        match self {
            Self::Soon(wait) | Self::Later(wait) => wait,
        }
    }
}

/// Retry delays of several keys, each with its own backoff.
#[derive(Debug)]
pub struct Retries<K> {
    failures: HashMap<K, Backoff>,
    conflicts: HashMap<K, Backoff>,
}

impl<K> Default for Retries<K> {
    fn default() -> Self {
        Self {
            failures: HashMap::new(),
            conflicts: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash> Retries<K> {
    /// Records a failure or conflict and returns the delay. Repeated conflicts count as failures.
    pub fn failed(&mut self, what: K, conflict: bool, now: Instant) -> Again {
        let (failed, first) = if conflict {
            (&mut self.conflicts, CONFLICT)
        } else {
            (&mut self.failures, MIN_DELAY)
        };
        let backoff = failed
            .entry(what)
            .or_insert_with(|| Backoff::new(first, MAX_DELAY));
        let wait = backoff.failed(now);
        if conflict && wait < MIN_DELAY {
            Again::Soon(wait)
        } else {
            Again::Later(wait)
        }
    }

    /// Resets the delays of a key.
    pub fn forget(&mut self, what: &K) {
        self.failures.remove(what);
        self.conflicts.remove(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_growing_delays() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        let last = (0..40).map(|_| retries.failed("a", false, now)).last().unwrap();
        assert!(last.wait() >= MAX_DELAY / 2, "{last:?}");
        let other = retries.failed("b", false, now);
        assert!(
            matches!(other, Again::Later(wait) if wait <= MIN_DELAY * 2),
            "{other:?}"
        );
        let conflict = retries.failed("a", true, now);
        assert!(conflict.wait() <= CONFLICT * 2, "without failures: {conflict:?}");

        retries.forget(&"a");
        let first = retries.failed("a", false, now);
        assert!(first.wait() <= MIN_DELAY * 2, "the backoff is reset: {first:?}");
    }

    #[test]
    fn endless_conflicts_are_failures() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        let first = retries.failed("a", true, now);
        assert!(
            matches!(first, Again::Soon(wait) if wait <= CONFLICT * 2),
            "{first:?}"
        );
        let last = (0..40).map(|_| retries.failed("a", true, now)).last().unwrap();
        assert!(matches!(last, Again::Later(wait) if wait > MIN_DELAY), "{last:?}");
        retries.forget(&"a");
        assert!(
            matches!(retries.failed("a", true, now), Again::Soon(_)),
            "the backoff is reset"
        );
    }
}
