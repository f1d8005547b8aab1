//! Any other kind, by the expression of its check.
//!
//! Nothing is known of its spec and status. What every object has still counts: an expression replaces neither existence, generation,
//! deletion nor the Cluster of the object.

use super::clause::{Clause, Judge, of_check};
use super::common::{BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED_IF_REPORTED};
use super::object::{Field, Type, mistyped_other};
use super::verdict::Verdict;
use crate::reasons::CheckReason;

const FIELDS: &[Field] = &[("/status/observedGeneration", Type::Number)];

pub(super) static JUDGE: Judge = Judge {
    api_version: "",
    kind: "",
    delivers: false,
    fields: FIELDS,
    clauses: &[
        EXISTS,
        // Conditions of other kinds may have any type.
        Clause {
            name: "typed",
            met: |seen| mistyped_other(seen.object(), FIELDS).is_none(),
            objection: |seen| {
                let wrong = mistyped_other(seen.object(), FIELDS).unwrap_or_default();
                Verdict::waiting(CheckReason::NotObserved, format!("{}: {wrong}", seen.name()))
            },
        },
        NAMED,
        BELONGS,
        NOT_DELETING,
        OBSERVED_IF_REPORTED,
        // A valid gate has one. Nothing else would be proven.
        Clause {
            name: "has an expression",
            met: |seen| seen.expected.cel.is_some(),
            objection: |seen| {
                let message = format!("the check of {} has no expression", seen.name());
                Verdict::waiting(CheckReason::ExpressionFailed, message)
            },
        },
        EXPRESSION,
    ],
    proving: of_check,
};

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::gates::judge::cases::{OBJECT, Without, Wrong, each_clause_is_needed, expression, other};

    #[rustfmt::skip]
    const WRONG: &[Wrong] = &[
        ("observed", |given| given.set("/metadata", "generation", json!(4)), CheckReason::NotObserved, Without::Proven),
        ("typed", |given| given.set("/status", "observedGeneration", json!("3")), CheckReason::NotObserved, Without::Unlike),
        ("has an expression", |given| given.cel = None, CheckReason::ExpressionFailed, Without::Proven),
        (EXPRESSION.name, |given| given.set("/status", "ready", json!(false)), CheckReason::ExpressionFalse, Without::Proven),
        (EXPRESSION.name, |given| given.remove("/status", "ready"), CheckReason::ExpressionFailed, Without::Proven),
        (EXPRESSION.name, |given| given.version = Some("1.18.3"), CheckReason::ExpressionFalse, Without::Proven),
    ];

    #[test]
    fn each_clause_of_another_kind_is_needed() {
        each_clause_is_needed(other, &[OBJECT, WRONG].concat());
    }

    /// ConfigMaps have no generation, and some kinds have other conditions than those of the Kubernetes API conventions.
    #[rstest]
    #[case::without_generation(|object: &mut Value| { object["metadata"]["generation"] = Value::Null; object["status"]["observedGeneration"] = Value::Null; })]
    #[case::without_observed_generation(|object: &mut Value| object["status"]["observedGeneration"] = Value::Null)]
    #[case::with_other_conditions(|object: &mut Value| object["status"]["conditions"] = json!({"ready": true}))]
    #[case::with_another_spec(|object: &mut Value| object["spec"] = json!("text"))]
    #[case::without_spec(|object: &mut Value| object["spec"] = Value::Null)]
    fn an_object_of_another_shape_is_judged_by_its_expression(#[case] edit: fn(&mut Value)) {
        let mut given = other();
        edit(given.object.as_mut().unwrap());
        assert_eq!(given.judged().reason(), None, "{}", given.message());
        given.cel = Some(expression("object.metadata.name == 'calico'"));
        assert_eq!(given.judged().reason(), Some(CheckReason::ExpressionFalse));
    }

    #[test]
    fn the_kind_of_the_check_is_named() {
        let mut given = other();
        given.object = None;
        assert_eq!(given.message(), "Backend kube-system/cilium does not exist");
        given.namespace = "";
        assert_eq!(given.message(), "Backend cilium does not exist", "cluster-scoped");
    }
}
