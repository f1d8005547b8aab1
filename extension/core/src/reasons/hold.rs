//! Hold reasons: one vocabulary for hook messages, conditions, events and metric labels, split by source.

use crate::reasons::CallReason;
use crate::reasons::Class;
use crate::reasons::GateReason;
use std::fmt;

/// Reason to hold a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldReason {
    /// The call, or the knowledge of the replica, is the reason, independent of the gate.
    Call(CallReason),
    /// The gate is closed.
    Gate(GateReason),
}

impl HoldReason {
    /// Returns the spelling in messages and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call(reason) => reason.as_str(),
            Self::Gate(reason) => reason.as_str(),
        }
    }

    /// Returns the short text for kubectl.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Call(reason) => reason.text(),
            Self::Gate(reason) => reason.text(),
        }
    }

    /// Returns the class.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Call(reason) => reason.class(),
            Self::Gate(reason) => reason.class(),
        }
    }

    /// Whether the reason is transient: the cache lags behind the call, or Cluster API made no calls while the reason applied.
    /// The earlier time without progress does not count then. A gate keeps its reason for longer than one call, also if only one
    /// replica or a cache is the cause.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        match self {
            Self::Call(reason) => matches!(reason.class(), Class::Replica | Class::Lag),
            Self::Gate(reason) => reason.class().is_uncalled(),
        }
    }
}

impl From<CallReason> for HoldReason {
    fn from(reason: CallReason) -> Self {
        Self::Call(reason)
    }
}

impl From<GateReason> for HoldReason {
    fn from(reason: GateReason) -> Self {
        Self::Gate(reason)
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Hold reason with its message.
///
/// The message stays the same while the reason does. Cluster API writes each change of it into a condition and reconciles, so it
/// carries no counts, times or intermediate states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold<R = GateReason> {
    /// Reason of the hold.
    pub reason: R,
    /// Cause of the hold, with the object that it concerns.
    pub message: String,
}

impl<R> Hold<R> {
    /// Creates a hold with its message.
    #[must_use]
    pub fn new(reason: R, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// Converts the hold into one of a call.
    #[must_use]
    pub fn of_call(self) -> Hold<HoldReason>
    where
        R: Into<HoldReason>,
    {
        Hold::new(self.reason.into(), self.message)
    }
}

/// Adds a hold as [`graver`] does.
pub(crate) fn add_problem(problem: &mut Option<Hold>, hold: Hold) {
    *problem = graver(problem.take(), Some(hold));
}

/// Returns the first hold, unless an override of every package passes it and not the other one.
pub(crate) fn graver(first: Option<Hold>, other: Option<Hold>) -> Option<Hold> {
    let is_passed = |hold: &Hold| hold.reason.overridable().is_passed_by_every();
    match (first, other) {
        (Some(first), Some(other)) if is_passed(&first) && !is_passed(&other) => Some(other),
        (first, other) => first.or(other),
    }
}

impl<R: fmt::Display> fmt::Display for Hold<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            return write!(f, "{}", self.reason);
        }
        write!(f, "{}: {}", self.reason, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_found_by_its_spelling() {
        for reason in GateReason::ALL {
            assert_eq!(GateReason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(GateReason::parse("SomethingNewer"), None);
    }

    #[test]
    fn a_problem_that_an_override_passes_hides_no_other_one() {
        let hold = |reason| Some(Hold::new(reason, "why"));
        let (passed, other) = (
            hold(GateReason::WorkloadUnreachable),
            hold(GateReason::ValuesNotFound),
        );
        let (kept, later) = (
            hold(GateReason::PackageBelowRelease),
            hold(GateReason::PackageMissing),
        );
        // One that only some overrides pass is never passed as a problem.
        let of_package = hold(GateReason::PackageFailed);
        for (first, second, graver_one) in [
            (&passed, &other, &passed),
            (&passed, &kept, &kept),
            (&kept, &passed, &kept),
            (&kept, &later, &kept),
            (&passed, &of_package, &of_package),
            (&passed, &None, &passed),
            (&None, &passed, &passed),
            (&None, &None, &None),
        ] {
            assert_eq!(
                graver(first.clone(), second.clone()),
                *graver_one,
                "{first:?} {second:?}"
            );
            if let Some(hold) = second {
                let mut problem = first.clone();
                add_problem(&mut problem, hold.clone());
                assert_eq!(problem, *graver_one);
            }
        }
    }

    #[test]
    fn a_hold_reads_as_reason_and_message() {
        let hold = Hold::new(GateReason::PackagesNotReady, "waiting for antrea 1.9.0");
        assert_eq!(hold.to_string(), "PackagesNotReady: waiting for antrea 1.9.0");
        assert_eq!(Hold::new(CallReason::Starting, "").to_string(), "Starting");
    }
}
