//! Job: it completed, with the image of the version or under a name with the hop.
//!
//! A Job observes no generation: its Pod template is immutable. A started Job is not a completed one, although Flux treats it as current.

use super::clause::{Clause, Judge, of_check};
use super::common::{AT_VERSION, BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, TYPED};
use super::object::{Type, condition, detail, flag};
use super::verdict::Verdict;
use crate::reasons::CheckReason;

pub(super) static JUDGE: Judge = Judge {
    api_version: "batch/v1",
    kind: "Job",
    delivers: false,
    fields: &[
        ("/spec/template", Type::Map),
        ("/spec/template/spec", Type::Map),
        ("/spec/template/spec/containers", Type::Containers),
        ("/spec/suspend", Type::Flag),
    ],
    clauses: &[
        EXISTS,
        TYPED,
        NAMED,
        BELONGS,
        NOT_DELETING,
        AT_VERSION,
        Clause {
            name: "not suspended",
            met: |seen| !flag(seen.object(), "/spec/suspend"),
            objection: |seen| {
                Verdict::waiting(
                    CheckReason::DeliverySuspended,
                    format!("{} is suspended", seen.name()),
                )
            },
        },
        Clause {
            name: "not failed",
            met: |seen| condition(seen.object(), "Failed", "True").is_none(),
            objection: |seen| Verdict::Failed {
                reason: CheckReason::NotComplete,
                message: format!("{} failed", seen.name()),
                detail: detail(seen.object(), &[("Failed", "True")]),
            },
        },
        Clause {
            name: "complete",
            met: |seen| condition(seen.object(), "Complete", "True").is_some(),
            objection: |seen| {
                Verdict::waiting(
                    CheckReason::NotComplete,
                    format!("{} is not complete", seen.name()),
                )
            },
        },
        EXPRESSION,
    ],
    proving: of_check,
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gates::judge::cases::{CONTAINER, OBJECT, Without, Wrong, each_clause_is_needed, job};

    #[rustfmt::skip]
    const WRONG: &[Wrong] = &[
        ("not suspended", |given| given.set("/spec", "suspend", true.into()), CheckReason::DeliverySuspended, Without::Proven),
        ("typed", |given| given.set("/spec", "suspend", "true".into()), CheckReason::NotObserved, Without::Proven),
        ("not failed", |given| given.set("/status/conditions/0", "type", "Failed".into()), CheckReason::NotComplete, Without::Proven),
        ("complete", |given| given.set("/status/conditions/1", "status", "False".into()), CheckReason::NotComplete, Without::Proven),
        ("complete", |given| given.set("/status/conditions/1", "status", "Unknown".into()), CheckReason::NotComplete, Without::Proven),
        ("complete", |given| given.remove("/status", "conditions"), CheckReason::NotComplete, Without::Proven),
    ];

    #[test]
    fn each_clause_of_a_job_is_needed() {
        each_clause_is_needed(job, &[OBJECT, CONTAINER, WRONG].concat());
    }

    #[test]
    fn a_failed_job_is_a_failure_and_its_condition_the_detail() {
        let mut given = job();
        let failed =
            json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"});
        given.set("/status", "conditions", json!([failed]));
        assert_eq!(
            given.judged(),
            Verdict::Failed {
                reason: CheckReason::NotComplete,
                message: "Job kube-system/cilium failed".to_owned(),
                detail: "Failed=True (BackoffLimitExceeded): limit".to_owned(),
            }
        );
    }

    /// The record has neither the name of the Job nor the hop, so a recorded completion may be that of another Job.
    #[test]
    fn a_recorded_completion_is_no_job() {
        let mut given = job();
        given.record();
        given.object = None;
        assert_eq!(given.judged().reason(), Some(CheckReason::ObjectNotFound));
    }
}
