//! Reconciles of a Cluster after its completed upgrade.

use rstest::rstest;

use sluice_core::schedule::spread;

use super::*;
use crate::clock::now;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, CONTROL_PLANE, PACKAGE, PACKAGES, VALUES, World, cluster, package,
};

/// `--sync-period` of the world.
const PERIOD: Duration = Duration::from_mins(10);

/// Time until the first reconcile of a leader of the world.
const BEGINS: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_completed_upgrade_is_left_alone() {
    let world = World::completed().await;
    let before = (world.writes_of_bootstrap(), world.workload.asked_to_write());
    let action = world.reconcile().await;
    assert_eq!(
        action,
        Done::RequeueAfter(spread("uid", PERIOD).saturating_sub(BEGINS))
    );
    let after = (world.writes_of_bootstrap(), world.workload.asked_to_write());
    assert_eq!(after, before);
}

/// Hooks are held until the record has observed both generations, whatever was edited.
#[rstest]
#[case::of_the_cluster_bootstrap(BOOTSTRAP)]
#[case::of_the_cluster(CLUSTER)]
#[tokio::test(start_paused = true)]
async fn an_edit_that_changes_no_package_is_recorded_as_seen(#[case] path: &str) {
    let world = World::completed().await;
    world
        .management
        .edit(path, |object| object["metadata"]["generation"] = json!(2));
    world.reconcile().await;
    let record = world.record();
    let seen = if path == CLUSTER {
        record.observed_cluster_generation
    } else {
        record.observed_bootstrap_generation
    };
    assert_eq!(seen, 2, "{record:?}");
    assert!(record.outcome.is_some(), "{record:?}");
}

/// The edit affects all Clusters of a release at once. The old plan opens no gate: its record is a completed upgrade to the current
/// version. The record holds hooks of another version, and so does a newer generation of the Cluster. The reconcile that records
/// either one runs after a change of the Cluster and plans from the edited Package: see
/// [`a_cluster_that_moves_on_leaves_no_edited_package_as_it_was`].
#[tokio::test(start_paused = true)]
async fn a_package_that_is_edited_in_place_waits_for_the_time_of_the_cluster() {
    let world = World::completed().await;
    let leader = world.leader().await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let local_state = leader.local_states().get("uid");
    world
        .management
        .put(&format!("{PACKAGES}/{PACKAGE}"), package("b"));
    let leader = world.leader().await;
    leader.local_states().keep("uid", local_state);
    let (written, read) = (
        world.workload.asked_to_write(),
        world.management.times_asked_for(VALUES),
    );
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(world.workload.asked_to_write(), written);
    assert_eq!(world.management.times_asked_for(VALUES), read);

    sleep(PERIOD).await;
    world.connect(&leader);
    sleep(Duration::from_secs(1)).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_ne!(world.workload.asked_to_write(), written);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_moves_on_leaves_no_edited_package_as_it_was() {
    let world = World::completed().await;
    let leader = world.leader().await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let local_state = leader.local_states().get("uid");
    let edited = package("b");
    world.management.put(&format!("{PACKAGES}/{PACKAGE}"), edited);
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["generation"] = json!(2);
    });
    let leader = world.leader().await;
    leader.local_states().keep("uid", local_state);
    let read = world.management.times_asked_for(VALUES);
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert!(world.management.times_asked_for(VALUES) > read);
}

/// Counts the requests to both API servers.
fn requests(world: &World) -> usize {
    world.management.requests() + world.workload.requests()
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_sends_no_request_until_its_drift_check() {
    let world = World::completed().await;
    let leader = world.leader().await;
    let reconcile = async || reconcile_once(&cluster(&leader), &leader).await.unwrap();
    reconcile().await;
    sleep(PERIOD).await;
    world.connect(&leader);
    sleep(Duration::from_secs(1)).await;
    let next = reconcile().await;
    let period = leader.settings.sync_period;
    let next_drift_check = period.until_resync("uid", now());
    assert_eq!(next, Done::RequeueAfter(next_drift_check), "a drift check");
    sleep(Duration::from_mins(1)).await;
    let read = requests(&world);
    let again = reconcile().await;
    assert_eq!(
        again,
        Done::RequeueAfter(next_drift_check.saturating_sub(Duration::from_mins(1))),
        "the drift check is not delayed"
    );
    assert_eq!(requests(&world), read, "at rest");

    leader.local_states().note_requeue("team-a", "one");
    reconcile().await;
    let requeued = requests(&world);
    assert!(requeued > read, "its values may have changed");

    reconcile().await;
    assert_eq!(requests(&world), requeued, "at rest again");
    sleep(Duration::from_mins(10)).await;
    let read = world.management.times_asked_for(VALUES);
    reconcile().await;
    assert!(world.management.times_asked_for(VALUES) > read, "the drift check");
}

#[rstest]
#[case::its_cluster_bootstrap(BOOTSTRAP, "/metadata/generation", json!(2))]
#[case::its_record(BOOTSTRAP, "/status/upgrade/packages/0/valuesDigest", json!("other"))]
#[case::its_control_plane(CONTROL_PLANE, "/status/version", json!("v1.36.2"))]
#[tokio::test(start_paused = true)]
async fn what_a_cluster_at_rest_was_planned_from_changes(
    #[case] path: &str,
    #[case] field: &str,
    #[case] edited: Value,
) {
    let world = World::completed().await;
    let before = world.leader().await;
    reconcile_once(&cluster(&before), &before).await.unwrap();
    let (parent, name) = field.rsplit_once('/').unwrap();
    world.management.edit(path, |object| {
        object.pointer_mut(parent).unwrap()[name] = edited;
    });
    let leader = world.leader().await;
    let local_state = before.local_states().get("uid");
    leader.local_states().keep("uid", local_state);
    let read = world.management.times_asked_for(VALUES);
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert!(world.management.times_asked_for(VALUES) > read);
}

/// Stored objects need no read, and a changed Package requeues every Cluster.
#[tokio::test(start_paused = true)]
async fn a_requeue_of_a_settled_cluster_reads_only_unstored_objects() {
    let world = World::completed().await;
    let (leader, triggers) = (Arc::new(world.leader().await), Requeues::default());
    let one = ClusterRef::of(&*cluster(&leader));
    let heart = Health::default().heartbeat("reconciler", Duration::from_mins(5));
    let running = tokio::spawn(run(leader, triggers.listen(), heart, CancellationToken::new()));
    let read = async || {
        sleep(Duration::from_secs(10)).await;
        world.management.times_asked_for(VALUES)
    };
    let first = read().await;
    triggers.enqueue(one.clone());
    assert_eq!(read().await, first);
    triggers.enqueue_with_reads(one);
    assert!(read().await > first);
    running.abort();
}
