//! Warnings about objects of the workload cluster before an upgrade.

use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{BOOTSTRAP, World, cluster};

const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";

const NOT_ALL: &str = "v1.36.3: not all objects were checked";

/// Returns the message of condition `UpgradeWarnings`.
fn warnings(world: &World) -> Option<String> {
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    let conditions = bootstrap["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    let found = conditions.find(|condition| condition["type"] == "UpgradeWarnings");
    found.map(|condition| condition["message"].as_str().unwrap().to_owned())
}

/// Returns a Cluster whose first gate is recorded as held.
async fn held() -> World {
    let world = World::new();
    world.reconcile().await;
    assert!(world.held(Hook::BeforeClusterUpgrade).is_some());
    world
}

#[tokio::test(start_paused = true)]
async fn a_held_step_is_warned_of_once() {
    let world = Box::pin(held()).await;
    world.workload.put(
        "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/db",
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {},
            "status": {"currentHealthy": 3, "desiredHealthy": 3, "expectedPods": 3, "disruptionsAllowed": 0},
        }),
    );
    assert_eq!(
        world.workload.times_asked_for(BUDGETS),
        0,
        "not before the record"
    );
    let leader = Box::pin(world.leader()).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let expected = "v1.36.3: PodDisruptionBudget shop/db: 3 of 3 Pods must stay";
    assert_eq!(warnings(&world).as_deref(), Some(expected));
    let local_state = leader.local_states().get("uid");
    let leader = Box::pin(world.leader()).await;
    leader.local_states().keep("uid", local_state);
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    for list in [BUDGETS, PODS, NODES] {
        assert_eq!(world.workload.times_asked_for(list), 1, "{list}");
    }
    // Nothing is held for it.
    world.deployed();
    Box::pin(world.reconcile()).await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
    assert_eq!(warnings(&world).as_deref(), Some(expected));
    let world = Box::pin(world.complete()).await;
    assert_eq!(warnings(&world), None);
}

#[tokio::test(start_paused = true)]
async fn lists_without_an_answer_end_the_check() {
    let world = Box::pin(held()).await;
    let answers = world.workload.wait_at(PODS);
    Box::pin(world.reconcile()).await;
    for list in [BUDGETS, NODES] {
        assert_eq!(world.workload.times_asked_for(list), 1, "{list}");
    }
    assert_eq!(warnings(&world).as_deref(), Some(NOT_ALL));
    world.deployed();
    Box::pin(world.reconcile()).await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
    drop(answers);
}

#[tokio::test(start_paused = true)]
async fn a_refused_list_does_not_end_the_check() {
    let world = Box::pin(held()).await;
    world.workload.refuse(BUDGETS, 403);
    Box::pin(world.reconcile()).await;
    for list in [BUDGETS, NODES, PODS] {
        assert_eq!(world.workload.times_asked_for(list), 1, "{list}");
    }
    assert_eq!(warnings(&world).as_deref(), Some(NOT_ALL));
}

#[tokio::test(start_paused = true)]
async fn lists_end_at_a_size() {
    let world = Box::pin(held()).await;
    world.workload.put(
        "/api/v1/nodes/old",
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"annotations": {"long": "x".repeat(8 * 1024 * 1024)}},
            "status": {"nodeInfo": {"kubeletVersion": "v1.31.0"}},
        }),
    );
    Box::pin(world.reconcile()).await;
    assert_eq!(world.workload.times_asked_for(PODS), 0);
    let expected = format!("{NOT_ALL}; Node old: kubelet v1.31.0 is 5 minor versions older than v1.36.3");
    assert_eq!(warnings(&world), Some(expected));
}
