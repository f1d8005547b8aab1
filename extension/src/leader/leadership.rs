//! Whether some replica leads, as far as this one has seen: what a record says is true for as long as a leader looks at what it rests
//! on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sluice_core::cache::stored_kind::CURRENT_FOR;
use tokio::time::Instant;

/// When the lease was last seen to change. Clones share it.
#[derive(Debug, Clone)]
pub struct Leadership(Arc<Mutex<ObservedLease>>);

#[derive(Debug, Clone, Copy)]
struct ObservedLease {
    at: Instant,
    /// How long its holder may leave it as it is.
    patience: Duration,
}

impl Leadership {
    /// Nothing was seen yet. Until now a leader may have renewed a lease that lasts so long.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self(Arc::new(Mutex::new(ObservedLease {
            at: Instant::now(),
            patience,
        })))
    }

    /// The lease was taken or renewed just now, to last so long.
    pub fn renewed(&self, patience: Duration) {
        *self.seen() = ObservedLease {
            at: Instant::now(),
            patience,
        };
    }

    /// Whether no leader has been seen for longer than it takes until another one leads, and memory counts after that.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        let ObservedLease { at, patience } = *self.seen();
        at.elapsed() > patience.saturating_add(CURRENT_FOR)
    }

    fn seen(&self) -> MutexGuard<'_, ObservedLease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
