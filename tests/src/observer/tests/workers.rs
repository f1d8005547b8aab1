//! Workers follow a control plane that runs their version, after everything was proven again by its API server.

use serde_json::json;

use super::story::{NEW, OLD, Story};

#[test]
fn workers_that_go_on_the_proof_of_the_old_api_server_are_early() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.workers(NEW);
    story.is_early("MachineDeployment", "older than");
}

#[test]
fn a_run_that_began_before_the_new_api_server_is_no_new_proof() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.app("2.0.0", 3, 3, "Reconciling");
    story.install("2.0.0", 3, 3, "ReconcileSucceeded");
    story.control_plane(NEW, NEW);
    story.app("2.0.0", 3, 3, "ReconcileSucceeded");
    story.workers(NEW);
    story.is_early("MachineDeployment", "older than");
}

#[test]
fn workers_are_done_when_every_machine_is_new_and_ready() {
    let mut story = Story::until_bump();
    story.machine("old", OLD, "True");
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.workers(NEW);
    story.machine("new", NEW, "False");
    assert!(!story.workers_are_done());
    story.machine("new", NEW, "True");
    assert!(!story.workers_are_done());
    story.delete("/mgmt/cluster.x-k8s.io/machines/a/old");
    assert!(story.workers_are_done());
    story.is_in_order();
}

#[test]
fn workers_that_go_before_the_control_plane_runs_are_early() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.prove_again();
    story.workers(NEW);
    story.is_early("MachineDeployment", "a control plane that runs v1.36.3");
}

#[test]
fn workers_that_go_while_one_replica_of_the_control_plane_is_old_are_early() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.write(
        "/mgmt/harness.test/harnesscontrolplanes/a/one-x",
        json!({
            "metadata": {"uid": "u", "labels": {"cluster.x-k8s.io/cluster-name": "one"}},
            "spec": {"version": NEW},
            "status": {"version": NEW, "versions": [{"version": OLD}, {"version": NEW}]},
        }),
    );
    story.prove_again();
    story.workers(NEW);
    story.is_early("MachineDeployment", "a control plane that runs v1.36.3");
}

#[test]
fn machine_pools_that_go_on_the_proof_of_the_old_api_server_are_early() {
    let mut story = Story::until_bump();
    story.pool("machinepools", OLD);
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.pool("machinepools", NEW);
    story.is_early("MachinePool", "older than");
}

#[test]
fn machine_pools_that_go_after_the_new_proof_are_in_order() {
    let mut story = Story::until_bump();
    story.pool("machinepools", OLD);
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.pool("machinepools", NEW);
    story.is_in_order();
}

#[test]
fn workers_that_go_although_a_package_has_failed_since_are_early() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.app("2.0.0", 3, 3, "ReconcileFailed");
    story.workers(NEW);
    story.is_early("MachineDeployment", "ReconcileFailed");
}

#[test]
fn an_edit_after_everything_was_proven_again_keeps_no_worker() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.bootstrap(&json!({"refName": "antrea.a.test.2.0.0", "valuesFrom": {"inline": {"mtu": 1400}}}));
    story.workers(NEW);
    story.is_in_order();
}
