//! Input and output of a judge.

use serde_json::Value;

use crate::reasons::CheckReason;

/// Object and version that a check expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected<'a> {
    /// Name of the Cluster.
    pub cluster: &'a str,
    /// Namespace of the object; for an object of the management cluster that of the Cluster.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Expected version, compared byte for byte; `None` without `versionKey`.
    pub version: Option<&'a str>,
    /// Container whose image has the version.
    pub container: Option<&'a str>,
}

/// All objects that one check needs, as the API servers returned them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence<'a> {
    /// Object of the check; `None` only if its API server says that it does not exist.
    pub object: Option<&'a Value>,
    /// Objects of the list that the kind needs; see [`related`](super::related).
    pub related: &'a [Value],
}

/// Judgement of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All clauses are met.
    Proven {
        /// `metadata.uid` of the object that gives the proof: the object of the check, or its HelmReleaseProxy.
        uid: String,
        /// `metadata.generation` of that object.
        generation: i64,
    },
    /// A clause is not met yet.
    Waiting {
        /// Reason of the check.
        reason: CheckReason,
        /// Object and cause, constant while the cause is.
        message: String,
        /// Condition of the object, with its own message: escaped, and at most 512 characters long. Empty if none explains the cause.
        detail: String,
    },
    /// The object reports a failure at the expected version.
    Failed {
        /// Reason of the check.
        reason: CheckReason,
        /// Object and cause, constant while the cause is.
        message: String,
        /// Condition of the object, as in `Waiting`.
        detail: String,
    },
}

impl Verdict {
    /// Returns why there is no proof; `None` if there is one.
    #[must_use]
    pub const fn reason(&self) -> Option<CheckReason> {
        match self {
            Self::Proven { .. } => None,
            Self::Waiting { reason, .. } | Self::Failed { reason, .. } => Some(*reason),
        }
    }

    /// Waits for a reason without a condition that explains it.
    pub(super) fn waiting(reason: CheckReason, message: String) -> Self {
        Self::Waiting {
            reason,
            message,
            detail: String::new(),
        }
    }

    /// Adds the condition that explains the cause.
    pub(super) fn with_detail(mut self, said: String) -> Self {
        match &mut self {
            Self::Proven { .. } => {}
            Self::Waiting { detail, .. } | Self::Failed { detail, .. } => *detail = said,
        }
        self
    }
}
