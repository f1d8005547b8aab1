//! A Cluster that is the management cluster.

use sluice_crds::{
    labels::{annotation, label},
    run::{Hook, KappControllerMode},
};

use super::*;
use crate::controllers::bootstrap::{
    object_server::ObjectServer,
    world::{BOOTSTRAP, CLUSTER, KUBE_SYSTEM, World},
};

/// API group of PackageInstalls. Packages have one below it.
const PACKAGE_API: &str = "packaging.carvel.dev";

/// Returns a Cluster with the label since its creation.
fn labelled() -> World {
    let world = World::new();
    set_label(&world, true);
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["annotations"][annotation::KAPP_CONTROLLER] = json!("Unmanaged");
    });
    world
}

fn set_label(world: &World, sets: bool) {
    world.management.edit(CLUSTER, |cluster| {
        let labels = cluster["metadata"]["labels"].as_object_mut().unwrap();
        if sets {
            labels.insert(label::MANAGEMENT_CLUSTER.to_owned(), json!(""));
        } else {
            labels.remove(label::MANAGEMENT_CLUSTER);
        }
    });
}

/// Returns a Cluster whose kubeconfig leads to the management API server.
fn management() -> World {
    let world = World::new();
    reach_management(&world);
    world
}

fn reach_management(world: &World) {
    world
        .workload
        .put(KUBE_SYSTEM, json!({"metadata": {"uid": "management"}}));
}

fn conditions(world: &World) -> Vec<(Value, Value)> {
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    let conditions = bootstrap["status"]["conditions"].as_array().unwrap();
    conditions
        .iter()
        .map(|condition| (condition["type"].clone(), condition["reason"].clone()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn no_package_is_copied_onto_itself() {
    let world = management();
    world.reconcile().await;
    assert_eq!(world.workload.names("packageinstalls"), ["one-antrea"]);
    assert_eq!(world.workload.names("packages"), [""; 0]);
    let mode = world.record().kapp_controller;
    assert_eq!(mode, Some(KappControllerMode::Unmanaged));
    let unmanaged = (json!("KappControllerUnmanaged"), json!("ManagementCluster"));
    let conditions = conditions(&world);
    assert!(conditions.contains(&unmanaged), "{conditions:?}");
}

#[tokio::test(start_paused = true)]
async fn packages_of_an_ordinary_cluster_are_copied() {
    let world = World::new();
    world.reconcile().await;
    assert_eq!(world.workload.names("packages").len(), 1);
    let mode = world.record().kapp_controller;
    assert_eq!(mode, Some(KappControllerMode::Managed));
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_management_cluster_uninstalls_nothing() {
    let world = management();
    world.add_metrics(None);
    world.reconcile().await;
    let before = world.workload.names("packageinstalls");
    assert_eq!(before, ["one-antrea", "one-metrics"]);
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    world.leader().await;
    assert_eq!(world.held(Hook::BeforeClusterDelete), None);
    assert_eq!(world.workload.names("packageinstalls"), before);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_comes_to_reach_the_management_cluster_is_not_written() {
    let world = Box::pin(World::released()).await;
    let before = world.record().workload_uid;
    reach_management(&world);
    let writes = world.workload.asked_to_write();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ReachesManagementCluster)
    );
    assert_eq!(world.record().workload_uid, before);
    assert_eq!(world.workload.asked_to_write(), writes);
}

/// The workload cluster serves no package API.
#[tokio::test(start_paused = true)]
async fn a_labelled_cluster_without_kapp_controller_holds() {
    let world = labelled();
    world.workload.refuse(PACKAGE_API, 404);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::KappControllerNotInstalled)
    );
    assert_eq!(
        world.record().kapp_controller,
        Some(KappControllerMode::Unmanaged)
    );
    // Another client installs it.
    world.workload.take_everything();
    world.reconcile().await;
    assert_eq!(world.workload.names("packageinstalls"), ["one-antrea"]);
    assert_ne!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::KappControllerNotInstalled)
    );
}

/// Until the first package is deployed, the removal of the label has Sluice install kapp-controller.
#[tokio::test(start_paused = true)]
async fn the_label_may_be_removed_while_kapp_controller_is_missing() {
    let world = labelled();
    world.workload.refuse(PACKAGE_API, 404);
    world.reconcile().await;
    set_label(&world, false);
    world.reconcile().await;
    assert_eq!(world.record().kapp_controller, Some(KappControllerMode::Managed));
}

#[tokio::test(start_paused = true)]
async fn a_later_label_of_a_cluster_without_record_holds() {
    let world = World::new();
    set_label(&world, true);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ManagementLabelUnproven)
    );
    assert_eq!(world.workload.asked_to_write(), Vec::<String>::new());
    set_label(&world, false);
    world.reconcile().await;
    assert_eq!(world.workload.names("packageinstalls"), ["one-antrea"]);
}

#[tokio::test(start_paused = true)]
async fn the_uid_is_read_with_retries_and_after_each_restart() {
    let (server, rollbacks, uid) = (
        ObjectServer::default(),
        Rollbacks::default(),
        ManagementUid::default(),
    );
    let (client, restarts, followed) = (server.client(), rollbacks.restarts(), uid.clone());
    tokio::spawn(async move { followed.follow(&client, restarts).await });
    sleep(Duration::from_secs(2)).await;
    assert_eq!(uid.get(), None);
    server.put(KUBE_SYSTEM, json!({"metadata": {"uid": "one"}}));
    uid.known().await;
    assert_eq!(uid.get().as_deref(), Some("one"));
    server.put(KUBE_SYSTEM, json!({"metadata": {"uid": "another"}}));
    rollbacks.lost_events("a test");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(uid.get().as_deref(), Some("another"));
}
