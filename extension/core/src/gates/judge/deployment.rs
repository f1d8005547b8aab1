//! Deployment: all replicas run the latest template and are available, and no Pod of an earlier one is left.

use super::clause::{Judge, of_check};
use super::replicas::{CLAUSES, FIELDS};

pub(super) static JUDGE: Judge = Judge {
    api_version: "apps/v1",
    kind: "Deployment",
    delivers: false,
    fields: FIELDS,
    clauses: CLAUSES,
    proving: of_check,
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::replicas::WRONG;
    use crate::gates::judge::cases::{CONTAINER, OBJECT, OBSERVED, deployment, each_clause_is_needed};

    #[test]
    fn each_clause_of_a_deployment_is_needed() {
        each_clause_is_needed(deployment, &[OBJECT, CONTAINER, OBSERVED, WRONG].concat());
    }

    #[test]
    fn the_condition_of_a_stuck_rollout_is_the_detail() {
        let mut given = deployment();
        given.set("/status", "availableReplicas", 0.into());
        given.set(
            "/status",
            "conditions",
            json!([
                {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "few"},
                {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed\nout"},
            ]),
        );
        assert_eq!(given.message(), "Deployment kube-system/cilium is not rolled out");
        assert_eq!(
            given.detail(),
            "Progressing=False (ProgressDeadlineExceeded): timed out"
        );
    }
}
