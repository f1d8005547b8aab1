//! Input and output of a judge.

use serde_json::Value;

use crate::gates::expression::Expression;
use crate::protocol::Server;
use crate::reasons::CheckReason;

/// Object and version that a check expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected<'a> {
    /// Name of the Cluster.
    pub cluster: &'a str,
    /// Namespace of the object; for an object of the management cluster that of the Cluster. Empty for a cluster-scoped kind.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Expected version, compared byte for byte; `None` without `versionKey`.
    pub version: Option<&'a str>,
    /// Container whose image has the version.
    pub container: Option<&'a str>,
    /// Kind of the object.
    pub kind: &'a str,
    /// API server that has the object.
    pub server: Server,
    /// Kubernetes version that the Cluster takes next.
    pub hop: &'a str,
    /// Expression that has to be true for the object.
    pub cel: Option<&'a Expression>,
}

/// All objects that one check needs, as the API servers returned them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence<'a> {
    /// Object of the check; `None` only if its API server says that it does not exist.
    pub object: Option<&'a Value>,
    /// Objects that the kind needs beside it; see [`related`](super::related).
    pub related: &'a [Value],
    /// The Cluster. It is read only if the expression uses it.
    pub cluster: Option<&'a Value>,
}

/// Judgement of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All clauses are met.
    Proven {
        /// `metadata.uid` of the object that gives the proof: the object of the check, or its HelmReleaseProxy.
        uid: String,
        /// `metadata.generation` of that object; 0 for a kind without generations, such as ConfigMap.
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
