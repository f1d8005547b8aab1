//! Clusters that wait for the one worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Namespace and name of a Cluster.
pub(crate) type Key = (String, String);

/// The first and the longest rest after an error, as the addons-manager has them.
const FIRST_REST: Duration = Duration::from_millis(5);
const LONGEST_REST: Duration = Duration::from_secs(1000);

/// A queue in which each Cluster is once.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<BTreeSet<Key>>,
    failures: Mutex<BTreeMap<Key, u32>>,
    woken: Notify,
}

impl Queue {
    /// Enqueues a Cluster.
    pub(crate) fn add(&self, key: Key) {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key);
        self.woken.notify_one();
    }

    /// Enqueues a Cluster after a time.
    pub(crate) fn add_after(self: &Arc<Self>, key: Key, rest: Duration) {
        let queue = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(rest).await;
            queue.add(key);
        });
    }

    /// Requeues a Cluster whose reconcile failed: after 5 ms, and after twice as long each time.
    pub(crate) fn failed(self: &Arc<Self>, key: Key) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key.clone()).or_default();
        let rest = FIRST_REST.saturating_mul(2_u32.saturating_pow(*count));
        *count += 1;
        drop(failures);
        self.add_after(key, rest.min(LONGEST_REST));
    }

    /// Forgets that a Cluster could not be reconciled.
    pub(crate) fn succeeded(&self, key: &Key) {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// The next Cluster, waited for while there is none.
    pub(crate) async fn next(&self) -> Key {
        loop {
            let next = self
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_first();
            match next {
                Some(key) => return key,
                None => self.woken.notified().await,
            }
        }
    }
}
