//! Pause of a Cluster that the addons-manager has left behind.

use sluice_crds::{labels::annotation, run::Hook};

use super::*;
use crate::controllers::bootstrap::world::{CLUSTER, RELEASE, World};

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_addons_manager_goes_once_the_record_releases_the_cluster() {
    let world = World::new();
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["annotations"] = json!({annotation::LEGACY_PAUSED: RELEASE});
        cluster["spec"]["paused"] = json!(true);
    });
    let is_paused = || world.management.get(CLUSTER).unwrap()["spec"]["paused"] == json!(true);
    world.reconcile().await;
    assert!(world.held(Hook::BeforeClusterUpgrade).is_some());
    world.reconcile().await;
    assert!(is_paused(), "nothing else holds it before the record does");

    world.deployed();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );
    assert!(is_paused(), "it was not released when the reconcile began");
    world.reconcile().await;
    assert!(!is_paused());
}
