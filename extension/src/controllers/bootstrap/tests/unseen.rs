//! Passes that see nothing, or do not come to their end: what the record says is not the truth any more.

use rstest::rstest;
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{VALUES, World, cluster};

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_record_is_written_once() {
    let world = World::new();
    world.pass().await;
    world.management.refuse("/goods", 403);
    let before = world.writes_of_bootstrap();
    for _ in 0..3 {
        world.pass().await;
        let held = world.held(Hook::BeforeClusterUpgrade);
        assert_eq!(held, Some(HoldReason::ControlPlaneKindUnreadable));
        assert_eq!(world.writes_of_bootstrap(), before + 1);
    }
}

/// What keeps a pass from its end.
#[derive(Clone, Copy)]
enum End {
    Panics,
    Hangs,
    IsCutOff,
}

#[rstest]
#[case::in_a_panic(End::Panics, HoldReason::PassPanicked)]
#[case::after_its_time(End::Hangs, HoldReason::PassCutOff)]
#[case::for_others(End::IsCutOff, HoldReason::PassCutOff)]
#[tokio::test(start_paused = true)]
async fn a_pass_that_ends_early_closes_the_gates(#[case] end: End, #[case] reason: HoldReason) {
    let world = World::new();
    world.pass().await;
    world.deployed();
    world.pass().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);

    let leader = Arc::new(world.leader().await);
    let cluster = cluster(&leader);
    let answers = world.management.wait_at(VALUES);
    match end {
        // The server panics when it is not to be answered any more.
        End::Panics => drop(answers),
        End::Hangs => drop(tokio::spawn(async move {
            answers.closed().await;
        })),
        End::IsCutOff => {
            // One slot of two is for slow passes, and another Cluster has it.
            leader.troubles.failed("another");
            let _slot = leader.troubles.turn("another");
            reconcile(Arc::clone(&cluster), Arc::clone(&leader))
                .await
                .unwrap();
            assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(reason));
            return;
        }
    }
    whole_pass(&cluster, &leader, "uid").await.unwrap_err();
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(reason));
}
