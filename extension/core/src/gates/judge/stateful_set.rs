//! StatefulSet: all replicas run the latest template and are available. A partition, or `OnDelete`, leaves updated Pods behind.

use super::clause::{Judge, of_check};
use super::replicas::{CLAUSES, FIELDS};

pub(super) static JUDGE: Judge = Judge {
    api_version: "apps/v1",
    kind: "StatefulSet",
    delivers: false,
    fields: FIELDS,
    clauses: CLAUSES,
    proving: of_check,
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::replicas::WRONG;
    use crate::gates::judge::cases::{CONTAINER, OBJECT, OBSERVED, each_clause_is_needed, stateful_set};

    #[test]
    fn each_clause_of_a_stateful_set_is_needed() {
        each_clause_is_needed(stateful_set, &[OBJECT, CONTAINER, OBSERVED, WRONG].concat());
    }

    #[test]
    fn a_strategy_that_never_ends_by_itself_is_named() {
        let mut given = stateful_set();
        given.set("/status", "updatedReplicas", 2.into());
        assert_eq!(
            given.message(),
            "StatefulSet kube-system/cilium is not rolled out"
        );
        given.set("/spec/updateStrategy", "rollingUpdate", json!({"partition": 1}));
        assert_eq!(
            given.message(),
            "StatefulSet kube-system/cilium is not rolled out: a partition of its update strategy keeps Pods at the earlier template"
        );
        given.set("/spec", "updateStrategy", json!({"type": "OnDelete"}));
        assert_eq!(
            given.message(),
            "StatefulSet kube-system/cilium is not rolled out: its update strategy is OnDelete, so its Pods have to be deleted"
        );
    }
}
