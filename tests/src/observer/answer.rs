//! Excuses of an early write: a hook response cannot be withdrawn.
//!
//! The observer judges a write of the control plane by the state at that write. Between the answer that allowed it and the write,
//! a user may edit the spec, and a package may lose its proof. Two writes limit the time of the answer:
//!
//! - the record in the ClusterBootstrap opened the gate: no answer came before it;
//! - Cluster API noted on the Cluster that AfterControlPlaneUpgrade is pending: the answer came before it.
//!
//! A proof lost after Cluster API's note does not count. A proof lost between the two writes counts, unless an edit less than
//! [`Edit::notice`] before the note removed it, because Sluice may not have observed that edit. An edit of the ClusterBootstrap counts if
//! the record observed it and opened the gate nevertheless. A proof that was missing when the gate opened counts as well, except for
//! values that changed less than [`READ`] before, because Sluice reads them before it writes the record. Without the two writes all
//! missing proofs count.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::feed::Revision;
use super::key::{Key, Kind, Place};

/// The hook that a version of the control plane waits for.
const HOOK: &str = "BeforeControlPlaneUpgrade";

/// Time between the reads for a record and its write.
const READ: Duration = Duration::from_secs(1);

/// Time between Cluster API's note and the write. Cluster API writes the note again now and then without having asked.
const WRITE: Duration = Duration::from_secs(10);

/// Position at which Cluster API noted an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) revision: Revision,
    pub(super) seen: Timestamp,
}

/// The gate of a version that is not written yet, as the record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextGate {
    pub(super) version: String,
    /// Where the record named the version first.
    since: Revision,
    state: State,
    /// By package: how it came to be missing.
    lost: BTreeMap<String, Lost>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    NeverOpen,
    Open,
    /// An answer that was given before may still be on its way.
    Closed(Timestamp),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lost {
    revision: Revision,
    seen: Timestamp,
    /// None if it counts in any case.
    by: Option<Edit>,
}

/// An edit of the desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edit {
    Bootstrap,
    Values,
}

impl Edit {
    fn of(key: &Key) -> Option<Self> {
        match (&key.place, key.kind) {
            (Place::Management, Kind::Bootstrap) => Some(Self::Bootstrap),
            (Place::Management, Kind::Secret | Kind::Provider) => Some(Self::Values),
            _ => None,
        }
    }

    /// Time within which an answer, and Cluster API's note of it, need not know the edit. A ClusterBootstrap is watched; Secrets
    /// and what provides them are read every 10 s.
    fn notice(self) -> Duration {
        match self {
            Self::Bootstrap => Duration::from_secs(1),
            Self::Values => Duration::from_secs(11),
        }
    }
}

impl NextGate {
    /// Takes a write of the ClusterBootstrap: the gate for the version that comes after `current`, as its record has it.
    pub(super) fn recorded(
        gate: Option<Self>,
        (revision, seen): (Revision, Timestamp),
        current: &str,
        bootstrap: &Value,
    ) -> Option<Self> {
        let record = &bootstrap["status"]["upgrade"];
        if record["observedBootstrapGeneration"] != bootstrap["metadata"]["generation"] {
            // The record does not contain the edit yet, so its gates are those before.
            return gate;
        }
        let hop = record["hop"].as_str().filter(|hop| *hop != current)?;
        let is_open = record["gates"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|gate| gate["hook"] == HOOK && gate["version"] == hop && gate["open"] == true);
        let mut gate = gate.filter(|gate| gate.version == hop).unwrap_or_else(|| Self {
            version: hop.to_owned(),
            since: revision,
            state: State::NeverOpen,
            lost: BTreeMap::new(),
        });
        if is_open {
            let opens = gate.state != State::Open;
            for lost in gate.lost.values_mut() {
                let read = opens && between(lost.seen, seen) >= READ;
                if read || lost.by == Some(Edit::Bootstrap) {
                    lost.by = None;
                }
            }
            gate.state = State::Open;
        } else if gate.state == State::Open {
            gate.state = State::Closed(seen);
        }
        Some(gate)
    }

    /// Whether the record has it open.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether an answer may be noted now.
    pub(super) fn may_be_answered(&self, now: Timestamp) -> bool {
        match self.state {
            State::NeverOpen => false,
            State::Open => true,
            State::Closed(closed) => between(closed, now) < Edit::Bootstrap.notice(),
        }
    }

    /// Records the packages that lack a proof after a write.
    pub(super) fn observe(
        &mut self,
        revision: Revision,
        seen: Timestamp,
        key: &Key,
        missing: impl Iterator<Item = String>,
    ) {
        let by = Edit::of(key).filter(|_| self.since != revision);
        let lost = Lost { revision, seen, by };
        let mut before = std::mem::take(&mut self.lost);
        self.lost = missing
            .map(|package| {
                let lost = before.remove(&package).unwrap_or_else(|| lost.clone());
                (package, lost)
            })
            .collect();
    }

    /// Whether the gate is not to blame that `package` is missing at a write that was seen at `written`.
    pub(super) fn excuses(&self, package: &str, answered: Option<Answered>, written: Timestamp) -> bool {
        let Some(lost) = self.lost.get(package) else {
            return false;
        };
        let answered = answered.filter(|answered| between(answered.seen, written) < WRITE);
        let noted = answered.map_or(written, |answered| answered.seen);
        let after = answered.is_some_and(|answered| lost.revision > answered.revision);
        let unnoticed = lost
            .by
            .is_some_and(|edit| between(lost.seen, noted) < edit.notice());
        self.may_be_answered(noted) && (after || unnoticed)
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}
