//! Reconciles that read nothing or do not finish, so that the record is stale.

use rstest::rstest;
use sluice_core::{protocol::ReconcileFailure, reconcile::outcomes::CONFLICTS};
use sluice_crds::run::Hook;
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::controllers::bootstrap::world::{VALUES, World, cluster};

/// Takes the only permit for slow reconciles, for another Cluster.
async fn all_permits_taken(leader: &Context) -> AbortOnDropHandle<()> {
    let (limiter, another) = (leader.limiter.clone(), ClusterRef::new("team-a", "another"));
    limiter.outcomes().failed("another", now());
    let endless = async move {
        limiter.run(&another, "another", pending::<()>()).await;
    };
    let task = AbortOnDropHandle::new(tokio::spawn(endless));
    yield_now().await;
    task
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_a_record_is_written_once() {
    let world = World::new();
    world.reconcile().await;
    world.management.refuse("/goods", 403);
    let before = world.writes_of_bootstrap();
    for _ in 0..3 {
        world.reconcile().await;
        let held = world.held(Hook::BeforeClusterUpgrade);
        assert_eq!(held, Some(GateReason::ControlPlaneKindUnreadable));
        assert_eq!(world.writes_of_bootstrap(), before + 1);
    }
}

#[rstest]
#[case::a_role_that_lost_a_rule(403)]
#[case::an_api_server_in_trouble(500)]
#[tokio::test(start_paused = true)]
async fn a_failed_reconcile_closes_the_gates(#[case] code: u16) {
    let world = World::released().await;
    let leader = world.leader().await;
    world.management.refuse(VALUES, code);
    let cluster = cluster(&leader);
    execute(&cluster, &leader, "uid").await.unwrap_err();
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None, "once");
    execute(&cluster, &leader, "uid").await.unwrap_err();
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ReconcileError)
    );
}

/// A single conflict is common, and the next reconcile follows at once.
#[tokio::test(start_paused = true)]
async fn conflicts_close_the_gates_when_they_do_not_end() {
    let world = World::released().await;
    let leader = world.leader().await;
    world.management.refuse(VALUES, 409);
    let cluster = cluster(&leader);
    for _ in 0..CONFLICTS {
        execute(&cluster, &leader, "uid").await.unwrap_err();
        assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
    }
    execute(&cluster, &leader, "uid").await.unwrap_err();
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ReconcileError)
    );
}

/// Unlike those of a row, these conflicts are seconds apart.
#[tokio::test(start_paused = true)]
async fn conflicts_close_the_gates_after_seconds() {
    let world = World::released().await;
    let leader = world.leader().await;
    world.management.refuse(VALUES, 409);
    let cluster = cluster(&leader);
    execute(&cluster, &leader, "uid").await.unwrap_err();
    tokio::time::advance(Duration::from_secs(10)).await;
    execute(&cluster, &leader, "uid").await.unwrap_err();
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ReconcileError)
    );
}

/// All permits for slow reconciles are taken for the timeout of a silent workload cluster.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_waits_for_a_permit_for_long_closes_its_gates() {
    let world = World::released().await;
    let leader = Arc::new(world.leader().await);
    let _taken = all_permits_taken(&leader).await;
    leader.limiter.outcomes().failed("uid", now());
    let cluster = cluster(&leader);
    for second in 0..=60 {
        reconcile(&cluster, &leader).await.unwrap();
        let held = world.held(Hook::BeforeClusterUpgrade);
        assert_eq!(
            held,
            (second == 60).then_some(GateReason::ReconcileTimedOut),
            "{second} s"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

/// The cause of the slow reconcile may also fail the write that closes the gates.
#[tokio::test(start_paused = true)]
async fn the_gates_of_a_canceled_reconcile_are_closed_with_the_next_try() {
    let world = World::released().await;
    let leader = Arc::new(world.leader().await);
    let cluster = cluster(&leader);
    let answers = world.management.wait_at(VALUES);
    let _taken = all_permits_taken(&leader).await;
    let reconcile = async || reconcile(&cluster, &leader).await.unwrap();
    world.management.refuse("/clusterbootstraps/one", 500);
    reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None, "the write failed");
    answers.send(true).unwrap();
    world.management.refuse("/nothing", 500);
    reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ReconcileTimedOut)
    );
}

/// The Cluster has no permit for slow reconciles.
#[tokio::test(start_paused = true)]
async fn closing_gates_while_waiting_for_a_permit_does_not_take_long() {
    const STATUS: &str = "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/team-a/clusterbootstraps/one/status";
    let world = World::released().await;
    let leader = Arc::new(world.leader().await);
    let _taken = all_permits_taken(&leader).await;
    leader.limiter.outcomes().failed("uid", now());
    let began = tokio::time::Instant::now();
    let ended = Error::Failed(ReconcileFailure::Panicked);
    leader.limiter.outcomes().ended("uid", Err(&ended), now(), now());
    let _never = world.management.wait_at(STATUS);
    let closed = reconcile(&cluster(&leader), &leader).await;
    closed.unwrap();
    assert_eq!(began.elapsed(), SLOW);
}

/// Fault that ends a reconcile early.
#[derive(Clone, Copy)]
enum End {
    Panics,
    Hangs,
    IsCutOff,
}

#[rstest]
#[case::in_a_panic(End::Panics, GateReason::ReconcilePanicked)]
#[case::after_its_time(End::Hangs, GateReason::ReconcileTimedOut)]
#[case::for_others(End::IsCutOff, GateReason::ReconcileTimedOut)]
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_ends_early_closes_the_gates(#[case] end: End, #[case] reason: GateReason) {
    let world = World::released().await;
    let leader = Arc::new(world.leader().await);
    let cluster = cluster(&leader);
    let answers = world.management.wait_at(VALUES);
    match end {
        // The server panics when its responses are dropped.
        End::Panics => drop(answers),
        End::Hangs => drop(tokio::spawn(async move {
            answers.closed().await;
        })),
        End::IsCutOff => {
            let _taken = all_permits_taken(&leader).await;
            reconcile(&cluster, &leader).await.unwrap();
            assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(reason));
            return;
        }
    }
    execute(&cluster, &leader, "uid").await.unwrap_err();
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(reason));
}
