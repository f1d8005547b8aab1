//! Growing delays of several things, each of its own.

use std::{collections::HashMap, hash::Hash, sync::Mutex, time::Duration};

use sluice_core::walls::Backoff;

use crate::{clock::now, lock::lock};

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
        let mut failed = lock(&self.failed);
        let backoff = failed
            .entry(what)
            .or_insert_with(|| Backoff::new(self.min, self.max));
        backoff.failed(now())
    }

    /// The next failure of `what` is the first one.
    pub fn forget(&self, what: &K) {
        lock(&self.failed).remove(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_mins(1);

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
