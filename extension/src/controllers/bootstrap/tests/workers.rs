//! Workers of a Cluster whose control plane runs the version.

use rstest::rstest;
use sluice_crds::{
    labels::{annotation, label::CAPI_CLUSTER_NAME},
    run::Hook,
};

use super::*;
use crate::controllers::bootstrap::world::{CLUSTER, VALUES, VERSION, World, values};

/// Adds workers of this kind that run a version.
fn workers(world: &World, kind: &str, plural: &str, version: &str) {
    let path = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/{plural}/workers");
    let labels = json!({CAPI_CLUSTER_NAME: "one", label::TOPOLOGY_OWNED: ""});
    let workers = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": {"labels": labels},
        "spec": {"clusterName": "one", "template": {"spec": {"version": version}}},
        "status": {"versions": [{"version": version, "replicas": 1}]},
    });
    world.management.put(&path, workers);
}

#[rstest]
#[case::a_machine_deployment("MachineDeployment", "machinedeployments")]
#[case::a_machine_pool("MachinePool", "machinepools")]
#[tokio::test(start_paused = true)]
async fn workers_of_each_kind_are_waited_for(#[case] kind: &str, #[case] plural: &str) {
    let world = World::new();
    world.control_plane_at(VERSION);
    workers(&world, kind, plural, "v1.35.4");
    world.reconcile().await;
    world.deployed();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeWorkersUpgrade),
        None,
        "{:?}",
        world.record()
    );
    assert_eq!(
        world.held(Hook::AfterWorkersUpgrade),
        Some(GateReason::WorkersUpgrading)
    );
    workers(&world, kind, plural, VERSION);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::AfterWorkersUpgrade),
        None,
        "{:?}",
        world.record()
    );
}

#[rstest]
#[case::a_machine_deployment("MachineDeployment", "machinedeployments", "machineDeployments")]
#[case::a_machine_pool("MachinePool", "machinepools", "machinePools")]
#[tokio::test(start_paused = true)]
async fn deferred_workers_of_each_kind_are_named(
    #[case] kind: &str,
    #[case] plural: &str,
    #[case] pools: &str,
) {
    let world = World::new();
    world.control_plane_at(VERSION);
    workers(&world, kind, plural, "v1.35.4");
    world.management.edit(CLUSTER, |cluster| {
        let metadata = json!({"annotations": {annotation::DEFER_UPGRADE: ""}});
        cluster["spec"]["topology"]["workers"] = json!({pools: [{"name": "workers", "metadata": metadata}]});
    });
    world.reconcile().await;
    world.deployed();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::AfterWorkersUpgrade),
        Some(GateReason::WorkersDeferred),
        "{:?}",
        world.record()
    );
}

/// The gate after the control plane stays open and does not replace the gate of the workers.
#[tokio::test(start_paused = true)]
async fn the_gate_of_workers_is_closed_before_what_it_rests_on_is_written_again() {
    let world = World::new();
    world.control_plane_at(VERSION);
    workers(&world, "MachineDeployment", "machinedeployments", "v1.35.4");
    Box::pin(world.reconcile()).await;
    world.deployed();
    Box::pin(world.reconcile()).await;
    assert_eq!(
        world.held(Hook::BeforeWorkersUpgrade),
        None,
        "{:?}",
        world.record()
    );
    let before = world.workload.asked_to_write();
    world.management.put(VALUES, values(2));
    Box::pin(world.reconcile()).await;
    assert_eq!(world.held(Hook::AfterControlPlaneUpgrade), None);
    assert_eq!(
        world.held(Hook::BeforeWorkersUpgrade),
        Some(GateReason::PackagesNotReady)
    );
    assert_eq!(world.workload.asked_to_write(), before);
}
