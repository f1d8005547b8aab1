//! Drift that is found while packages are upgraded or wait for values.

use super::*;

/// Deletes the values Secret of a package from the workload.
fn remove_values_of(world: &World, package: &str) {
    let secrets = world.workload.all("secrets").into_iter();
    let mut named = secrets.filter(|(path, _)| path.contains(&format!("/one-{package}-")));
    world.workload.remove(&named.next().unwrap().0);
}

impl Due {
    /// How often the values of a package were found altered, by the record.
    fn repairs(&self, package: &str) -> u8 {
        let packages = self.world.record().packages.into_iter();
        let mut named = packages.filter(|found| found.name == package);
        named.next().unwrap().repairs
    }
}

/// The connection has seen it as it has to be, and nothing needs it for a proof.
#[tokio::test(start_paused = true)]
async fn drift_of_another_package_is_healed_that_a_look_finds_while_the_cluster_is_hot() {
    let world = with_extra(1).complete().await;
    remove_values_of(&world, "antrea");
    let mut due = Due::of(world).await;
    due.pass().await;
    for _ in 0..2 {
        due = due.shown().await;
        due.pass().await;
    }
    assert_eq!(
        (due.state(), due.repairs("antrea")),
        (PackageState::Reconciling, 1)
    );

    remove_values_of(&due.world, "extra-1");
    sleep(Duration::from_mins(2)).await;
    due.pass().await;
    assert_eq!(due.repairs("extra-1"), 1);
}

/// A package without values keeps its Cluster hot, for however long.
#[tokio::test(start_paused = true)]
async fn drift_of_another_package_is_healed_within_a_period_while_one_has_no_values() {
    let world = with_extra(1).complete().await;
    world
        .management
        .remove("/api/v1/namespaces/team-a/secrets/values-1");
    let due = Due::of(world).await;
    due.pass().await;
    let due = due.shown().await;
    due.pass().await;
    remove_values_of(&due.world, "antrea");
    due.pass().await;
    let read = due.world.workload.requests();
    due.pass().await;
    let asked = due
        .world
        .workload
        .asked_last(due.world.workload.requests() - read);
    assert!(!asked.iter().any(|asked| asked.contains("/secrets")), "{asked:?}");
    assert_eq!(due.repairs("antrea"), 0, "before its time");
    sleep(PERIOD).await;
    due.pass().await;
    assert_eq!(due.repairs("antrea"), 1);
}
