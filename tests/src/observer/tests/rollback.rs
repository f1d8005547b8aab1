//! Packages go back after a cancellation, or an answer from before it comes into effect.

use serde_json::{Value, json};

use super::story::{NEW, NEXT, OLD, Story};
use crate::observer::Event;

const RESOLVED: &str = "lifecycle.sluice.dev/resolved-tkr";
const PENDING: &str = "AfterClusterUpgrade,AfterControlPlaneUpgrade";

/// The ClusterBootstrap with the package of a release.
fn bootstrap(release: &str, version: &str, policy: &Value) -> Value {
    json!({
        "metadata": {"generation": 1, "annotations": {RESOLVED: release}},
        "spec": {"cni": {"refName": format!("antrea.a.test.{version}")}, "upgradePolicy": policy},
    })
}

fn asked_for() -> Value {
    json!({"onCancel": "Rollback"})
}

/// The new version is proven and cancelled; Cluster API has not reconciled that yet.
fn cancelled() -> Story {
    let mut story = Story::created();
    story.aim(OLD, "r1", (1, 1));
    story.bootstrap_with(bootstrap("r1", "1.0.0", &asked_for()));
    story.aim(NEW, "r2", (2, 2));
    story.bootstrap_with(bootstrap("r2", "2.0.0", &asked_for()));
    story.bump();
    story.aim(OLD, "r1", (3, 2));
    story
}

/// The same, once Cluster API has.
fn reconciled() -> Story {
    let mut story = cancelled();
    story.aim(OLD, "r1", (3, 3));
    story
}

fn goes_back(story: &mut Story) {
    story.bootstrap_with(bootstrap("r1", "1.0.0", &asked_for()));
}

#[test]
fn packages_go_back_once_cluster_api_has_reconciled_the_cancellation() {
    let mut story = reconciled();
    goes_back(&mut story);
    story.is_in_order();
    let went_back =
        |event: &Event| matches!(event, Event::RolledBack { release } if release.as_str() == "r1");
    let milestones = story.ledger.milestones();
    assert!(milestones.iter().any(|milestone| went_back(&milestone.event)));
}

#[test]
fn before_that_they_stay() {
    let mut story = cancelled();
    goes_back(&mut story);
    story.is_early("antrea.a.test.1.0.0", "TopologyReconciled of generation Some(3)");
}

#[test]
fn another_edit_of_the_cluster_need_not_be_reconciled() {
    let mut story = reconciled();
    story.aim(OLD, "r1", (4, 3));
    goes_back(&mut story);
    story.is_in_order();
}

#[test]
fn packages_that_the_policy_keeps_stay() {
    let own = |on_cancel: &str| json!({"package": "antrea", "onCancel": on_cancel});
    let kept = [
        json!({}),
        json!({"onCancel": "Keep"}),
        json!({"onCancel": "Rollback", "packages": [own("Keep")]}),
    ];
    for policy in kept {
        let mut story = reconciled();
        story.bootstrap_with(bootstrap("r1", "1.0.0", &policy));
        story.is_early("antrea.a.test.1.0.0", "a policy that takes antrea.a.test back");
    }
    let mut story = reconciled();
    let policy = json!({"onCancel": "Keep", "packages": [own("Rollback")]});
    story.bootstrap_with(bootstrap("r1", "1.0.0", &policy));
    story.is_in_order();
}

#[test]
fn they_go_back_to_those_from_before_only() {
    let mut story = reconciled();
    story.package("0.9.0");
    story.bootstrap_with(bootstrap("r1", "0.9.0", &asked_for()));
    story.is_early("antrea.a.test.0.9.0", "had antrea.a.test.0.9.0 before");
}

#[test]
fn the_label_names_their_release() {
    let mut story = reconciled();
    story.label("r2");
    goes_back(&mut story);
    story.is_early("antrea.a.test.1.0.0", "the label of r1");
}

#[test]
fn a_control_plane_that_has_taken_the_hop_keeps_them() {
    let mut story = reconciled();
    story.control_plane(NEW, OLD);
    story.is_in_order();
    goes_back(&mut story);
    story.is_early("antrea.a.test.1.0.0", "a control plane of v1.35.4");
}

#[test]
fn what_a_user_lowers_is_no_rollback() {
    let mut story = cancelled();
    story.bootstrap_with(bootstrap("r2", "1.0.0", &json!({})));
    story.is_in_order();
}

/// The control plane runs [`NEW`] with everything proven on it, a pool lags, and packages of a cancelled further step go back.
fn chain() -> Story {
    let mut story = Story::created();
    story.release("r3", NEXT, "3.0.0");
    story.pool("machinepools", OLD);
    story.aim(NEW, "r2", (1, 1));
    story.bootstrap_with(bootstrap("r2", "2.0.0", &asked_for()));
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.aim(NEXT, "r3", (2, 2));
    story.bootstrap_with(bootstrap("r3", "3.0.0", &asked_for()));
    story.prove("3.0.0", 4);
    story.aim(NEW, "r2", (3, 3));
    story.bootstrap_with(bootstrap("r2", "2.0.0", &asked_for()));
    story.is_in_order();
    story
}

#[test]
fn workers_wait_for_the_proof_of_packages_that_went_back() {
    let mut story = chain();
    story.pool("machinepools", NEW);
    story.is_early("a MachinePool was written", "antrea.a.test.2.0.0");
}

#[test]
fn and_go_on_after_it() {
    let mut story = chain();
    story.prove("2.0.0", 5);
    story.pool("machinepools", NEW);
    story.is_in_order();
}

#[test]
fn so_does_a_hook_that_was_not_passed() {
    let hook_passed = |milliseconds, proven: bool| {
        let mut story = Story::created();
        story.release("r3", NEXT, "3.0.0");
        story.aim(NEW, "r2", (1, 1));
        story.bootstrap_with(bootstrap("r2", "2.0.0", &asked_for()));
        story.bump();
        story.pending(PENDING);
        story.control_plane(NEW, OLD);
        story.control_plane(NEW, NEW);
        story.prove_again();
        story.aim(NEXT, "r3", (2, 2));
        story.bootstrap_with(bootstrap("r3", "3.0.0", &asked_for()));
        story.prove("3.0.0", 4);
        story.aim(NEW, "r2", (3, 3));
        story.bootstrap_with(bootstrap("r2", "2.0.0", &asked_for()));
        if proven {
            story.prove("2.0.0", 5);
        }
        story.milliseconds_pass(milliseconds);
        story.pending("AfterClusterUpgrade");
        story
    };
    hook_passed(5_000, true).is_in_order();
    // Its answer may be older.
    hook_passed(500, false).is_in_order();
    hook_passed(5_000, false).is_early("AfterControlPlaneUpgrade was passed", "antrea.a.test.2.0.0");
}

#[test]
fn a_package_that_stays_higher_stands_for_that_of_the_release_in_a_rollback_only() {
    let with_record = |record: &Value| {
        let mut story = Story::created();
        story.pool("machinepools", "v1.34.4");
        story.aim(OLD, "r1", (1, 1));
        let mut object = bootstrap("r1", "2.0.0", &json!({}));
        object["status"]["upgrade"] = record.clone();
        story.bootstrap_with(object);
        story.bump();
        story.pool("machinepools", OLD);
        story
    };
    with_record(&json!({"rollback": {"hop": NEW, "release": "r1"}})).is_in_order();
    with_record(&json!({})).is_early("a MachinePool was written", "antrea.a.test.1.0.0");
}

/// The new version is proven, and its gate may be open. There are two releases of that version.
fn gate(open: bool) -> Story {
    let cni = json!({"refName": "antrea.a.test.2.0.0"});
    let mut story = Story::created();
    story.release("r3", NEW, "3.0.0");
    story.aim(NEW, "r2", (2, 2));
    story.record(&cni, 4, 4, false);
    story.bump();
    story.record(&cni, 4, 4, open);
    story.milliseconds_pass(60_000);
    story
}

#[test]
fn an_answer_from_before_the_cancellation_comes_into_effect() {
    let mut story = gate(true);
    story.aim(OLD, "r1", (3, 2));
    story.milliseconds_pass(60_000);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn but_not_once_cluster_api_has_reconciled_the_cancellation() {
    let mut story = gate(true);
    story.aim(OLD, "r1", (3, 2));
    story.milliseconds_pass(60_000);
    story.aim(OLD, "r1", (3, 3));
    story.control_plane(NEW, OLD);
    story.is_early("the control plane was written", "there are several");
}

#[test]
fn nor_with_a_gate_that_was_closed() {
    let mut story = gate(false);
    story.aim(OLD, "r1", (3, 2));
    story.control_plane(NEW, OLD);
    story.is_early("the control plane was written", "there are several");
}

#[test]
fn nor_without_a_proof_at_the_cancellation() {
    let mut story = gate(true);
    story.app("2.0.0", 2, 2, "ReconcileFailed");
    story.aim(OLD, "r1", (3, 2));
    story.milliseconds_pass(60_000);
    story.control_plane(NEW, OLD);
    story.is_early("the control plane was written", "there are several");
}
