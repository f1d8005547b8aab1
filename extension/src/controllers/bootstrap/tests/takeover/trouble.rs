//! What cannot be removed, or comes back.

use sluice_core::pass::Done;
use sluice_crds::labels::label::CAPI_CLUSTER_NAME;

use super::*;
use crate::controllers::bootstrap::world::cluster;

fn pause(world: &World) {
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["annotations"] = json!({annotation::LEGACY_PAUSED: RELEASE});
        cluster["spec"]["paused"] = json!(true);
    });
}

fn mark_deleted(world: &World, path: &str) {
    world.management.edit(path, |object| {
        object["metadata"]["deletionTimestamp"] = json!(jiff::Timestamp::now().to_string());
    });
}

/// Cluster API does nothing with a paused Cluster, so no event would follow.
#[tokio::test(start_paused = true)]
async fn a_pause_that_keeps_a_deletion_from_going_on_is_removed_again_after_a_failure() {
    let world = Box::pin(World::released()).await;
    pause(&world);
    mark_deleted(&world, CLUSTER);
    world.management.refuse_writes("/clusters/one", 403);
    // The first one writes the record, the second one what is wrong.
    Box::pin(world.leader()).await;
    Box::pin(world.leader()).await;
    let leader = Box::pin(world.leader()).await;
    let done = one_pass(&cluster(&leader), &leader).await.unwrap();
    assert!(
        matches!(done, Done::RequeueAfter(time) if time <= Duration::from_mins(1)),
        "{done:?}"
    );
    let (reason, message) = condition(&world).expect("it is said");
    assert_eq!(reason, "LeftoversNotRemoved");
    assert!(message.contains("spec.paused"), "{message}");
    world.management.take_everything();
    Box::pin(world.leader()).await;
    let cluster = world.management.get(CLUSTER).unwrap();
    assert!(cluster["spec"]["paused"].is_null(), "{cluster}");
}

/// Its machines have no status yet.
#[tokio::test(start_paused = true)]
async fn a_pool_that_is_added_leaves_what_is_kept() {
    let world = installed_by_the_addons_manager();
    world.pass().await;
    world.pass().await;
    assert!(world.record().outcome.is_some(), "{:?}", world.record());
    let before = install(&world);
    let pool = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"labels": {CAPI_CLUSTER_NAME: "one", label::TOPOLOGY_OWNED: ""}},
        "spec": {"clusterName": "one", "template": {"spec": {"version": VERSION}}},
    });
    let path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machinedeployments/added";
    world.management.put(path, pool);
    world
        .management
        .edit(CLUSTER, |cluster| cluster["metadata"]["generation"] = json!(2));
    world.pass().await;
    world.pass().await;
    assert_eq!(install(&world), before);
    assert!(world.record().outcome.is_some(), "{:?}", world.record());
}
