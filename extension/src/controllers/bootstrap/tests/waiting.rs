//! Requests and requeues of a waiting Cluster.

use super::*;
use crate::controllers::bootstrap::world::{BOOTSTRAP, CLUSTER, KUBECONFIG, VALUES, VERSION, World, cluster};

/// Returns the requeue delay of a waiting Cluster, in milliseconds.
fn again(done: &Done) -> u128 {
    match done {
        Done::RequeueAfter(time) => time.as_millis(),
        other => panic!("{other:?}"),
    }
}

fn initialized(world: &World, initialized: bool) {
    world.management.edit(CLUSTER, |cluster| {
        cluster["status"] = json!({"initialization": {"controlPlaneInitialized": initialized}});
    });
}

#[tokio::test(start_paused = true)]
async fn no_kubeconfig_is_read_before_the_control_plane_is_initialized() {
    let world = World::new();
    initialized(&world, false);
    let action = world.reconcile().await;
    assert!((1..=600_000).contains(&again(&action)), "{action:?}");
    assert_eq!(world.management.times_asked_for(KUBECONFIG), 0);
    let gates = world.record().gates;
    assert!(
        gates.iter().any(|gate| gate.reason == "ControlPlaneCreating"),
        "{gates:?}"
    );

    initialized(&world, true);
    world.reconcile().await;
    assert!(world.management.was_asked_for(KUBECONFIG));
}

/// The missing object may be a Secret, which no watch shows.
#[tokio::test(start_paused = true)]
async fn a_missing_object_before_initialization_is_read_again_soon() {
    let world = World::new();
    initialized(&world, false);
    world.management.remove(VALUES);
    let action = world.reconcile().await;
    assert!((7_500..=10_000).contains(&again(&action)), "{action:?}");
}

/// Its API server responds, whatever Cluster API reports.
#[tokio::test(start_paused = true)]
async fn the_kubeconfig_is_read_of_a_workload_that_has_answered() {
    let world = Box::pin(World::released()).await;
    initialized(&world, false);
    let read = world.management.times_asked_for(KUBECONFIG);
    world.reconcile().await;
    assert!(world.management.times_asked_for(KUBECONFIG) > read);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_kubeconfig_is_requeued_with_growing_delays() {
    let world = World::new();
    world.control_plane_at(VERSION);
    world.management.remove(KUBECONFIG);
    let leader = world.leader().await;
    let reconcile = async || reconcile_once(&cluster(&leader), &leader).await;
    let first = reconcile().await.unwrap();
    assert!((7_500..=10_000).contains(&again(&first)), "{first:?}");
    // The stores of this leader do not show the status write.
    sleep(Duration::from_mins(20)).await;
    let leader = {
        let local_state = leader.local_states().get("uid");
        let next = world.leader().await;
        next.local_states().keep("uid", local_state);
        next
    };
    let later = reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert!((45_000..=60_000).contains(&again(&later)), "{later:?}");
}

/// Its clones fail.
#[tokio::test(start_paused = true)]
async fn a_cluster_without_cluster_bootstrap_is_requeued_with_growing_delays() {
    let world = World::new();
    world.management.remove(BOOTSTRAP);
    let leader = world.leader().await;
    let reconcile = async || reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let first = reconcile().await;
    assert!((7_500..=10_000).contains(&again(&first)), "{first:?}");
    sleep(Duration::from_mins(20)).await;
    let later = reconcile().await;
    assert!((45_000..=60_000).contains(&again(&later)), "{later:?}");
}

/// A package may fail meanwhile, and the gate would stay open until the next drift check.
#[tokio::test(start_paused = true)]
async fn an_open_gate_is_checked_soon_however_long_its_kubeconfig_is_missing() {
    let world = Box::pin(World::released()).await;
    let leader = world.leader().await;
    world.management.remove(KUBECONFIG);
    for _ in 0..2 {
        let done = reconcile_once(&cluster(&leader), &leader).await.unwrap();
        let Done::RequeueAfter(time) = done else {
            panic!("{done:?}");
        };
        assert!(time <= Duration::from_secs(10), "{time:?}");
        sleep(Duration::from_mins(10)).await;
    }
}
