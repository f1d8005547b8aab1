//! Clusters on Supervisors, whose pods are placed on Nodes of a release, and Clusters that manage themselves.

use serde_json::json;

use super::story::{NEW, OLD, Story};

fn on_supervisor() -> Story {
    let mut story = Story::until_bump();
    story.on_supervisor();
    story.bootstrap(&json!({"refName": "antrea.a.test.2.0.0"}));
    story
}

/// kapp-controller has deployed the new version, and waits.
fn applied(story: &mut Story) {
    story.begin();
    story.app_deploys("2.0.0", 2, "2026-01-01T00:00:02Z");
}

#[test]
fn on_a_supervisor_a_package_need_not_be_finished() {
    let mut story = on_supervisor();
    applied(&mut story);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn elsewhere_it_has_to_be() {
    let mut story = Story::until_bump();
    story.bootstrap(&json!({"refName": "antrea.a.test.2.0.0"}));
    applied(&mut story);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "Reconciling");
}

#[test]
fn a_policy_may_ask_for_more_on_a_supervisor() {
    for policy in [
        json!({"package": "antrea", "readiness": "Reconciled"}),
        json!({"package": "antrea", "phase": "BeforeControlPlane"}),
    ] {
        let mut story = on_supervisor();
        story.bootstrap_with(json!({"spec": {
            "cni": {"refName": "antrea.a.test.2.0.0"},
            "upgradePolicy": {"packages": [policy]},
        }}));
        applied(&mut story);
        story.control_plane(NEW, OLD);
        story.is_early("control plane", "Reconciling");
    }
}

#[test]
fn pods_are_placed_on_nodes_of_the_release_of_the_hop() {
    let mut story = on_supervisor();
    story.place("new", "r2");
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_in_order();

    let mut story = on_supervisor();
    story.place("old", "r1");
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "placed on Nodes of r1");
}

/// A Cluster whose release has a kapp-controller that nothing installs.
fn managing_itself() -> Story {
    let mut story = Story::until_bump();
    story.manages_itself();
    story.write(
        "/mgmt/internal.packaging.carvel.dev/internalpackages/tkg-system/kapp",
        json!({"spec": {"refName": "kapp-controller.a.test", "version": "2.0.0"}}),
    );
    story.write(
        "/mgmt/run.tanzu.vmware.com/clusterbootstraptemplates/tkg-system/r2",
        json!({"spec": {
            "kapp": {"refName": "kapp-controller.a.test.2.0.0"},
            "cni": {"refName": "antrea.a.test.2.0.0"},
        }}),
    );
    story
}

#[test]
fn a_cluster_that_manages_itself_needs_no_package_of_kapp_controller() {
    let mut story = managing_itself();
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn its_other_packages_are_installed_on_the_management_api_server() {
    let mut story = managing_itself();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.0 (not installed)");
}
