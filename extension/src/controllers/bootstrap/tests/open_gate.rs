//! Drift checks of the evidence of a gate while it is open.

use rstest::rstest;
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{VALUES, World, change, cluster, values};

const STATUS: &str = "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/team-a/clusterbootstraps/one/status";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Returns a Cluster with an open gate of the control plane, and a leader that has reconciled it since.
async fn released() -> (World, Context) {
    let world = Box::pin(World::released()).await;
    let leader = Box::pin(world.leader()).await;
    Box::pin(reconcile_after(&leader, Duration::ZERO)).await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
    (world, leader)
}

/// Reconciles the Cluster after this time.
async fn reconcile_after(leader: &Context, time: Duration) {
    tokio::time::advance(time).await;
    reconcile_once(&cluster(leader), leader).await.unwrap();
}

#[rstest]
#[case::values("secrets", |secret: &mut Value| secret["data"] = values(2)["data"].clone())]
#[case::a_package("packages", |package: &mut Value| package["spec"]["version"] = json!("1.9.1"))]
#[tokio::test(start_paused = true)]
async fn what_is_altered_on_the_workload_closes_an_open_gate(
    #[case] plural: &str,
    #[case] alter: fn(&mut Value),
) {
    let (world, leader) = released().await;
    change(&world.workload, plural, alter);
    reconcile_after(&leader, Duration::from_secs(10)).await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesNotReady)
    );
    assert_eq!(world.record().packages[0].repairs, 1, "{:?}", world.record());
}

#[tokio::test(start_paused = true)]
async fn the_identity_that_packages_are_installed_with_is_put_right_while_a_gate_is_open() {
    let (world, leader) = released().await;
    let role = world.workload.only("clusterroles").0;
    assert!(role.starts_with(ROLES), "{role}");
    world.workload.remove(&role);
    reconcile_after(&leader, Duration::from_secs(10)).await;
    assert!(world.workload.get(&role).is_some());
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
}

/// A failed drift check proves no drift, until the timeout of a silent workload cluster.
#[rstest]
#[case::of_values("/secrets/")]
#[case::of_a_package("/packages/")]
#[case::of_the_identity("/clusterroles/")]
#[tokio::test(start_paused = true)]
async fn a_failed_drift_check_closes_an_open_gate_only_after_a_while(#[case] refused: &'static str) {
    let (world, leader) = released().await;
    world.workload.refuse(refused, 504);
    for _ in 0..5 {
        reconcile_after(&leader, Duration::from_secs(10)).await;
        assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
    }
    reconcile_after(&leader, Duration::from_secs(10)).await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::WorkloadUnreachable)
    );
}

/// Sluice repairs the drift only after the record has closed the gate, and detects it until then.
#[rstest]
#[case::the_workload_is_in_trouble(504)]
#[case::others_write_it(409)]
#[tokio::test(start_paused = true)]
async fn what_is_altered_closes_an_open_gate_before_it_is_put_right(#[case] code: u16) {
    let (world, leader) = released().await;
    change(&world.workload, "packages", |package| {
        package["spec"]["version"] = json!("1.9.1");
    });
    world.workload.refuse_writes("/packages", code);
    let before = world.workload.asked_to_write();
    reconcile_after(&leader, Duration::from_secs(10)).await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesNotReady)
    );
    assert_eq!(world.workload.asked_to_write(), before);
}

/// For example after a restart with another `--sync-period`: kapp-controller deploys again after the repair.
#[tokio::test(start_paused = true)]
async fn a_gate_is_closed_before_any_field_of_a_package_install_is_put_right() {
    let world = Box::pin(World::released()).await;
    change(&world.workload, "packageinstalls", |install| {
        install["spec"]["syncPeriod"] = json!("1h0m0s");
    });
    let before = world.workload.asked_to_write();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesNotReady)
    );
    assert_eq!(world.workload.asked_to_write(), before);
    world.reconcile().await;
    assert_eq!(
        world.workload.only("packageinstalls").1["spec"]["syncPeriod"],
        json!("10m0s")
    );
}

/// The next reconcile would treat an unconfirmed proof as confirmed.
#[tokio::test(start_paused = true)]
async fn a_proof_is_not_recorded_that_the_workload_does_not_confirm() {
    let world = Box::pin(World::released()).await;
    change(&world.workload, "apps", |app| {
        app["metadata"]["generation"] = json!(2);
        app["status"]["observedGeneration"] = json!(2);
    });
    let leader = Box::pin(world.leader()).await;
    assert_eq!(world.record().packages[0].app_generation, Some(1));
    world.workload.refuse("/apps/", 503);
    reconcile_after(&leader, Duration::from_secs(1)).await;
    assert_eq!(
        world.record().packages[0].app_generation,
        Some(1),
        "{:?}",
        world.record()
    );
}

#[tokio::test(start_paused = true)]
async fn a_completed_upgrade_has_no_drift_check_of_its_evidence() {
    let world = World::completed().await;
    let leader = world.leader().await;
    let secret = world.workload.only("secrets").0;
    world.workload.remove(&secret);
    leader.remotes.close("uid");
    reconcile_after(&leader, Duration::from_secs(10)).await;
    assert!(leader.remotes.is_empty());
    assert_eq!(world.workload.get(&secret), None);
}

/// The write may be the last step of a reconcile for minutes.
#[tokio::test(start_paused = true)]
async fn a_gate_is_closed_before_what_it_rests_on_is_written_again() {
    let world = Box::pin(World::released()).await;
    let (before, was) = (
        world.workload.asked_to_write(),
        world.workload.only("packageinstalls").1,
    );
    world.management.put(VALUES, values(2));
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesNotReady)
    );
    assert_eq!(world.workload.asked_to_write(), before);

    world.reconcile().await;
    assert_ne!(world.workload.only("packageinstalls").1["spec"], was["spec"]);
    world.deployed();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );
}

/// The watch does not show the open gate yet.
#[tokio::test(start_paused = true)]
async fn a_gate_that_was_just_opened_is_known_to_be_open() {
    let world = World::new();
    Box::pin(world.reconcile()).await;
    world.deployed();
    let leader = Box::pin(world.leader()).await;
    Box::pin(reconcile_after(&leader, Duration::ZERO)).await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );

    let before = world.workload.asked_to_write();
    world.management.put(VALUES, values(2));
    let refused = reconcile_once(&cluster(&leader), &leader).await;
    assert!(refused.is_err_and(|error| error.is_conflict()));
    assert_eq!(world.workload.asked_to_write(), before);
}

/// Its stores are empty before the first lists, which the workload cluster refuses for now.
#[tokio::test(start_paused = true)]
async fn a_gate_stays_open_for_a_while_over_a_connection_that_lists_nothing_yet() {
    let (world, leader) = released().await;
    world.workload.refuse("/packageinstalls", 503);
    world.connect(&leader);
    reconcile_after(&leader, Duration::ZERO).await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
    reconcile_after(&leader, Duration::from_secs(10)).await;
    assert!(world.held(Hook::BeforeClusterUpgrade).is_some());
}

/// The API server may have executed a write without a response.
#[rstest]
#[case::refused(false)]
#[case::cut_off(true)]
#[tokio::test(start_paused = true)]
async fn a_gate_may_be_open_by_a_write_that_was(#[case] cut_off: bool) {
    let world = World::new();
    Box::pin(world.reconcile()).await;
    world.deployed();
    let leader = Box::pin(world.leader()).await;
    let reconcile = || {
        tokio::time::timeout(
            SLOW,
            Box::pin(async { reconcile_once(&cluster(&leader), &leader).await }),
        )
    };
    if cut_off {
        let answers = world.management.wait_at(STATUS);
        assert!(reconcile().await.is_err());
        drop(answers);
        drop(world.management.wait_at("/nothing"));
    } else {
        world.management.refuse_writes("/clusterbootstraps/one", 504);
        assert!(reconcile().await.unwrap().is_err());
        world.management.refuse("/nothing", 504);
    }

    let before = world.workload.asked_to_write();
    world.management.put(VALUES, values(2));
    reconcile().await.unwrap().unwrap();
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesNotReady)
    );
    assert_eq!(world.workload.asked_to_write(), before);
}

/// Other progress is written with a delay after a write.
#[tokio::test(start_paused = true)]
async fn a_gate_opens_also_a_moment_after_other_progress_was_written() {
    let world = World::new();
    Box::pin(world.reconcile()).await;
    world.deployed();
    let leader = Box::pin(world.leader()).await;
    leader.local_states().wrote("uid", now());
    Box::pin(reconcile_after(&leader, Duration::ZERO)).await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
}
