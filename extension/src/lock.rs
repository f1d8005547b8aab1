//! Locks, also after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What `mutex` guards. A panic while it was locked is the matter of what panicked: what is guarded here is whole after each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
