//! Passes over a Cluster whose upgrade is completed.

use rstest::rstest;

use super::*;
use crate::controllers::bootstrap::world::{BOOTSTRAP, CLUSTER, PACKAGE, PACKAGES, World, package};

#[tokio::test(start_paused = true)]
async fn a_completed_upgrade_is_left_alone() {
    let world = World::completed().await;
    let before = (world.writes_of_bootstrap(), world.workload.asked_to_write());
    let action = world.pass().await;
    assert_eq!(action, Action::requeue(Duration::from_mins(10)));
    let after = (world.writes_of_bootstrap(), world.workload.asked_to_write());
    assert_eq!(after, before);
}

/// Hooks are held until the record has seen both generations, whatever was edited.
#[rstest]
#[case::of_the_cluster_bootstrap(BOOTSTRAP)]
#[case::of_the_cluster(CLUSTER)]
#[tokio::test(start_paused = true)]
async fn an_edit_that_changes_no_package_is_recorded_as_seen(#[case] path: &str) {
    let world = World::completed().await;
    world
        .management
        .edit(path, |object| object["metadata"]["generation"] = json!(2));
    world.pass().await;
    let record = world.record();
    let seen = if path == CLUSTER {
        record.observed_cluster_generation
    } else {
        record.observed_bootstrap_generation
    };
    assert_eq!(seen, 2, "{record:?}");
    assert!(record.outcome.is_some(), "{record:?}");
}

/// It concerns all Clusters of a release at once.
#[tokio::test(start_paused = true)]
async fn a_package_that_is_edited_in_place_waits_for_the_time_of_the_cluster() {
    let world = World::completed().await;
    let before = world.workload.asked_to_write();
    world
        .management
        .put(&format!("{PACKAGES}/{PACKAGE}"), package("b"));
    world.pass().await;
    assert_eq!(world.workload.asked_to_write(), before);
}
