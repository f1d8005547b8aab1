//! DaemonSet: each Node that needs a Pod has an available one of the latest template.
//!
//! The controller writes the counters together with `observedGeneration`. Waits of Helm are not read: they accept a DaemonSet that lacks
//! `maxUnavailable` Pods, and one with `OnDelete` at once (helm#8660).

use super::clause::{Clause, Judge, Seen, of_check};
use super::common::{AT_VERSION, BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED, TYPED};
use super::object::{Type, number, text};
use super::verdict::Verdict;
use crate::reasons::CheckReason;

pub(super) static JUDGE: Judge = Judge {
    api_version: "apps/v1",
    kind: "DaemonSet",
    delivers: false,
    fields: &[
        ("/spec/template", Type::Map),
        ("/spec/template/spec", Type::Map),
        ("/spec/template/spec/containers", Type::Containers),
        ("/spec/updateStrategy", Type::Map),
        ("/spec/updateStrategy/type", Type::Text),
        ("/status/observedGeneration", Type::Number),
        (DESIRED, Type::Number),
        (UPDATED, Type::Number),
        (AVAILABLE, Type::Number),
    ],
    clauses: &[
        EXISTS,
        TYPED,
        NAMED,
        BELONGS,
        NOT_DELETING,
        AT_VERSION,
        OBSERVED,
        Clause {
            name: "desired",
            met: |seen| number(seen.object(), DESIRED).is_some_and(|desired| desired >= 1),
            objection: |seen| {
                Verdict::waiting(
                    CheckReason::NotRolledOut,
                    format!("{} is not rolled out: no Node needs a Pod of it", seen.name()),
                )
            },
        },
        Clause {
            name: "updated",
            met: |seen| number(seen.object(), UPDATED) == number(seen.object(), DESIRED),
            objection: not_rolled_out,
        },
        Clause {
            name: "available",
            met: |seen| number(seen.object(), AVAILABLE) == number(seen.object(), DESIRED),
            objection: not_rolled_out,
        },
        EXPRESSION,
    ],
    proving: of_check,
};

const DESIRED: &str = "/status/desiredNumberScheduled";

const UPDATED: &str = "/status/updatedNumberScheduled";

const AVAILABLE: &str = "/status/numberAvailable";

fn not_rolled_out(seen: &Seen<'_>) -> Verdict {
    let name = seen.name();
    let on_delete = text(seen.object(), "/spec/updateStrategy/type") == Some("OnDelete");
    let message = if on_delete {
        format!("{name} is not rolled out: its update strategy is OnDelete, so its Pods have to be deleted")
    } else {
        format!("{name} is not rolled out")
    };
    Verdict::waiting(CheckReason::NotRolledOut, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gates::judge::cases::{
        CONTAINER, OBJECT, OBSERVED as NOT_OBSERVED, Without, Wrong, daemon_set, each_clause_is_needed,
    };

    #[rustfmt::skip]
    const WRONG: &[Wrong] = &[
        ("desired", |given| for count in ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"] { given.set("/status", count, 0.into()); }, CheckReason::NotRolledOut, Without::Proven),
        ("desired", |given| for count in ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"] { given.remove("/status", count); }, CheckReason::NotRolledOut, Without::Proven),
        ("updated", |given| given.set("/status", "updatedNumberScheduled", 2.into()), CheckReason::NotRolledOut, Without::Proven),
        ("updated", |given| given.remove("/status", "updatedNumberScheduled"), CheckReason::NotRolledOut, Without::Proven),
        ("available", |given| given.set("/status", "numberAvailable", 2.into()), CheckReason::NotRolledOut, Without::Proven),
        ("available", |given| given.remove("/status", "numberAvailable"), CheckReason::NotRolledOut, Without::Proven),
    ];

    #[test]
    fn each_clause_of_a_daemon_set_is_needed() {
        each_clause_is_needed(daemon_set, &[OBJECT, CONTAINER, NOT_OBSERVED, WRONG].concat());
    }

    #[test]
    fn a_strategy_that_never_ends_by_itself_is_named() {
        let mut given = daemon_set();
        given.set("/status", "updatedNumberScheduled", 2.into());
        assert_eq!(given.message(), "DaemonSet kube-system/cilium is not rolled out");
        given.set("/spec/updateStrategy", "type", json!("OnDelete"));
        assert_eq!(
            given.message(),
            "DaemonSet kube-system/cilium is not rolled out: its update strategy is OnDelete, so its Pods have to be deleted"
        );
        given.set("/status", "updatedNumberScheduled", 3.into());
        assert_eq!(given.judged().reason(), None);
    }
}
