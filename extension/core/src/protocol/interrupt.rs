//! How a pass, or a part of it, ends.

use std::time::Duration;

use super::{Failure, Read, Write};
use crate::reasons::Hold;

/// A pass that came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The next one is made when something changes, or after this time.
    RequeueAfter(Duration),
    /// The next one is made when something changes.
    AwaitChange,
    /// The same, and nothing need be remembered.
    Forget,
}

/// Why a pass, or a part of it, does not go on with what is known.
#[derive(Debug)]
pub enum Interrupt<H = Hold> {
    /// These have to be read first.
    Need(Vec<Read>),
    /// These have to be written first, in this order.
    Write(Vec<Write>),
    /// An API server refused a request or did not answer.
    Failed(Failure),
    /// What it is made for has to wait.
    Held(H),
}

/// What a part of a pass comes to.
pub type Step<T, H = Hold> = Result<T, Interrupt<H>>;

impl<H> Interrupt<H> {
    /// What has to be waited for.
    ///
    /// # Errors
    /// It is not that.
    pub fn held(self) -> Step<H, H> {
        match self {
            Self::Held(hold) => Ok(hold),
            other => Err(other),
        }
    }

    /// What an API server answered.
    ///
    /// # Errors
    /// It is not that.
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

/// The parts of a pass that do not depend on each other: what all of them need is asked for at once. When nothing has to be read, each
/// part's own outcome.
///
/// # Errors
/// What has to be read first.
pub(crate) fn together<T, H>(parts: impl IntoIterator<Item = Step<T, H>>) -> Step<Vec<Step<T, H>>, H> {
    let (mut outcomes, mut needs) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Err(Interrupt::Need(asks)) => needs.extend(asks),
            outcome => outcomes.push(outcome),
        }
    }
    if needs.is_empty() {
        return Ok(outcomes);
    }
    Err(Interrupt::Need(needs))
}

/// Parts of a pass that do not depend on each other's writes: what they have to write is written in their order, up to the first part
/// that stops for another reason.
///
/// # Errors
/// What has to be written first; or why the first part that did not come to its end did not.
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

/// What `outcome` still needs to be read, to be joined with what others need.
pub(crate) fn needs_of<T, H>(outcome: &Step<T, H>) -> Step<(), H> {
    match outcome {
        Err(Interrupt::Need(asks)) => Err(Interrupt::Need(asks.clone())),
        _ => Ok(()),
    }
}
