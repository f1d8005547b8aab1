//! Restarts of all watches after the API server was rolled back: its etcd was restored, or another one took over with fewer revisions. A
//! watch that resumes from a resourceVersion of the future receives none of the events before it.

use std::{
    fmt::Display,
    sync::{Arc, Mutex},
    time::Duration,
};

use prometheus_client::{metrics::counter::Counter, registry::Registry};
use sluice_core::cache::is_earlier;
use tokio::{sync::watch, time::Instant};
use tracing::warn;

use crate::lock::lock;

/// Time for which further differences between reads and caches follow from the same cause: watches are being restarted, and a streamed list
/// may take that long.
const RESTARTING: Duration = Duration::from_mins(10);

/// Rollbacks that this replica has detected. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Rollbacks(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Number of restarts of all watches.
    count: watch::Sender<u64>,
    seen: Mutex<Seen>,
    counter: Counter,
}

#[derive(Debug, Default)]
struct Seen {
    /// Time of the last restart.
    restarted: Option<Instant>,
    /// resourceVersion of the lease since then; none while the lease does not exist.
    lease: Option<String>,
}

impl Rollbacks {
    /// Registers the metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_api_server_rollbacks",
            "Times that the management API server returned an earlier state than before, and every watch was restarted with a list",
            self.0.counter.clone(),
        );
    }

    /// Returns the number of restarts of all watches so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        *self.0.count.borrow()
    }

    /// Notes the resourceVersion of the lease in a response, or its absence.
    pub(crate) fn saw_lease(&self, version: Option<&str>) {
        let mut seen = lock(&self.0.seen);
        let before = std::mem::replace(&mut seen.lease, version.map(str::to_owned));
        let is_gone = version.is_none() && before.is_some();
        if is_gone || is_earlier(version, before.as_deref()) {
            self.rolled_back(&mut seen, &"the lease");
        }
    }

    /// Notes an object that was read at an earlier resourceVersion than the cache had before.
    pub(crate) fn saw_earlier(&self, object: &impl Display) {
        let mut seen = lock(&self.0.seen);
        if !seen.is_restarting() {
            // The lease of before belongs to the same rollback.
            seen.lease = None;
            self.rolled_back(&mut seen, object);
        }
    }

    /// Restarts all watches, because the cache has contradicted the API server for long: events are lost.
    pub(crate) fn lost_events(&self, difference: &str) {
        let mut seen = lock(&self.0.seen);
        if !seen.is_restarting() {
            warn!(
                difference,
                "Cache differs from the API server: restarting all watches with a list"
            );
            self.restart(&mut seen);
        }
    }

    /// Returns the restarts of a watch.
    #[must_use]
    pub fn restarts(&self) -> Restarts {
        Restarts(Some(self.0.count.subscribe()))
    }

    fn rolled_back(&self, seen: &mut Seen, object: &dyn Display) {
        warn!(%object, "API server rolled back: it returned an earlier state than before; restarting all watches with a list");
        self.0.counter.inc();
        self.restart(seen);
    }

    fn restart(&self, seen: &mut Seen) {
        seen.restarted = Some(Instant::now());
        self.0.count.send_modify(|count| *count += 1);
    }
}

impl Seen {
    fn is_restarting(&self) -> bool {
        self.restarted
            .is_some_and(|restarted| restarted.elapsed() < RESTARTING)
    }
}

/// Restarts of one watch.
#[derive(Debug)]
pub struct Restarts(Option<watch::Receiver<u64>>);

impl Restarts {
    /// Returns the restarts of a watch of a workload cluster: there are none.
    #[must_use]
    pub fn never() -> Self {
        Self(None)
    }

    /// Completes when the watch must start again with a list. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        let is_restarted = match &mut self.0 {
            Some(count) => count.changed().await.is_ok(),
            None => false,
        };
        if !is_restarted {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_rollback_restarts_a_watch_once() {
        let rollbacks = Rollbacks::default();
        let mut restarts = rollbacks.restarts();
        let mut restarted = || restarts.next().now_or_never().is_some();
        for version in [None, Some("7"), Some("9"), Some("9"), Some("12")] {
            rollbacks.saw_lease(version);
        }
        assert!(!restarted());
        rollbacks.saw_lease(Some("8"));
        assert!(restarted() && !restarted());
        rollbacks.saw_earlier(&"Cluster team-a/one");
        rollbacks.lost_events("Cluster team-a/one");
        assert!(!restarted(), "its watch is being restarted");
        rollbacks.saw_lease(Some("3"));
        assert!(restarted(), "another one");
        rollbacks.saw_lease(None);
        assert!(restarted(), "the lease was created after the backup");
        assert_eq!((rollbacks.count(), rollbacks.0.counter.get()), (3, 3));
        assert!(Restarts::never().next().now_or_never().is_none());
    }

    /// The object that is read first and the lease belong to one rollback.
    #[tokio::test(start_paused = true)]
    async fn a_rollback_is_counted_once() {
        let rollbacks = Rollbacks::default();
        rollbacks.saw_lease(Some("12"));
        rollbacks.saw_earlier(&"Cluster team-a/one");
        rollbacks.saw_lease(Some("8"));
        rollbacks.saw_lease(Some("9"));
        assert_eq!((rollbacks.count(), rollbacks.0.counter.get()), (1, 1));
        tokio::time::advance(RESTARTING).await;
        rollbacks.lost_events("Cluster team-a/one");
        assert_eq!(
            (rollbacks.count(), rollbacks.0.counter.get()),
            (2, 1),
            "no rollback"
        );
    }
}
