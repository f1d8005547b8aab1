//! A leader without the list of a kind, for example because kapp-controller is not installed.

use rstest::rstest;
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{CLUSTER, World, cluster};

const HELD: Option<GateReason> = Some(GateReason::APIUnavailable);

#[rstest]
#[case::packages("/apis/data.packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packages")]
#[case::installs("/apis/packaging.carvel.dev/v1alpha1/packageinstalls")]
#[case::apps("/apis/kappctrl.k14s.io/v1alpha1/apps")]
#[case::workers("/apis/cluster.x-k8s.io/v1beta2/machinedeployments")]
#[case::pools("/apis/cluster.x-k8s.io/v1beta2/machinepools")]
#[case::templates("/apis/run.tanzu.vmware.com/v1alpha3/namespaces/tkg-system/clusterbootstraptemplates")]
#[case::classes("/apis/cluster.x-k8s.io/v1beta2/clusterclasses")]
#[tokio::test(start_paused = true)]
async fn its_empty_store_lets_no_managed_cluster_go(#[case] list: &'static str) {
    let world = World::released().await;
    let written = world.workload.asked_to_write();
    let (leader, listed) = world.leader_without(list).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), HELD);
    assert_eq!(world.workload.asked_to_write(), written);

    listed.send(true).unwrap();
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None, "once it is listed");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_at_rest_is_left_as_it_is() {
    let world = World::completed().await;
    let before = (world.record(), world.workload.asked_to_write());
    let (leader, _listed) = world
        .leader_without("/apis/packaging.carvel.dev/v1alpha1/packageinstalls")
        .await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!((world.record(), world.workload.asked_to_write()), before);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_goes_on() {
    let world = World::released().await;
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let (leader, _listed) = world
        .leader_without("/apis/packaging.carvel.dev/v1alpha1/packageinstalls")
        .await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(world.held(Hook::BeforeClusterDelete), None);
}

/// An empty list brings no object, and so no event.
#[tokio::test(start_paused = true)]
async fn its_first_list_requeues_the_waiting_clusters() {
    let (frozen, events, triggers) = (
        Frozen::of("packageinstalls"),
        Events::default(),
        Requeues::default(),
    );
    frozen.set(true);
    let client = client(&frozen, &events, |_| Way::Answered);
    let (context, following) = world::context(&client, &Fence::open(), &triggers);
    let _following = tokio::spawn(following);
    context.stores.filled_for_managed().await;
    let running = running(context, &triggers);
    let count = |reason| {
        let events = events.lock().unwrap();
        ["bad", "good", "worse"].map(|name| published(&events, name, reason))
    };
    sleep(Duration::from_secs(1)).await;
    assert_eq!((count("APIUnavailable"), count("TKRNotFound")), ([1; 3], [0; 3]));
    frozen.set(false);
    sleep(Duration::from_secs(5)).await;
    assert_eq!((count("APIUnavailable"), count("TKRNotFound")), ([1; 3], [1; 3]));
    running.abort();
}
