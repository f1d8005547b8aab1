//! Writes to both clusters under the fence of the lease, from the flags of the process to the requests.

use rstest::rstest;

use super::{
    loopback::{Loopback, until},
    *,
};
use crate::controllers::bootstrap::world::{KUBE_SYSTEM, KUBECONFIG, World};

/// Time that a reconcile is blocked halfway.
const HELD: Duration = Duration::from_secs(2);

/// A leader with a late renewal is blocked during a reconcile, and continues after the lease has expired.
#[rstest]
#[case::while_it_is_held(Duration::from_mins(1), true)]
#[case::once_it_has_run_out(HELD, false)]
#[tokio::test]
async fn a_leader_writes_to_both_clusters_only_while_the_lease_is_held(
    #[case] renew_deadline: Duration,
    #[case] writes: bool,
) {
    let world = World::new();
    let servers = Loopback::of(&world).await;
    let deadline = format!("{}s", renew_deadline.as_secs());
    let flags = [
        "--leader-elect",
        "--leader-elect-retry-period",
        "5m",
        "--leader-elect-renew-deadline",
        &deadline,
    ];
    let goes_on = world.management.wait_at(KUBECONFIG);
    let running = servers.run(&flags, &CancellationToken::new());
    let leads = || {
        world
            .management
            .asked_to_write()
            .iter()
            .any(|asked| asked.ends_with("/leases"))
    };
    until("the leader takes the lease", leads).await;
    // The release controller writes as soon as the lease is held, whatever the Cluster reconciler does.
    let of_reconciles = || {
        let mut asked = world.management.asked_to_write();
        let others = ["/leases", "/tanzukubernetesreleases/", "/clusters/"];
        asked.retain(|asked| !others.iter().any(|other| asked.contains(other)));
        asked
    };
    assert_eq!(
        of_reconciles(),
        Vec::<String>::new(),
        "before the workload is reached"
    );
    sleep(HELD).await;
    let asked_before = world.management.asked_to_write().len();
    goes_on.send_replace(true);

    until("the reconcile reaches the workload", || {
        world.workload.was_asked_for(KUBE_SYSTEM)
    })
    .await;
    if writes {
        until("the workload is written to", || {
            !world.workload.asked_to_write().is_empty()
        })
        .await;
        until("the record is written", || world.writes_of_bootstrap() > 0).await;
    } else {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.workload.asked_to_write(), Vec::<String>::new());
        let mut written = world.management.asked_to_write().split_off(asked_before);
        written.retain(|asked| !asked.contains("/leases"));
        assert_eq!(written, Vec::<String>::new(), "after the lease has run out");
    }
    assert!(!running.is_finished());
    running.abort();
}
