//! Why an upgrade is held: one vocabulary for hook messages, conditions, events and metric labels, split by what may give it.

use crate::reasons::CallReason;
use crate::reasons::GateReason;
use std::fmt;

/// Why a call is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldReason {
    /// The call or what the replica knows is the reason, whatever the gate says.
    Call(CallReason),
    /// The gate is closed.
    Gate(GateReason),
}

impl HoldReason {
    /// The reason as messages and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call(reason) => reason.as_str(),
            Self::Gate(reason) => reason.as_str(),
        }
    }

    /// Whether the reason may be the replica that was asked, so that another one may answer otherwise.
    #[must_use]
    pub const fn is_of_the_replica(self) -> bool {
        matches!(
            self,
            Self::Call(CallReason::Starting | CallReason::ReplicaStale)
                | Self::Gate(GateReason::APIUnavailable)
        )
    }

    /// Whether the reason is about to pass: what is known is behind the call, or Cluster API has not asked while it was the
    /// reason. How long nothing moved before says nothing then.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        match self {
            Self::Call(reason) => {
                !matches!(reason, CallReason::GateClosed | CallReason::MinorVersionsSkipped)
            }
            Self::Gate(reason) => matches!(
                reason,
                GateReason::ClusterPaused
                    | GateReason::StartHeldByAnnotation
                    | GateReason::ClusterDeleting
                    | GateReason::ControlPlaneCreating
                    | GateReason::ControlPlaneUpgrading
                    | GateReason::WorkersUpgrading
            ),
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

/// A reason to hold, and the object it is about.
///
/// The message stays the same while the reason does: Cluster API writes each change of it into a condition and
/// reconciles, so it carries no counts, no times and no intermediate states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold<R = GateReason> {
    /// Why.
    pub reason: R,
    /// What is waited for.
    pub message: String,
}

impl<R> Hold<R> {
    /// A hold with its message.
    #[must_use]
    pub fn new(reason: R, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// The same as the answer to a call.
    #[must_use]
    pub fn of_call(self) -> Hold<HoldReason>
    where
        R: Into<HoldReason>,
    {
        Hold::new(self.reason.into(), self.message)
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
    fn a_hold_reads_as_reason_and_message() {
        let hold = Hold::new(GateReason::PackagesNotReady, "waiting for antrea 1.9.0");
        assert_eq!(hold.to_string(), "PackagesNotReady: waiting for antrea 1.9.0");
        assert_eq!(Hold::new(CallReason::Starting, "").to_string(), "Starting");
    }
}
