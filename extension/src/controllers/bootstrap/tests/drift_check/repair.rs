//! Drift during an upgrade or while a package waits for values.

use super::*;

/// Deletes the values Secret of a package from the workload cluster.
fn remove_values_of(world: &World, package: &str) {
    let secrets = world.workload.all("secrets").into_iter();
    let mut named = secrets.filter(|(path, _)| path.contains(&format!("/one-{package}-")));
    world.workload.remove(&named.next().unwrap().0);
}

impl Due {
    /// Returns the recorded number of repairs of the package's values.
    fn repairs(&self, package: &str) -> u8 {
        let packages = self.world.record().packages.into_iter();
        let mut named = packages.filter(|found| found.name == package);
        named.next().unwrap().repairs
    }
}

/// The connection has shown it unchanged, and no proof needs it.
#[tokio::test(start_paused = true)]
async fn a_drift_check_repairs_another_package_while_the_cluster_is_hot() {
    let world = with_extra(1).complete().await;
    remove_values_of(&world, "antrea");
    let mut due = Due::of(world).await;
    due.reconcile().await;
    for _ in 0..2 {
        due = Box::pin(due.shown()).await;
        due.reconcile().await;
    }
    assert_eq!(
        (due.state(), due.repairs("antrea")),
        (PackageState::Reconciling, 1)
    );

    remove_values_of(&due.world, "extra-1");
    sleep(Duration::from_mins(2)).await;
    due.reconcile().await;
    assert_eq!(due.repairs("extra-1"), 1);
}

/// A package without values keeps its Cluster hot, for however long.
#[tokio::test(start_paused = true)]
async fn drift_is_repaired_within_a_period_while_another_package_has_no_values() {
    let world = with_extra(1).complete().await;
    world
        .management
        .remove("/api/v1/namespaces/team-a/secrets/values-1");
    let due = Due::of(world).await;
    due.reconcile().await;
    let due = Box::pin(due.shown()).await;
    due.reconcile().await;
    remove_values_of(&due.world, "antrea");
    due.reconcile().await;
    let read = due.world.workload.requests();
    due.reconcile().await;
    let asked = due
        .world
        .workload
        .asked_last(due.world.workload.requests() - read);
    assert!(!asked.iter().any(|asked| asked.contains("/secrets")), "{asked:?}");
    assert_eq!(due.repairs("antrea"), 0, "before its time");
    sleep(PERIOD).await;
    due.reconcile().await;
    assert_eq!(due.repairs("antrea"), 1);
}
