//! Observation of the leader lease: a record is valid only while a leader reconciles its inputs.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Time without a renewal after the end of a lease in which another replica takes over.
const FAILOVER: Duration = Duration::from_secs(45);

/// Time of the last observed change of the lease. Clones share it.
#[derive(Debug, Clone)]
pub struct Leadership(Arc<Mutex<ObservedLease>>);

#[derive(Debug, Clone, Copy)]
struct ObservedLease {
    at: Instant,
    /// Time for which its holder may leave it unchanged.
    lease_duration: Duration,
}

impl Leadership {
    /// Creates an observation without any lease. Until now a leader may have renewed a lease of this duration.
    #[must_use]
    pub fn new(lease_duration: Duration) -> Self {
        Self(Arc::new(Mutex::new(ObservedLease {
            at: Instant::now(),
            lease_duration,
        })))
    }

    /// Records that the lease was acquired or renewed just now, with this duration.
    pub fn renewed(&self, lease_duration: Duration) {
        *self.seen() = ObservedLease {
            at: Instant::now(),
            lease_duration,
        };
    }

    /// Returns whether no leader was observed for longer than a failover takes.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        let ObservedLease { at, lease_duration } = *self.seen();
        at.elapsed() > lease_duration.saturating_add(FAILOVER)
    }

    fn seen(&self) -> MutexGuard<'_, ObservedLease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
