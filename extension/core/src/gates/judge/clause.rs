//! Judges as tables of clauses.

use serde_json::Value;
use sluice_crds::lifecycle::{CheckRecord, CheckState};

use super::object::{Field, number, text};
use super::{Evidence, Expected, Verdict};
use crate::protocol::Server;
use crate::reasons::CheckReason;
use crate::text::one_line;

/// Longest version in a message, in characters.
const LONGEST_VERSION: usize = 128;

/// Judge of one kind.
pub(super) struct Judge {
    /// Group and version; empty for the judge of all other kinds.
    pub(super) api_version: &'static str,
    /// Kind; empty for the judge of all other kinds.
    pub(super) kind: &'static str,
    /// Whether the kind belongs to a delivery system.
    pub(super) delivers: bool,
    /// Fields of the object that the clauses read, beside the common ones.
    pub(super) fields: &'static [Field],
    /// Conditions of a proof, in the order of reasons.
    pub(super) clauses: &'static [Clause],
    /// Object whose UID and generation identify a proof.
    pub(super) proving: for<'a> fn(&Seen<'a>) -> Option<&'a Value>,
}

/// Condition of a proof.
#[derive(Clone, Copy)]
pub(super) struct Clause {
    /// Name, unique in its table.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "names the clause that a test leaves out")
    )]
    pub(super) name: &'static str,
    /// Whether the clause is met.
    pub(super) met: fn(&Seen<'_>) -> bool,
    /// Verdict if it is not.
    pub(super) objection: fn(&Seen<'_>) -> Verdict,
}

/// Evidence and expectation of one check.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) judge: &'static Judge,
    pub(super) object: Option<&'a Value>,
    pub(super) related: &'a [Value],
    pub(super) cluster: Option<&'a Value>,
    pub(super) expected: &'a Expected<'a>,
    pub(super) latch: Option<&'a CheckRecord>,
}

impl<'a> Seen<'a> {
    /// Returns the object of the check; null if it does not exist, which meets no clause that reads a field.
    pub(super) fn object(&self) -> &'a Value {
        static ABSENT: Value = Value::Null;
        self.object.unwrap_or(&ABSENT)
    }

    /// Returns kind and name for messages, `DaemonSet kube-system/cilium`. Delivery objects of the management cluster are in the namespace
    /// of the Cluster.
    pub(super) fn name(&self) -> String {
        let Expected {
            namespace,
            name,
            kind,
            server,
            ..
        } = self.expected;
        if namespace.is_empty() || self.judge.delivers && *server == Server::Management {
            format!("{kind} {name}")
        } else {
            format!("{kind} {namespace}/{name}")
        }
    }

    /// Returns the expected version for messages.
    pub(super) fn version(&self) -> String {
        one_line(self.expected.version.unwrap_or_default(), LONGEST_VERSION)
    }

    /// Whether the recorded proof is of this very object, at its generation and at the expected version.
    pub(super) fn latched_at(&self, object: &Value) -> bool {
        let Some(latch) = self.latch else { return false };
        let uid = text(object, "/metadata/uid");
        let generation = number(object, "/metadata/generation");
        latch.state == CheckState::Proven
            && latch.version == self.expected.version.unwrap_or_default()
            && uid.is_some()
            && uid == latch.uid.as_deref()
            && generation.is_some()
            && generation == latch.generation
    }
}

/// Returns the object of the check.
pub(super) fn of_check<'a>(seen: &Seen<'a>) -> Option<&'a Value> {
    seen.object
}

/// Judges by these clauses of a judge.
pub(super) fn judge_by(
    judge: &'static Judge,
    clauses: &[Clause],
    evidence: &Evidence<'_>,
    expected: &Expected<'_>,
    latch: Option<&CheckRecord>,
) -> Verdict {
    let seen = Seen {
        judge,
        object: evidence.object,
        related: evidence.related,
        cluster: evidence.cluster,
        expected,
        latch,
    };
    match clauses.iter().find(|clause| !(clause.met)(&seen)) {
        Some(clause) => (clause.objection)(&seen),
        None => proven(&seen),
    }
}

fn proven(seen: &Seen<'_>) -> Verdict {
    let identity = (seen.judge.proving)(seen).and_then(|object| {
        let uid = text(object, "/metadata/uid")?;
        let generation = number(object, "/metadata/generation").unwrap_or_default();
        Some((uid.to_owned(), generation))
    });
    match identity {
        Some((uid, generation)) => Verdict::Proven { uid, generation },
        // Each API server sets it.
        None => Verdict::waiting(
            CheckReason::NotObserved,
            format!("{} has no metadata.uid", seen.name()),
        ),
    }
}
