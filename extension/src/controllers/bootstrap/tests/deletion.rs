//! Deletion of a Cluster with an additional package.

use rstest::rstest;
use sluice_crds::{labels::annotation, run::Hook};

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, KUBECONFIG, METRICS, PACKAGES, World, cluster, kubeconfig_secret, package_of,
};

const INSTALL: &str = "/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/one-metrics";

fn add_metrics(world: &World) {
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["additionalPackages"] = json!([{"refName": METRICS}]);
    });
}

fn delete(world: &World) {
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
}

#[rstest]
#[case::is_deployed(json!({"metadata": {}}), Some(GateReason::UninstallInProgress), &["one-antrea"])]
#[case::cannot_be_uninstalled(
    json!({"metadata": {}, "status": {"conditions": [{"type": "DeleteFailed", "status": "True"}]}}),
    None,
    &["one-antrea", "one-metrics"]
)]
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_an_additional_package_that(
    #[case] install: Value,
    #[case] held: Option<GateReason>,
    #[case] left: &[&str],
) {
    let world = World::new();
    let metrics = package_of("metrics.example.com", "1.9.0", "a");
    world.management.put(&format!("{PACKAGES}/{METRICS}"), metrics);
    add_metrics(&world);
    world.reconcile().await;
    assert_eq!(
        world.workload.names("packageinstalls"),
        ["one-antrea", "one-metrics"]
    );

    world
        .workload
        .edit(INSTALL, |found| found["status"] = install["status"].clone());
    delete(&world);
    world.leader().await;
    assert_eq!(
        world.held(Hook::BeforeClusterDelete),
        held,
        "{:?}",
        world.record()
    );
    assert_eq!(world.workload.names("packageinstalls"), left);
}

/// Returns a Cluster in deletion, with open gates and an additional package that is installed.
async fn deleted() -> World {
    let world = Box::pin(World::released()).await;
    add_metrics(&world);
    let install = json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
        "metadata": {"name": "one-metrics", "namespace": "tkg-system"}, "spec": {},
    });
    world.workload.put(INSTALL, install);
    delete(&world);
    world
}

type Edit = fn(&World);

/// The open gates of the upgrade do not apply to the deletion.
#[rstest]
#[case::is_installed((|_| {}) as Edit, Some(GateReason::UninstallInProgress))]
#[case::is_skipped((|world| world.management.edit(BOOTSTRAP, |bootstrap| {
    bootstrap["metadata"]["annotations"][annotation::SKIP_PACKAGE_INSTALL_DELETION] = json!("metrics");
})) as Edit, None)]
#[case::has_a_neighbour_that_is_skipped((|world| world.management.edit(BOOTSTRAP, |bootstrap| {
    bootstrap["metadata"]["annotations"][annotation::SKIP_PACKAGE_INSTALL_DELETION] = json!("antrea");
})) as Edit, Some(GateReason::UninstallInProgress))]
#[case::cannot_be_listed((|world| world.workload.refuse("/packageinstalls", 500)) as Edit, Some(GateReason::WorkloadUnreachable))]
#[case::has_no_kind_any_more((|world| world.workload.refuse("/packageinstalls", 404)) as Edit, None)]
#[case::has_no_kubeconfig((|world| world.management.remove(KUBECONFIG)) as Edit, None)]
#[case::has_a_kubeconfig_that_is_refused((|world| world.management.put(KUBECONFIG, kubeconfig_secret("{}"))) as Edit, Some(GateReason::KubeconfigInvalid))]
#[tokio::test(start_paused = true)]
async fn a_deletion_after_an_upgrade_waits_for_a_package_that(
    #[case] edit: Edit,
    #[case] held: Option<GateReason>,
) {
    let world = deleted().await;
    edit(&world);
    Box::pin(world.leader()).await;
    assert_eq!(
        world.held(Hook::BeforeClusterDelete),
        held,
        "{:?}",
        world.record()
    );
}

/// Watches requeue it at once. Thousands of Clusters may be deleted together, each with a package that remains for long.
#[tokio::test(start_paused = true)]
async fn a_waiting_deletion_is_requeued_with_growing_delays() {
    let world = deleted().await;
    let mut going = world.workload.get(INSTALL).unwrap();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.workload.put(INSTALL, going);
    Box::pin(world.leader()).await;
    let leader = Box::pin(world.leader()).await;
    let again = async || {
        let Done::RequeueAfter(time) = reconcile_once(&cluster(&leader), &leader).await.unwrap() else {
            panic!("it is not waited for");
        };
        time.as_millis()
    };
    let first = again().await;
    assert!((7_500..=10_000).contains(&first), "{first}");
    sleep(Duration::from_mins(20)).await;
    let later = again().await;
    assert!((45_000..=60_000).contains(&later), "{later}");
    assert!(!leader.remotes.is_empty(), "watches requeue it");
}
