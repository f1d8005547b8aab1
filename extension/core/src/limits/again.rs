//! When what failed is done again, each thing for itself.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use super::Backoff;

/// The first delay after a failure.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest one. What changes meanwhile is noticed before.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// The first delay after a conflict.
const CONFLICT: Duration = Duration::from_millis(100);

/// When something is done again that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// In a moment: another one wrote first, and what was written is on its way through the watch.
    Soon(Duration),
    /// After a delay that grows.
    Later(Duration),
}

impl Again {
    /// After how long.
    #[must_use]
    pub const fn wait(self) -> Duration {
        match self {
            Self::Soon(wait) | Self::Later(wait) => wait,
        }
    }
}

/// The delays of several things, each of its own.
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
    /// Something failed, or ended in a conflict. One that does so again and again is a failure, too.
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

    /// The next failure of this is the first one.
    pub fn forget(&mut self, what: &K) {
        self.failures.remove(what);
        self.conflicts.remove(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_growing_delays_of_its_own() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        let last = (0..40).map(|_| retries.failed("a", false, now)).last().unwrap();
        assert!(last.wait() >= MAX_DELAY / 2, "{last:?}");
        let other = retries.failed("b", false, now);
        assert!(
            matches!(other, Again::Later(wait) if wait <= MIN_DELAY * 2),
            "{other:?}"
        );
        let conflict = retries.failed("a", true, now);
        assert!(conflict.wait() <= CONFLICT * 2, "of failures alone: {conflict:?}");

        retries.forget(&"a");
        let first = retries.failed("a", false, now);
        assert!(first.wait() <= MIN_DELAY * 2, "begins again: {first:?}");
    }

    #[test]
    fn conflicts_that_do_not_end_are_failures() {
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
            "begins again"
        );
    }
}
