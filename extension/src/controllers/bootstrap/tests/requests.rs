//! Number and size of the requests of a reconcile.

use sluice_core::packages::bootstrap::MOST_ADDITIONAL;
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, KUBE_SYSTEM, PACKAGES, RELEASE, TEMPLATES, World, change, cluster, package_of,
};

/// Later writes may depend on it.
#[tokio::test(start_paused = true)]
async fn writes_that_belong_together_end_with_the_first_one_that_is_refused() {
    let world = World::new();
    world.add_metrics(None);
    world.workload.refuse_writes("/secrets", 403);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::WriteRefused)
    );
    let asked = world.workload.asked_to_write();
    let secrets = asked.iter().filter(|asked| asked.ends_with("/secrets"));
    assert_eq!(secrets.count(), 1, "{asked:?}");
}

/// The process caches the responses of many reconciles at once.
#[tokio::test(start_paused = true)]
async fn answers_of_a_workload_that_are_too_large_together_are_left() {
    let world = World::new();
    world.reconcile().await;
    world.deployed();
    for plural in ["secrets", "packages"] {
        change(&world.workload, plural, |object| {
            object["metadata"]["annotations"]["large"] = json!("a".repeat(17 * 1024 * 1024));
        });
    }
    let leader = world.leader().await;
    let outcome = reconcile_once(&cluster(&leader), &leader).await;
    assert!(world.held(Hook::BeforeClusterUpgrade).is_some(), "{outcome:?}");
}

/// The watches have shown objects of the other server.
#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_where_another_server_answers() {
    let world = World::released().await;
    let leader = world.leader().await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert!(!leader.remotes.is_empty());
    let before = world.workload.asked_to_write();
    world
        .workload
        .put(KUBE_SYSTEM, json!({"metadata": {"uid": "another"}}));
    tokio::time::advance(Duration::from_secs(30)).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert!(leader.remotes.is_empty());
    assert_eq!(world.workload.asked_to_write(), before);
}

/// Returns packages with values from Secrets, one more than the definition allows in a ClusterBootstrap.
fn too_many() -> Value {
    let package = |number: usize| {
        let (name, secret) = (format!("{number}.example.com.1.0.0"), format!("values-{number}"));
        json!({"refName": name, "valuesFrom": {"secretRef": secret}})
    };
    (0..=MOST_ADDITIONAL).map(package).collect()
}

fn they_exist(world: &World) {
    for number in 0..=MOST_ADDITIONAL {
        let ref_name = format!("{number}.example.com");
        let package = package_of(&ref_name, "1.0.0", "a");
        world
            .management
            .put(&format!("{PACKAGES}/{ref_name}.1.0.0"), package);
    }
}

/// A ClusterBootstrap that was stored before the definition refused it.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_for_a_cluster_bootstrap_with_too_many_packages() {
    let world = Box::pin(World::released()).await;
    they_exist(&world);
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["additionalPackages"] = too_many();
    });
    let asked = || {
        let read = world.management.times_asked_below("/secrets");
        (
            read,
            world.workload.times_asked_below("/secrets"),
            world.workload.asked_to_write(),
        )
    };
    let before = asked();
    world.reconcile().await;
    assert_eq!(asked(), before);
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesTooMany)
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_for_a_template_with_too_many_packages() {
    let world = World::new();
    they_exist(&world);
    world.management.remove(BOOTSTRAP);
    let template = format!("{TEMPLATES}/{RELEASE}");
    world.management.edit(&template, |template| {
        template["spec"]["additionalPackages"] = too_many();
    });
    world.reconcile().await;
    assert_eq!(world.management.times_asked_below("/secrets"), 0);
    let (_, event) = world.management.only("events");
    assert_eq!(event["reason"], "PackagesTooMany", "{event}");
}
