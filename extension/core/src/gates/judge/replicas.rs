//! Clauses of workloads with replicas: all of them run the latest template and are available, and no other Pod is left.

use super::clause::{Clause, Seen};
use super::common::{AT_VERSION, BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED, TYPED};
use super::object::{Field, Type, detail, flag, number, text};
use super::verdict::Verdict;
use crate::reasons::CheckReason;

const DESIRED: &str = "/spec/replicas";

const EXISTING: &str = "/status/replicas";

const UPDATED: &str = "/status/updatedReplicas";

const AVAILABLE: &str = "/status/availableReplicas";

const PARTITION: &str = "/spec/updateStrategy/rollingUpdate/partition";

/// Fields that the clauses read.
pub(super) const FIELDS: &[Field] = &[
    ("/spec/paused", Type::Flag),
    ("/spec/template", Type::Map),
    ("/spec/template/spec", Type::Map),
    ("/spec/template/spec/containers", Type::Containers),
    ("/spec/updateStrategy", Type::Map),
    ("/spec/updateStrategy/type", Type::Text),
    ("/spec/updateStrategy/rollingUpdate", Type::Map),
    (PARTITION, Type::Number),
    ("/status/observedGeneration", Type::Number),
    (DESIRED, Type::Number),
    (EXISTING, Type::Number),
    (UPDATED, Type::Number),
    (AVAILABLE, Type::Number),
];

/// All clauses of a kind with replicas.
pub(super) const CLAUSES: &[Clause] = &[
    EXISTS,
    TYPED,
    NAMED,
    BELONGS,
    NOT_DELETING,
    AT_VERSION,
    NOT_PAUSED,
    OBSERVED,
    REPLICAS_DESIRED,
    NO_OTHER_REPLICAS,
    REPLICAS_UPDATED,
    REPLICAS_AVAILABLE,
    EXPRESSION,
];

/// The rollout is not paused.
const NOT_PAUSED: Clause = Clause {
    name: "not paused",
    met: |seen| !flag(seen.object(), "/spec/paused"),
    objection: |seen| {
        Verdict::waiting(
            CheckReason::DeliverySuspended,
            format!("{} is paused", seen.name()),
        )
    },
};

/// The workload has at least one replica.
const REPLICAS_DESIRED: Clause = Clause {
    name: "desired",
    met: |seen| number(seen.object(), DESIRED).is_some_and(|desired| desired >= 1),
    objection: |seen| {
        Verdict::waiting(
            CheckReason::NotRolledOut,
            format!(
                "{} is not rolled out: spec.replicas is not at least 1",
                seen.name()
            ),
        )
    },
};

/// No Pod is left beside the desired ones.
const NO_OTHER_REPLICAS: Clause = Clause {
    name: "no other Pods",
    met: |seen| is_desired(seen, EXISTING),
    objection: not_rolled_out,
};

/// All replicas run the latest template.
const REPLICAS_UPDATED: Clause = Clause {
    name: "updated",
    met: |seen| is_desired(seen, UPDATED),
    objection: not_rolled_out,
};

/// All replicas are available.
const REPLICAS_AVAILABLE: Clause = Clause {
    name: "available",
    met: |seen| is_desired(seen, AVAILABLE),
    objection: not_rolled_out,
};

fn is_desired(seen: &Seen<'_>, count: &str) -> bool {
    let object = seen.object();
    number(object, count).unwrap_or_default() == number(object, DESIRED).unwrap_or_default()
}

fn not_rolled_out(seen: &Seen<'_>) -> Verdict {
    let (object, name) = (seen.object(), seen.name());
    let on_delete = text(object, "/spec/updateStrategy/type") == Some("OnDelete");
    let partition = number(object, PARTITION).unwrap_or_default();
    let message = if on_delete {
        format!("{name} is not rolled out: its update strategy is OnDelete, so its Pods have to be deleted")
    } else if partition > 0 {
        format!(
            "{name} is not rolled out: a partition of its update strategy keeps Pods at the earlier template"
        )
    } else {
        format!("{name} is not rolled out")
    };
    let conditions = [
        ("ReplicaFailure", "True"),
        ("Progressing", "False"),
        ("Available", "False"),
    ];
    Verdict::waiting(CheckReason::NotRolledOut, message).with_detail(detail(object, &conditions))
}

/// Cases of the kinds with replicas.
#[cfg(test)]
#[rustfmt::skip]
pub(super) const WRONG: &[super::cases::Wrong] = {
    use super::cases::Without;
    &[
        ("not paused", |given| given.set("/spec", "paused", true.into()), CheckReason::DeliverySuspended, Without::Proven),
        ("typed", |given| given.set("/spec", "paused", "true".into()), CheckReason::NotObserved, Without::Proven),
        ("typed", |given| given.set("/status", "replicas", "3".into()), CheckReason::NotObserved, Without::Unlike),
        ("desired", |given| { given.set("/spec", "replicas", 0.into()); for count in COUNTS { given.set("/status", count, 0.into()); } }, CheckReason::NotRolledOut, Without::Proven),
        ("desired", |given| { given.remove("/spec", "replicas"); for count in COUNTS { given.remove("/status", count); } }, CheckReason::NotRolledOut, Without::Proven),
        ("no other Pods", |given| given.set("/status", "replicas", 4.into()), CheckReason::NotRolledOut, Without::Proven),
        ("no other Pods", |given| given.remove("/status", "replicas"), CheckReason::NotRolledOut, Without::Proven),
        ("updated", |given| given.set("/status", "updatedReplicas", 2.into()), CheckReason::NotRolledOut, Without::Proven),
        ("updated", |given| given.remove("/status", "updatedReplicas"), CheckReason::NotRolledOut, Without::Proven),
        ("available", |given| given.set("/status", "availableReplicas", 2.into()), CheckReason::NotRolledOut, Without::Proven),
        ("available", |given| given.remove("/status", "availableReplicas"), CheckReason::NotRolledOut, Without::Proven),
    ]
};

#[cfg(test)]
const COUNTS: [&str; 3] = ["replicas", "updatedReplicas", "availableReplicas"];
