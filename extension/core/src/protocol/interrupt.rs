//! Outcomes of a reconcile or a part of it.

use std::time::Duration;

use super::{Failure, Read, Write};
use crate::reasons::Hold;

/// Outcome of a complete reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Reconcile after a change, or after this time at the latest.
    RequeueAfter(Duration),
    /// Reconcile after a change.
    AwaitChange,
    /// Reconcile after a change, and drop the local state.
    Forget,
}

/// Reason why a reconcile, or a part of it, stops with the known results.
#[derive(Debug)]
pub enum Interrupt<H = Hold> {
    /// Missing reads.
    Need(Vec<Read>),
    /// Outstanding writes, in this order.
    Write(Vec<Write>),
    /// The API server refused a request or did not respond.
    Failed(Failure),
    /// The reconciled object has to wait.
    Held(H),
}

/// Outcome of a part of a reconcile.
pub type Step<T, H = Hold> = Result<T, Interrupt<H>>;

impl<H> Interrupt<H> {
    /// Returns the reason to wait.
    ///
    /// # Errors
    /// Any other interrupt.
    pub fn held(self) -> Step<H, H> {
        match self {
            Self::Held(hold) => Ok(hold),
            other => Err(other),
        }
    }

    /// Returns the failure of a request.
    ///
    /// # Errors
    /// Any other interrupt.
    pub fn failed(self) -> Step<Failure, H> {
        match self {
            Self::Failed(failure) => Ok(failure),
            other => Err(other),
        }
    }
}

impl From<Hold> for Interrupt {
    fn from(hold: Hold) -> Self {
        Self::Held(hold)
    }
}

/// Joins independent parts of a reconcile, so that the executor performs all their reads at once. Without missing reads, returns the
/// outcome of each part.
///
/// # Errors
/// The missing reads of all parts.
pub(crate) fn together<T, H>(parts: impl IntoIterator<Item = Step<T, H>>) -> Step<Vec<Step<T, H>>, H> {
    let (mut outcomes, mut needs) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Err(Interrupt::Need(reads)) => needs.extend(reads),
            outcome => outcomes.push(outcome),
        }
    }
    if needs.is_empty() {
        return Ok(outcomes);
    }
    Err(Interrupt::Need(needs))
}

/// Joins parts of a reconcile with independent writes. The executor performs the writes in the order of the parts, up to the first part
/// that stops for another reason.
///
/// # Errors
/// The outstanding writes, or the interrupt of the first incomplete part.
pub(crate) fn in_order<H>(parts: impl IntoIterator<Item = Step<(), H>>) -> Step<(), H> {
    let mut writes = Vec::new();
    let mut outcome = Ok(());
    for part in parts {
        match part {
            Ok(()) => {}
            Err(Interrupt::Write(more)) => writes.extend(more),
            Err(stop) => {
                outcome = Err(stop);
                break;
            }
        }
    }
    if writes.is_empty() {
        return outcome;
    }
    Err(Interrupt::Write(writes))
}

/// Returns the missing reads of `outcome`, to be joined with those of other parts.
pub(crate) fn needs_of<T, H>(outcome: &Step<T, H>) -> Step<(), H> {
    match outcome {
        Err(Interrupt::Need(reads)) => Err(Interrupt::Need(reads.clone())),
        _ => Ok(()),
    }
}
