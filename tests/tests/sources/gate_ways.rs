//! Tests of each way to release early, and of each way to hold forever, that the design of UpgradeGates lists.
#![expect(clippy::expect_used, reason = "a test that cannot read its inputs has failed")]

use std::fs;

use sluice_tests::sources::root;

/// File, and function in it. A case of a table follows after `::`.
type Test = (&'static str, &'static str);

/// One way, with its tests.
type Way = (&'static str, &'static [Test]);

const JUDGES: &str = "extension/core/src/gates/judge/tests.rs";
const PROXY: &str = "extension/core/src/gates/judge/helm_chart_proxy/tests.rs";
const JOB: &str = "extension/core/src/gates/judge/job.rs";
const COMPILED: &str = "extension/core/src/gates/compiled/tests.rs";
const RECONCILE: &str = "extension/core/src/gates/reconcile/tests.rs";
const EXPRESSIONS: &str = "extension/core/src/gates/reconcile/tests/expressions.rs";
const EVALUATED: &str = "extension/core/src/gates/expression/tests.rs";
const RECORD: &str = "extension/core/src/gates/record/tests.rs";
const STATUS: &str = "extension/core/src/gates/gate_status.rs";
const DECISION: &str = "extension/core/src/gate/decision/by_gates/tests.rs";
const INDEX: &str = "extension/core/src/gate/index/tests/by_gates.rs";
const STORES: &str = "extension/src/cache/gate_stores/tests.rs";
const NAMED: &str = "extension/core/tests/gate_walks/named.rs";
const PLANTED: &str = "extension/core/tests/gate_walks/planted.rs";
const RANDOM: &str = "extension/core/tests/gate_walks/random.rs";
const POLICY: &str = "tests/tests/real/policies/gates.rs";

/// The table of judged objects, which has the number of the way in each row.
const JUDGED: Test = (JUDGES, "no_way_to_release_early_is_a_proof");

/// Ways to release early, in the order of the design.
#[rustfmt::skip]
const EARLY: [Way; 26] = [
    ("Ready of an older generation", &[
        JUDGED,
        (PLANTED, "a_planted_judge_of_flux_is_found::helm_release_not_reconciled"),
        (PLANTED, "a_planted_judge_of_flux_is_found::kustomization_not_fetched"),
    ]),
    ("source, values or Cluster changed, object did not", &[
        JUDGED,
        (NAMED, "a_helm_release_that_is_not_complete_holds::behind_its_source"),
        (NAMED, "a_kustomization_that_is_not_complete_holds::new_commit"),
        (PLANTED, "a_planted_judge_of_flux_is_found::kustomization_without_source"),
    ]),
    ("suspended, paused, InstallOnce", &[
        JUDGED,
        (NAMED, "a_delivery_that_is_not_complete_holds::installed_once"),
        (NAMED, "a_helm_release_that_is_not_complete_holds::suspended_with_the_version"),
        (NAMED, "a_kustomization_that_is_not_complete_holds::suspended_with_another_path"),
        (PLANTED, "a_planted_judge_of_flux_is_found::helm_release_suspended"),
        (PLANTED, "a_planted_judge_of_flux_is_found::kustomization_suspended"),
    ]),
    ("acknowledged, nothing done", &[
        (COMPILED, "an_invalid_gate_names_field_value_and_remedy::no_tie"),
        (NAMED, "a_helm_release_that_is_not_complete_holds::requested"),
        (NAMED, "a_kustomization_that_is_not_complete_holds::requested"),
        (PLANTED, "a_planted_judge_of_flux_is_found::helm_release_requested"),
    ]),
    ("applied, not running", &[
        (COMPILED, "an_invalid_gate_names_field_value_and_remedy::delivery_only"),
        (NAMED, "an_agent_that_does_not_run_holds::not_counted"),
    ]),
    ("Helm's wait counted maxUnavailable or OnDelete", &[
        JUDGED,
        (NAMED, "an_agent_that_does_not_run_holds::one_pod_left"),
        (NAMED, "an_agent_that_does_not_run_holds::never_replaced"),
    ]),
    ("rollback succeeded at the old version", &[
        (NAMED, "a_helm_release_that_is_not_complete_holds::rolled_back"),
        (NAMED, "a_helm_release_that_is_not_complete_holds::reverted"),
        (PLANTED, "a_planted_judge_of_flux_is_found::helm_release_rolled_back"),
    ]),
    ("HelmChartProxy edited, HelmReleaseProxy not yet", &[
        JUDGED,
        (NAMED, "a_delivery_that_is_not_complete_holds::not_reconciled"),
        (PLANTED, "a_planted_defect_is_found::not_delivered_yet"),
        (PLANTED, "a_planted_defect_is_found::blocked_by_another_cluster"),
    ]),
    ("chart of one row, image of another", &[
        (RECONCILE, "all_checks_of_a_gate_match_the_same_row"),
        (NAMED, "a_gate_is_passed_only_by_its_ways_out::rows_mixed"),
    ]),
    ("object absent, kind not served, no pod desired", &[
        JUDGED,
        (RECONCILE, "what_cannot_be_read_holds_with_a_reason_and_recovers"),
        (NAMED, "an_agent_that_does_not_run_holds::deleted"),
        (PLANTED, "a_planted_judge_of_other_objects_is_found::definition"),
    ]),
    ("range, latest, loose comparison", &[
        JUDGED,
        (COMPILED, "an_invalid_gate_names_field_value_and_remedy::latest"),
        (COMPILED, "an_invalid_gate_names_field_value_and_remedy::chart_minor"),
    ]),
    ("object of another Cluster", &[
        JUDGED,
        (RECORD, "a_latch_is_of_the_same_workload_cluster"),
        (PLANTED, "a_planted_judge_of_flux_is_found::helm_release_elsewhere"),
        (PLANTED, "a_planted_judge_of_flux_is_found::kustomization_elsewhere"),
    ]),
    ("object or Cluster recreated under the same name", &[
        JUDGED,
        (RECONCILE, "a_record_of_an_earlier_cluster_is_replaced"),
        (NAMED, "a_gate_is_passed_only_by_its_ways_out::cluster_created_again"),
        (NAMED, "a_helm_release_that_is_not_complete_holds::created_again"),
    ]),
    ("proof of hop 1 used for hop 2", &[
        (RECONCILE, "each_hop_needs_its_own_row"),
        (RECORD, "each_hop_has_its_own_gates"),
        (NAMED, "two_hops_need_a_row_each"),
    ]),
    ("proof of the old API server used for workers", &[
        (RECONCILE, "a_proof_of_the_old_api_server_releases_no_workers"),
        (NAMED, "workers_wait_for_a_proof_of_the_new_api_server"),
    ]),
    ("CEL error, wrong type, too costly, panic", &[
        (EVALUATED, "a_failing_expression_says_why"),
        (EVALUATED, "an_expression_that_costs_too_much_is_not_evaluated"),
        (EVALUATED, "no_text_overflows_a_small_stack"),
        (EXPRESSIONS, "an_expression_that_costs_too_much_is_counted_as_such"),
        (NAMED, "a_definition_or_an_expression_that_is_not_true_holds::no_status"),
        (PLANTED, "a_planted_judge_of_other_objects_is_found::expression"),
    ]),
    ("CEL that ignores the object", &[
        JUDGED,
        (COMPILED, "an_invalid_gate_names_field_value_and_remedy::no_tie"),
    ]),
    ("old gate manifest applied, row removed", &[
        (RECONCILE, "edits_of_a_gate_are_judged_at_once"),
        (NAMED, "a_gate_is_passed_only_by_its_ways_out::old_manifest"),
        (NAMED, "an_open_gate_closes_again::row_removed"),
    ]),
    ("Cluster relabelled", &[
        (INDEX, "a_cluster_that_was_relabelled"),
        (RECONCILE, "a_gate_that_no_longer_selects_the_cluster_holds_until"),
        (NAMED, "a_gate_is_passed_only_by_its_ways_out::label_removed"),
        (PLANTED, "a_planted_defect_is_found::labels_of_the_request"),
    ]),
    ("gate pruned by GitOps", &[
        (POLICY, "gates_that_hold_are_not_deleted_and_their_edits_are_reviewed"),
    ]),
    ("replica without the gate in its cache", &[
        (INDEX, "a_lookup_before_the_list_of_gates_releases_nothing"),
        (INDEX, "a_release_is_confirmed_by_the_cluster_upgrade"),
        (PLANTED, "a_planted_defect_is_found::release_not_confirmed"),
    ]),
    ("selected older than the gate", &[
        (DECISION, "every_gate_that_selects_has_to_be_observed"),
        (RANDOM, "no_version_is_written_early_and_no_hold_lasts_forever"),
    ]),
    ("watch behind when the gate opens", &[
        (RECONCILE, "an_outdated_cache_opens_no_gate_and_is_reported_after_two_minutes"),
        (NAMED, "a_cache_that_is_behind_opens_nothing"),
        (PLANTED, "a_planted_defect_is_found::not_confirmed"),
    ]),
    ("packages agree, gates do not, or the reverse", &[
        (INDEX, "a_release_needs_packages_and_gates"),
    ]),
    ("RBAC of Sluice missing", &[
        (STORES, "a_missing_rule_holds_until_it_is_added"),
    ]),
    ("no topology, RuntimeSDK off, namespace not selected", &[
        (STATUS, "a_gate_is_not_in_force_for_a_cluster::without_topology"),
        (STATUS, "a_gate_of_an_unasked_namespace_is_not_in_force"),
    ]),
];

/// Ways to hold forever, in the order of the design.
#[rustfmt::skip]
const FOREVER: [Way; 11] = [
    ("no row for the hop", &[
        (RECONCILE, "a_hop_without_a_row_holds_until_the_row_is_added"),
        (NAMED, "a_hold_ends_by_its_way_out::no_row"),
    ]),
    ("wrong CEL, wrong object name", &[
        (EXPRESSIONS, "an_expression_that_fails_is_counted_once_and_ends_with_its_correction"),
        (EXPRESSIONS, "a_drift_check_reports_an_expression_that_fails"),
        (RECONCILE, "a_drift_check_reports_an_unproven_check"),
        (RECONCILE, "edits_of_a_gate_are_judged_at_once"),
    ]),
    ("add-on already above the row", &[
        (NAMED, "a_hold_ends_by_its_way_out::above_the_row"),
    ]),
    ("Ready stuck although deployed", &[
        (PROXY, "the_condition_of_the_proxy_explains_a_late_release"),
        (NAMED, "a_hold_ends_by_its_way_out::never_at_rest"),
    ]),
    ("HelmChartProxy blocked by another Cluster's values", &[
        (PROXY, "the_condition_of_the_proxy_explains_a_late_release"),
        (NAMED, "a_hold_ends_by_its_way_out::blocked_by_another_cluster"),
    ]),
    ("OnDelete DaemonSet", &[
        (NAMED, "a_hold_ends_by_its_way_out::pods_never_replaced"),
    ]),
    ("Job deleted before it completed", &[
        JUDGED,
        (JOB, "a_recorded_completion_is_no_job"),
    ]),
    ("kind not served, forbidden, too large", &[
        (RECONCILE, "what_cannot_be_read_holds_with_a_reason_and_recovers"),
    ]),
    ("Cluster API's own annotation hook is set", &[
        (RECONCILE, "a_pause_holds::at_its_start"),
    ]),
    ("GitOps reverts the edit", &[
        (NAMED, "a_gate_is_passed_only_by_its_ways_out::audit_reverted"),
    ]),
    ("deadline passed", &[
        (RECONCILE, "a_deadline_is_reported"),
    ]),
];

/// Whether the file has the test, and its case.
fn exists((file, test): Test) -> bool {
    let source = fs::read_to_string(root().join(file)).expect("read the file of a test");
    let (function, case) = test
        .split_once("::")
        .map_or((test, None), |(function, case)| (function, Some(case)));
    let Some(at) = source.find(&format!("fn {function}(")) else {
        return false;
    };
    // The attributes of a function begin after the end of the item before it.
    let attributes = source[..at].rsplit("\n}\n").next().unwrap_or_default();
    let is_test = ["#[test]", "#[rstest]", "::test"];
    is_test.iter().any(|attribute| attributes.contains(attribute))
        && case.is_none_or(|case| attributes.contains(&format!("#[case::{case}(")))
}

#[test]
fn each_way_names_tests_that_exist() {
    for (number, (way, tests)) in EARLY.iter().chain(&FOREVER).enumerate() {
        assert!(!tests.is_empty(), "{number}: {way}");
        for test in *tests {
            assert!(exists(*test), "{number}: {way}: {test:?}");
        }
    }
}

/// A way that names the table of judged objects has a row in it.
#[test]
fn the_table_of_judges_has_the_ways_that_name_it() {
    let table = fs::read_to_string(root().join(JUDGES)).expect("read the table");
    for (at, (way, tests)) in EARLY.iter().enumerate() {
        let number = at + 1;
        assert!(
            !tests.contains(&JUDGED) || table.contains(&format!("\n    ({number}, ")),
            "{number}: {way}"
        );
    }
}
