//! Exceptions that a ClusterBootstrap asks for, by the short names that its user writes.

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

fn keeping(kept: &str) -> Story {
    let mut story = Story::until_bump();
    story.bootstrap_with(json!({
        "metadata": {"annotations": {"lifecycle.sluice.dev/keep-package-versions": kept}},
        "spec": {"cni": {"refName": "antrea.a.test.1.0.0"}},
    }));
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
    story.app("2.0.0", 2, 1, "ReconcileSucceeded");
    story.install("2.0.0", 2, 2, "ReconcileSucceeded");
    story.app("2.0.0", 2, 2, "Reconciling");
    story.control_plane(NEW, OLD);
    story.is_in_order();
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

#[test]
fn a_package_that_is_kept_is_expected_at_that_version() {
    let mut story = keeping("metrics=none, antrea=1.0.0");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_package_that_is_kept_at_another_version_than_it_runs_is_missing() {
    let mut story = keeping("antrea=1.0.1");
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.1.0.1");
}

#[test]
fn a_package_that_is_left_out_on_purpose_is_not_expected() {
    let mut story = keeping("antrea=none");
    story.delete("/wl/u/packaging.carvel.dev/packageinstalls/tkg-system/one-antrea");
    story.delete("/wl/u/kappctrl.k14s.io/apps/tkg-system/one-antrea");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}
