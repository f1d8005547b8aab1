//! Exceptions that a ClusterBootstrap asks for, by the names that its user writes.

use serde_json::{Value, json};

use super::story::{NEW, OLD, Story};

fn with_policy(policy: Value) -> Story {
    let mut story = Story::until_bump();
    let mut policy = policy;
    policy["package"] = json!("antrea");
    story.bootstrap_with(json!({"spec": {
        "cni": {"refName": "antrea.a.test.2.0.0"},
        "upgradePolicy": {"packages": [policy]},
    }}));
    story
}

/// With a ClusterBootstrap that has antrea 1.0.0.
fn keeping(kept: &str) -> Story {
    keeping_of(kept, &json!({"cni": {"refName": "antrea.a.test.1.0.0"}}))
}

fn keeping_of(kept: &str, spec: &Value) -> Story {
    let mut story = Story::until_bump();
    story.bootstrap_with(json!({
        "metadata": {"annotations": {"lifecycle.sluice.dev/keep-package-versions": kept}},
        "spec": spec,
    }));
    story
}

fn without_antrea(kept: &str) -> Story {
    let mut story = keeping_of(kept, &json!({}));
    story.delete("/wl/u/packaging.carvel.dev/packageinstalls/tkg-system/one-antrea");
    story.delete("/wl/u/kappctrl.k14s.io/apps/tkg-system/one-antrea");
    story
}

#[test]
fn a_package_of_the_later_phase_does_not_keep_the_control_plane() {
    let mut story = with_policy(json!({"phase": "AfterControlPlane"}));
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_package_of_the_later_phase_keeps_the_workers() {
    let mut story = with_policy(json!({"phase": "AfterControlPlane"}));
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.workers(NEW);
    story.is_early("MachineDeployment", "1.0.0");
}

#[test]
fn an_applied_package_need_not_be_finished() {
    let mut story = with_policy(json!({"readiness": "Applied"}));
    story.begin();
    story.app_deploys("2.0.0", 2, "2026-01-01T00:00:02Z");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_package_that_failed_or_was_stopped_is_not_applied() {
    let failed = |app: &mut Value| app["status"]["conditions"][0]["type"] = json!("ReconcileFailed");
    let paused = |app: &mut Value| app["spec"]["paused"] = json!(true);
    let canceled = |app: &mut Value| app["spec"]["canceled"] = json!(true);
    for stop in [failed as fn(&mut Value), paused, canceled] {
        let mut story = with_policy(json!({"readiness": "Applied"}));
        story.begin();
        story.app_deploys("2.0.0", 2, "2026-01-01T00:00:02Z");
        story.edit_app(stop);
        story.control_plane(NEW, OLD);
        story.is_early("control plane", "App generation 2");
    }
}

/// Until its run deploys, an App shows the deployment of the run before.
#[test]
fn a_package_is_not_applied_by_the_run_before() {
    let mut story = with_policy(json!({"readiness": "Applied"}));
    story.app_deploys("1.0.0", 1, "2026-01-01T00:00:01Z");
    story.app_deploys("2.0.0", 2, "2026-01-01T00:00:01Z");
    story.install("2.0.0", 2, 2, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "Reconciling");
}

/// A run at the generation before goes on for a while.
#[test]
fn a_package_is_not_applied_by_a_run_that_began_before_it_was_asked_for() {
    let mut story = with_policy(json!({"readiness": "Applied"}));
    story.app("1.0.0", 1, 1, "Reconciling");
    let old_run = json!({
        "observedGeneration": 1,
        "conditions": [{"type": "Reconciling", "status": "True"}],
        "deploy": {"startedAt": "2026-01-01T00:00:02Z"},
    });
    story.app_with("2.0.0", 2, &old_run);
    story.app_deploys("2.0.0", 2, "2026-01-01T00:00:02Z");
    story.install("2.0.0", 2, 2, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "Reconciling");
}

/// No run has deployed anything.
#[test]
fn a_package_that_kapp_controller_fetches_is_not_applied() {
    let mut story = with_policy(json!({"readiness": "Applied"}));
    story.begin();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "Reconciling");
}

#[test]
fn an_applied_package_is_applied_again_on_the_new_api_server() {
    let mut story = with_policy(json!({"readiness": "Applied"}));
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.workers(NEW);
    story.is_early("MachineDeployment", "older than");
}

#[test]
fn an_exception_for_another_package_is_none() {
    let mut story = Story::until_bump();
    story.bootstrap_with(json!({"spec": {
        "cni": {"refName": "antrea.a.test.2.0.0"},
        "upgradePolicy": {"packages": [{"package": "antre", "phase": "AfterControlPlane"}]},
    }}));
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "1.0.0");
}

/// `spec.upgradePolicy` knows packages by short name only.
#[test]
fn a_policy_for_a_ref_name_is_none() {
    let mut story = Story::until_bump();
    story.bootstrap_with(json!({"spec": {
        "cni": {"refName": "antrea.a.test.2.0.0"},
        "upgradePolicy": {"packages": [
            {"package": "antrea.a.test", "phase": "AfterControlPlane", "readiness": "Applied"},
        ]},
    }}));
    story.begin();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "Reconciling");
}

#[test]
fn a_package_that_is_kept_is_expected_at_that_version() {
    for kept in [
        "antrea=1.0.0",
        "antrea.a.test=1.0.0",
        "metrics=none, antrea = 1.0.0",
    ] {
        let mut story = keeping(kept);
        story.control_plane(NEW, OLD);
        story.is_in_order();
    }
}

#[test]
fn a_version_of_its_user_that_is_kept_stands_for_a_higher_one_of_the_template() {
    for kept in ["antrea=1.5.0", "antrea.a.test=1.5.0"] {
        let mut story = keeping_of(kept, &json!({"cni": {"refName": "antrea.a.test.1.5.0"}}));
        story.package("1.5.0");
        story.prove("1.5.0", 2);
        story.control_plane(NEW, OLD);
        story.is_in_order();
    }
}

#[test]
fn an_annotation_for_another_package_keeps_nothing() {
    for kept in ["antrea.a=1.0.0", "antre=1.0.0", "antrea.a.test.1.0.0=1.0.0"] {
        let mut story = keeping(kept);
        story.control_plane(NEW, OLD);
        story.is_early("control plane", "antrea.a.test.2.0.0");
    }
}

#[test]
fn a_package_that_is_kept_at_another_version_than_it_runs_is_missing() {
    let mut story = keeping_of(
        "antrea=1.0.1",
        &json!({"cni": {"refName": "antrea.a.test.1.0.1"}}),
    );
    story.package("1.0.1");
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.1.0.1");
}

/// An annotation from an earlier upgrade is about the version of that time.
#[test]
fn an_annotation_for_a_version_that_the_cluster_does_not_have_keeps_nothing() {
    let after_the_upgrade = json!({"cni": {"refName": "antrea.a.test.2.0.0"}});
    let mut story = keeping_of("antrea=1.0.0", &after_the_upgrade);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.0");

    let mut story = keeping_of("antrea=1.0.0", &after_the_upgrade);
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_package_that_is_left_out_on_purpose_is_not_expected() {
    for kept in ["antrea=none", "antrea.a.test=none"] {
        let mut story = without_antrea(kept);
        story.control_plane(NEW, OLD);
        story.is_in_order();
    }
}

#[test]
fn a_package_is_missing_where_another_one_is_left_out() {
    let mut story = without_antrea("antrea.a=none");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "not installed");
}

/// `none` is about a package that the cluster does not have.
#[test]
fn a_package_that_the_cluster_has_is_not_left_out() {
    let mut story = keeping("antrea=none");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.0");
}
