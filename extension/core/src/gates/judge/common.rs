//! Clauses that all kinds have, or all that observe generations or run containers.

use sluice_crds::labels::label::CAPI_CLUSTER_NAME;

use super::clause::{Clause, Seen};
use super::image::{container, has_version};
use super::object::{is_deleting, is_observed, is_set, label, mistyped, text};
use super::verdict::Verdict;
use crate::gates::expression::{ExpressionError, Variables};
use crate::reasons::CheckReason;

/// The object exists.
pub(super) const EXISTS: Clause = Clause {
    name: "exists",
    met: |seen| seen.object.is_some(),
    objection: |seen| {
        Verdict::waiting(
            CheckReason::ObjectNotFound,
            format!("{} does not exist", seen.name()),
        )
    },
};

/// Each field that a clause reads has its type. Otherwise a clause about a field that is usually absent would be met.
pub(super) const TYPED: Clause = Clause {
    name: "typed",
    met: |seen| mistyped(seen.object(), seen.judge.fields).is_none(),
    objection: |seen| {
        let wrong = mistyped(seen.object(), seen.judge.fields).unwrap_or_default();
        Verdict::waiting(CheckReason::NotObserved, format!("{}: {wrong}", seen.name()))
    },
};

/// The object is the one that the check names. One of a cluster-scoped kind has no namespace.
pub(super) const NAMED: Clause = Clause {
    name: "named",
    met: |seen| {
        let object = seen.object();
        text(object, "/metadata/name") == Some(seen.expected.name)
            && text(object, "/metadata/namespace").unwrap_or_default() == seen.expected.namespace
    },
    objection: |seen| {
        Verdict::waiting(
            CheckReason::BelongsElsewhere,
            format!("another object was read than {}", seen.name()),
        )
    },
};

/// The object has no label of another Cluster.
pub(super) const BELONGS: Clause = Clause {
    name: "belongs",
    met: |seen| {
        label(seen.object(), CAPI_CLUSTER_NAME).is_none_or(|cluster| cluster == seen.expected.cluster)
    },
    objection: |seen| {
        Verdict::waiting(
            CheckReason::BelongsElsewhere,
            format!(
                "label {CAPI_CLUSTER_NAME} of {} names another Cluster",
                seen.name()
            ),
        )
    },
};

/// The object is not being deleted.
pub(super) const NOT_DELETING: Clause = Clause {
    name: "not deleting",
    met: |seen| !is_deleting(seen.object()),
    objection: |seen| {
        Verdict::waiting(
            CheckReason::ObjectDeleting,
            format!("{} is being deleted", seen.name()),
        )
    },
};

/// The image of the container has the expected version.
pub(super) const AT_VERSION: Clause = Clause {
    name: "at version",
    met: |seen| {
        let Some(version) = seen.expected.version else {
            return true;
        };
        let image = seen
            .expected
            .container
            .and_then(|name| container(seen.object(), name))
            .and_then(|container| text(container, "/image"));
        image.is_some_and(|image| has_version(image, version))
    },
    objection: |seen| {
        let (object, name) = (seen.name(), seen.expected.container.unwrap_or_default());
        let message = match container(seen.object(), name) {
            Some(_) => format!("container {name} of {object} is not at {}", seen.version()),
            None => format!("{object} has no container {name}"),
        };
        Verdict::waiting(CheckReason::NotAtVersion, message)
    },
};

/// The controller has observed the latest generation.
pub(super) const OBSERVED: Clause = Clause {
    name: "observed",
    met: |seen| is_observed(seen.object()),
    objection: unobserved,
};

/// The controller has observed the latest generation, if the status tells which one it has observed.
pub(super) const OBSERVED_IF_REPORTED: Clause = Clause {
    name: "observed",
    met: |seen| {
        let object = seen.object();
        !is_set(object, "/status/observedGeneration") || is_observed(object)
    },
    objection: unobserved,
};

/// The expression of the check, if it has one, is true. It is the last clause of each judge: it replaces none of the others.
pub(super) const EXPRESSION: Clause = Clause {
    name: "expression",
    met: |seen| evaluated(seen).is_none_or(|result| result == Ok(true)),
    objection: |seen| {
        if let Some(Err(error)) = evaluated(seen) {
            let message = format!("{} for {}", error.message, seen.name());
            return Verdict::waiting(error.reason, message).with_detail(error.detail);
        }
        let message = format!("the expression is false for {}", seen.name());
        Verdict::waiting(CheckReason::ExpressionFalse, message)
    },
};

/// Returns the result of the expression, if the check has one.
fn evaluated(seen: &Seen<'_>) -> Option<Result<bool, ExpressionError>> {
    let expression = seen.expected.cel?;
    Some(expression.evaluate(&Variables {
        object: seen.object(),
        version: seen.expected.version.unwrap_or_default(),
        hop: seen.expected.hop,
        cluster: seen.cluster,
    }))
}

fn unobserved(seen: &Seen<'_>) -> Verdict {
    Verdict::waiting(
        CheckReason::NotObserved,
        format!("the latest generation of {} is not observed", seen.name()),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::gates::judge::cases::{Given, daemon_set, expression, helm_release, other};

    #[rstest]
    #[case::object(
        other,
        "object.metadata.namespace == 'kube-system' && object.kind == 'Backend'"
    )]
    #[case::version(other, "version == '1.18.2'")]
    #[case::hop(other, "hop.version == 'v1.35.4' && hop.minor == '1.35'")]
    #[case::cluster(other, "cluster.name == 'prod-1' && cluster.labels.cni == 'cilium'")]
    #[case::workload(daemon_set, "object.status.numberAvailable == 3 && version == 'v1.18.2'")]
    #[case::delivery(helm_release, "object.status.history.exists(h, h.chartVersion == version)")]
    fn an_expression_reads_all_variables(#[case] proven: fn() -> Given, #[case] text: &str) {
        let mut given = proven();
        given.cluster = Some(json!({"metadata": {"name": "prod-1", "labels": {"cni": "cilium"}}}));
        given.cel = Some(expression(text));
        assert_eq!(
            given.judged().reason(),
            None,
            "{}: {}",
            given.message(),
            given.detail()
        );
        given.cel = Some(expression(&format!("!({text})")));
        assert_eq!(given.judged().reason(), Some(CheckReason::ExpressionFalse));
    }

    #[test]
    fn a_check_without_a_version_key_has_an_empty_version() {
        let mut given = daemon_set();
        (given.version, given.container) = (None, None);
        given.cel = Some(expression("version == ''"));
        assert_eq!(given.judged().reason(), None, "{}", given.message());
    }

    #[rstest]
    #[case::false_(
        "object.status.ready == false",
        CheckReason::ExpressionFalse,
        "the expression is false for Backend kube-system/cilium",
        ""
    )]
    #[case::absent(
        "object.status.phase == 'Ready'",
        CheckReason::ExpressionFailed,
        "the expression fails for Backend kube-system/cilium",
        "phase is missing; "
    )]
    #[case::text(
        "object.status.version",
        CheckReason::ExpressionFailed,
        "the expression fails for ",
        "its result is of type string; "
    )]
    #[case::cluster(
        "cluster.name == 'prod-1'",
        CheckReason::ExpressionFailed,
        "the expression fails for ",
        "the Cluster was not read"
    )]
    #[case::costly(
        "[1].map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]) \
         .map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x]) == []",
        CheckReason::ExpressionTooCostly,
        "the expression costs too much for Backend kube-system/cilium",
        "it would compare and copy "
    )]
    fn an_expression_that_is_not_true_holds(
        #[case] text: &str,
        #[case] reason: CheckReason,
        #[case] message: &str,
        #[case] detail: &str,
    ) {
        let mut given = other();
        given.cel = Some(expression(text));
        assert_eq!(given.judged().reason(), Some(reason), "{}", given.message());
        assert!(given.message().starts_with(message), "{}", given.message());
        assert!(given.detail().starts_with(detail), "{}", given.detail());
    }

    /// No expression makes up for an object that does not exist, is being deleted, or belongs to another Cluster.
    #[test]
    fn an_expression_replaces_no_other_clause() {
        let mut given = other();
        given.cel = Some(expression("true || object.metadata.name == version"));
        given.set("/metadata", "deletionTimestamp", json!("2026-11-26T10:02:11Z"));
        assert_eq!(given.judged().reason(), Some(CheckReason::ObjectDeleting));
        given.object = None;
        assert_eq!(given.judged().reason(), Some(CheckReason::ObjectNotFound));
    }
}
