//! When a package is proven, and which packages have to be.

use serde_json::json;

use super::story::{NEW, OLD, Story};
use crate::observer::milestone::Event;

#[test]
fn proof_then_control_plane_then_new_proof_then_workers_is_in_order() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.workers(NEW);
    story.is_in_order();
}

#[test]
fn a_control_plane_that_goes_before_anything_was_asked_for_is_early() {
    let mut story = Story::until_bump();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "1.0.0");
}

#[test]
fn the_false_success_of_the_package_install_is_no_proof() {
    let mut story = Story::until_bump();
    story.app("2.0.0", 2, 1, "ReconcileSucceeded");
    story.install("2.0.0", 2, 2, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "App generation 2 observed 1");
}

#[test]
fn an_app_that_works_on_the_new_version_is_no_proof() {
    let mut story = Story::until_bump();
    story.begin();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "Reconciling");
}

#[test]
fn a_failure_takes_the_proof_back() {
    let mut story = Story::until_bump();
    story.bump();
    story.app("2.0.0", 2, 2, "ReconcileFailed");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "ReconcileFailed");
}

#[test]
fn a_resync_of_the_same_generation_does_not_take_the_proof_back() {
    let mut story = Story::until_bump();
    story.bump();
    story.app("2.0.0", 2, 2, "Reconciling");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_pause_takes_the_proof_back() {
    let mut story = Story::until_bump();
    story.bump();
    story.write(
        "/wl/u/kappctrl.k14s.io/apps/tkg-system/one-antrea",
        json!({
            "metadata": {"uid": "app", "generation": 2, "annotations": {"packaging.carvel.dev/package-version": "2.0.0"}},
            "spec": {"paused": true},
            "status": {"observedGeneration": 2, "conditions": [{"type": "ReconcileSucceeded", "status": "True"}]},
        }),
    );
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.0");
}

#[test]
fn a_version_without_a_release_is_early() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane("v1.37.0", OLD);
    story.is_early("v1.37.0", "a release of Kubernetes v1.37.0");
}

#[test]
fn a_version_that_its_user_chose_stands_for_that_of_the_template() {
    let mut story = Story::until_bump();
    story.write(
        "/mgmt/internal.packaging.carvel.dev/internalpackages/tkg-system/2.0.1",
        json!({"spec": {"refName": "antrea.a.test", "version": "2.0.1"}}),
    );
    for chosen in ["1.0.0", "2.0.1"] {
        story.write(
            "/mgmt/run.tanzu.vmware.com/clusterbootstraps/a/one",
            json!({"spec": {"cni": {"refName": format!("antrea.a.test.{chosen}")}}}),
        );
    }
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.1");
}

#[test]
fn a_version_below_that_of_the_template_is_no_choice() {
    for below in ["1.5.0", "2.0.0-rc.1", "latest"] {
        let mut story = Story::until_bump();
        story.package(below);
        story.bootstrap(&json!({"refName": format!("antrea.a.test.{below}")}));
        story.prove(below, 2);
        story.control_plane(NEW, OLD);
        story.is_early("control plane", "antrea.a.test.2.0.0");
    }
}

#[test]
fn a_lower_build_of_the_version_of_the_template_is_no_choice() {
    for (own, named) in [("tkg.1", "tkg.2"), ("tkg.9", "tkg.10"), ("tkg.9", "tkg.a")] {
        let [own, named] = [own, named].map(|build| format!("2.0.0+vmware.1-{build}"));
        let mut story = Story::until_bump();
        story.release("r2", NEW, &named);
        story.package(&own);
        story.bootstrap(&json!({"refName": format!("antrea.a.test.{own}")}));
        story.prove(&own, 2);
        story.control_plane(NEW, OLD);
        story.is_early("control plane", &format!("antrea.a.test.{named}"));
    }
}

#[test]
fn a_higher_build_of_the_version_of_the_template_is_a_choice() {
    let mut story = Story::until_bump();
    story.package("2.0.0+own.1");
    story.bootstrap(&json!({"refName": "antrea.a.test.2.0.0+own.1"}));
    story.prove("2.0.0+own.1", 2);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn packages_of_the_previous_release_are_no_choice() {
    let mut story = Story::until_bump();
    story.write(
        "/mgmt/run.tanzu.vmware.com/clusterbootstraps/a/one",
        json!({"spec": {"cni": {"refName": "antrea.a.test.1.0.0"}}}),
    );
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.0");
}

#[test]
fn a_cluster_without_a_release_may_do_as_it_likes() {
    let mut story = Story::created();
    story.label("");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn another_cluster_of_the_same_packages_proves_nothing() {
    let mut story = Story::until_bump();
    story.bump();
    story.write(
        "/mgmt/cluster.x-k8s.io/clusters/a/two",
        json!({"metadata": {"labels": {"run.tanzu.vmware.com/tkr": "r2"}}}),
    );
    for version in [OLD, NEW] {
        story.write(
            "/mgmt/harness.test/harnesscontrolplanes/a/two-x",
            json!({
                "metadata": {"uid": "u2", "labels": {"cluster.x-k8s.io/cluster-name": "two"}},
                "spec": {"version": version},
            }),
        );
    }
    story.is_early("control plane", "not installed");
}

/// A retry of the version before may be under way when the version changes: Reconciling stays True.
#[test]
fn the_start_of_a_run_is_seen_behind_a_retry() {
    let mut story = Story::until_bump();
    story.app("2.0.0", 2, 2, "Reconciling");
    let before = story.ledger.milestones().len();
    story.app("1.0.0", 3, 2, "Reconciling");
    story.app("1.0.0", 3, 3, "Reconciling");
    story.app("1.0.0", 3, 3, "Reconciling");
    let begun = story.ledger.milestones()[before..].iter().filter(
        |milestone| matches!(&milestone.event, Event::PackageWorking { version, .. } if version == "1.0.0"),
    );
    assert_eq!(begun.count(), 1);
}
