//! Connections to a silent workload API server.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;

use super::{
    super::world::{World, cluster},
    *,
};

/// A resumed watch sends nothing until an object changes, so the connection would count as silent until then.
#[rstest]
#[case::long_ago(20, 1, true)]
#[case::a_moment_ago(10, 1, false)]
#[case::until_now(20, 25, false)]
#[case::by_a_clock_that_was_set_back(-3600, 1, true)]
#[tokio::test(start_paused = true)]
async fn a_connection_is_opened_again_that_was_silent(
    #[case] silent_for: i64,
    #[case] answered_ago: u64,
    #[case] opened_again: bool,
) {
    let world = World::new();
    let leader = world.leader().await;
    let remote = world.connect(&leader);
    sleep(Duration::from_secs(1)).await;
    // The last response was that of the first list, a second ago.
    sleep(Duration::from_secs(answered_ago - 1)).await;
    remote.silent_since(Timestamp::now() - SignedDuration::from_secs(silent_for));
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(leader.remotes.is_empty(), opened_again);
    assert_eq!(world.workload.asked_to_write(), Vec::<String>::new());
}
