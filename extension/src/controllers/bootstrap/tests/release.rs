//! Release of a hop, and whether the packages belong to it.

use rstest::rstest;
use serde_json::Value;
use sluice_crds::{labels::annotation, run::Hook};

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, PACKAGES, RELEASE, TEMPLATES, VERSION, World, package_of, put_release,
};

const SAME_VERSION: &str = "v1.36.3---test.2";
const NEXT_VERSION: &str = "v1.37.0";
const NEXT: &str = "v1.37.0---test.1";
const CLASS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusterclasses/class";

/// Returns a Cluster with this label and target that has releases pinned. Two releases of v1.36.3 exist.
fn pinned(label: &str, target: &str, releases: &[(&str, &str)]) -> World {
    let world = World::new();
    put_release(&world.management, SAME_VERSION, VERSION);
    put_release(&world.management, NEXT, NEXT_VERSION);
    let versions = ["v1.35.4", VERSION, NEXT_VERSION];
    let class = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {},
        "spec": {"kubernetesVersions": versions},
    });
    world.management.put(CLASS, class);
    let of = |(version, release): &(&str, &str)| {
        let labels = json!({"run.tanzu.vmware.com/os-image": "image", label::TKR: release});
        ((*version).to_owned(), json!({"labels": labels}))
    };
    let data: serde_json::Map<String, Value> = releases.iter().map(of).collect();
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"][label::TKR] = json!(label);
        let topology = &mut cluster["spec"]["topology"];
        topology["version"] = json!(target);
        topology["variables"] = json!([{"name": "TKR_DATA", "value": data}]);
    });
    world
}

#[rstest]
#[case::for_the_target(SAME_VERSION, VERSION, &[(VERSION, RELEASE)])]
#[case::for_a_version_on_the_way(NEXT, NEXT_VERSION, &[(VERSION, RELEASE), (NEXT_VERSION, NEXT)])]
#[tokio::test(start_paused = true)]
async fn a_release_is_pinned_for_the_hop(
    #[case] label: &str,
    #[case] target: &str,
    #[case] releases: &[(&str, &str)],
) {
    let world = pinned(label, target, releases);
    world.reconcile().await;
    let record = world.record();
    assert_eq!(record.hop.as_deref(), Some(VERSION));
    assert_eq!(record.tkr.as_deref(), Some(RELEASE), "{record:?}");
}

/// Only the record shows that the control plane comes from another version, and that workers may still follow.
#[tokio::test(start_paused = true)]
async fn packages_are_bound_to_the_release_when_the_control_plane_has_its_version() {
    let world = World::new();
    let earlier = "antrea.example.com.1.8.0";
    let package = package_of("antrea.example.com", "1.8.0", "a");
    world.management.put(&format!("{PACKAGES}/{earlier}"), package);
    world.reconcile().await;
    world.control_plane_at(VERSION);
    world.reconcile().await;
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["generation"] = json!(2);
        bootstrap["spec"]["cni"]["refName"] = json!(earlier);
    });
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::AfterControlPlaneUpgrade),
        Some(GateReason::PackageBelowRelease),
        "{:?}",
        world.record()
    );
}

/// Without it, the packages of the release are unknown.
#[rstest]
#[case::a_template_that_is_gone(
    (|world: &World| world.management.remove(&format!("{TEMPLATES}/{RELEASE}"))) as fn(&World),
    GateReason::TemplateNotFound
)]
#[case::kept_versions_that_cannot_be_read(
    (|world: &World| world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["annotations"][annotation::KEEP_PACKAGE_VERSIONS] = json!("antrea");
    })) as fn(&World),
    GateReason::KeptVersionsInvalid
)]
#[tokio::test(start_paused = true)]
async fn what_packages_are_compared_with_closes_the_gate_when_it_is_lost(
    #[case] lost: fn(&World),
    #[case] reason: GateReason,
) {
    let world = World::released().await;
    lost(&world);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(reason),
        "{:?}",
        world.record()
    );
}

#[rstest]
#[case::that_is_paused(true)]
#[case::that_is_not(false)]
#[tokio::test(start_paused = true)]
async fn packages_of_a_release_are_merged_into_a_bootstrap(#[case] paused: bool) {
    let world = World::new();
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["annotations"] = json!({});
        bootstrap["spec"]["paused"] = json!(paused);
    });
    world.reconcile().await;
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    let merged = bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR] == RELEASE;
    assert_eq!(merged, !paused, "{bootstrap}");
}
