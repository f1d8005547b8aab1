//! Reads of the kubeconfig of a hot Cluster.

use super::*;
use crate::controllers::bootstrap::world::{
    KUBECONFIG, VALUES, World, cluster, kubeconfig_of, kubeconfig_secret, values,
};

/// Returns the number of times that another reconcile of a leader reads the kubeconfig.
async fn reads(world: &World, leader: &Context) -> usize {
    let before = world.management.times_asked_for(KUBECONFIG);
    let cluster = cluster(leader);
    Box::pin(reconcile_once(&cluster, leader)).await.unwrap();
    world.management.times_asked_for(KUBECONFIG) - before
}

/// Returns a Cluster that waits for its packages, and a leader with a connection to it that has nothing to write.
async fn waiting() -> (World, Context) {
    let world = World::new();
    world.reconcile().await;
    world.reconcile().await;
    let leader = Box::pin(world.leader()).await;
    let _opened = reads(&world, &leader).await;
    (world, leader)
}

#[tokio::test(start_paused = true)]
async fn the_kubeconfig_of_an_open_connection_is_read_every_nine_seconds() {
    let (world, leader) = waiting().await;
    for _ in 0..3 {
        assert_eq!(reads(&world, &leader).await, 0, "it was read a moment ago");
    }
    sleep(Duration::from_secs(9)).await;
    assert_eq!(reads(&world, &leader).await, 1, "it may have changed");
    assert_eq!(reads(&world, &leader).await, 0, "it was read again");

    let moved = kubeconfig_of("https://127.0.0.1:2", "another authority");
    world.management.put(KUBECONFIG, kubeconfig_secret(&moved));
    sleep(Duration::from_secs(9)).await;
    assert_eq!(reads(&world, &leader).await, 1, "it has changed");
}

/// The kubeconfig may name other credentials, or another server.
#[rstest]
#[case::credentials(401, 1)]
#[case::rights(403, 1)]
#[case::an_object(422, 0)]
#[tokio::test(start_paused = true)]
async fn the_kubeconfig_is_read_in_a_reconcile_whose_credentials_are_refused(
    #[case] code: u16,
    #[case] expected: usize,
) {
    let (world, leader) = waiting().await;
    assert_eq!(reads(&world, &leader).await, 0, "it was read a moment ago");
    world
        .workload
        .refuse("/api/v1/namespaces/tkg-system/secrets", code);
    // Another values Secret has to be written.
    world.management.put(VALUES, values(2));
    assert_eq!(reads(&world, &leader).await, expected);
}
