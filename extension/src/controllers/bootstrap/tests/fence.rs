//! Reconcile of a replica that does not hold the lease.

use std::time::{Duration, Instant};

use rstest::rstest;

use super::*;
use crate::controllers::bootstrap::world::{World, cluster};

#[rstest]
#[case::without_leader_election(Fence::open(), true)]
#[case::that_holds_the_lease(held_until(Instant::now() + Duration::from_mins(10)), true)]
#[case::that_never_held_the_lease(Fence::closed(), false)]
#[case::whose_lease_has_run_out(held_until(Instant::now()), false)]
#[tokio::test(start_paused = true)]
async fn only_a_replica_that_holds_the_lease_writes(#[case] fence: Fence, #[case] writes: bool) {
    let world = World::new();
    let leader = world.leader_behind(&fence).await;
    let outcome = reconcile_once(&cluster(&leader), &leader).await;
    assert_eq!(outcome.is_ok(), writes, "{outcome:?}");
    for (server, of) in [(&world.management, "management"), (&world.workload, "workload")] {
        let asked = server.asked_to_write();
        assert_eq!(!asked.is_empty(), writes, "{of}: {asked:?}");
    }
}

fn held_until(then: Instant) -> Fence {
    let fence = Fence::closed();
    fence.open_until(then);
    fence
}
