//! The deletion of a Cluster that has a package of its own beside those of the release.

use rstest::rstest;
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{BOOTSTRAP, CLUSTER, PACKAGES, World, package_of};

const METRICS: &str = "metrics.example.com.1.9.0";
const INSTALL: &str = "/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/one-metrics";

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
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["additionalPackages"] = json!([{"refName": METRICS}]);
    });
    world.pass().await;
    assert_eq!(
        world.workload.names("packageinstalls"),
        ["one-antrea", "one-metrics"]
    );

    world
        .workload
        .edit(INSTALL, |found| found["status"] = install["status"].clone());
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    world.leader().await;
    assert_eq!(
        world.held(Hook::BeforeClusterDelete),
        held,
        "{:?}",
        world.record()
    );
    assert_eq!(world.workload.names("packageinstalls"), left);
}

/// The gates of an upgrade say nothing of the deletion.
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_also_where_an_upgrade_was_let_go() {
    let world = Box::pin(World::released()).await;
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["additionalPackages"] = json!([{"refName": METRICS}]);
    });
    let install = json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
        "metadata": {"name": "one-metrics", "namespace": "tkg-system"}, "spec": {},
    });
    world.workload.put(INSTALL, install);
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    Box::pin(world.leader()).await;
    assert_eq!(
        world.held(Hook::BeforeClusterDelete),
        Some(GateReason::UninstallInProgress),
        "{:?}",
        world.record()
    );
}
