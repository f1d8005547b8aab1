//! Management packages that the release of the next step needs.

use rstest::rstest;
use sluice_crds::{
    labels::{annotation, label},
    run::Hook,
};

use super::*;
use crate::controllers::bootstrap::world::{
    APPS, BOOTSTRAP, CLUSTER, PACKAGE, RELEASE, TEMPLATES, VERSION, World, cluster, put_release,
};

const RELEASE_PATH: &str = "/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases/v1.36.3---test.1";
const INSTALL: &str =
    "/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/tkg-clusterclass";
const REF_NAME: &str = "tkg-clusterclass.example.com";

/// Returns a Cluster whose release needs a management package.
fn requiring() -> World {
    let world = World::new();
    world.management.edit(RELEASE_PATH, |release| {
        release["metadata"]["annotations"] = json!({annotation::REQUIRES: format!("{REF_NAME}>=0.31.0")});
    });
    world
}

fn app() -> String {
    format!("{APPS}/tkg-clusterclass")
}

/// Puts the proven management package at this version and generation of its App.
fn put_package(world: &World, version: &str, generation: i64) {
    let succeeded = json!([{"type": "ReconcileSucceeded", "status": "True"}]);
    world.management.put(
        INSTALL,
        json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "metadata": {"uid": "tkg-install", "generation": 1},
            "spec": {"packageRef": {"refName": REF_NAME}},
            "status": {"observedGeneration": 1, "version": version, "conditions": succeeded},
        }),
    );
    world.management.put(
        &app(),
        json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
            "metadata": {
                "uid": "tkg-app", "generation": generation,
                "annotations": {annotation::PACKAGE_VERSION: version},
                "ownerReferences": [{
                    "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
                    "name": "tkg-clusterclass", "uid": "tkg-install",
                }],
            },
            "spec": {},
            "status": {"observedGeneration": generation, "conditions": succeeded},
        }),
    );
}

const NOT_READY: Option<GateReason> = Some(GateReason::ManagementPackageNotReady);

#[tokio::test(start_paused = true)]
async fn a_cluster_waits_for_the_package_and_continues() {
    let world = requiring();
    put_package(&world, "0.30.0", 1);
    world.reconcile().await;
    for hook in [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade] {
        assert_eq!(world.held(hook), NOT_READY, "{:?}", world.record());
    }
    let record = world.record();
    let named = |gate: &sluice_crds::run::Gate| gate.message.contains("wanted >=0.31.0, found 0.30.0");
    assert!(record.gates.iter().any(named), "{record:?}");
    assert_eq!(world.workload.names("packageinstalls"), [""; 0]);
    put_package(&world, "0.31.0", 2);
    world.reconcile().await;
    assert_eq!(world.workload.names("packageinstalls").len(), 1);
    world.deployed();
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeControlPlaneUpgrade), None);
}

/// Nothing is merged either.
#[tokio::test(start_paused = true)]
async fn the_bootstrap_of_a_waiting_cluster_is_not_merged() {
    let world = requiring();
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["annotations"] = json!({});
    });
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), NOT_READY);
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    assert_ne!(
        bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR],
        RELEASE
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_at_the_release_is_not_held() {
    let world = requiring();
    put_package(&world, "0.31.0", 1);
    let world = world.complete().await;
    world.management.remove(INSTALL);
    world.management.remove(&app());
    let before = (world.writes_of_bootstrap(), world.workload.asked_to_write());
    world.reconcile().await;
    let after = (world.writes_of_bootstrap(), world.workload.asked_to_write());
    assert_eq!(after, before);
    assert!(world.record().gates.iter().all(|gate| gate.open));
}

/// Once the control plane has the version, its packages must follow.
#[tokio::test(start_paused = true)]
async fn a_control_plane_that_has_the_version_waits_for_no_requirement() {
    let world = requiring();
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), NOT_READY);
    world.control_plane_at(VERSION);
    world.reconcile().await;
    world.deployed();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::AfterControlPlaneUpgrade),
        None,
        "{:?}",
        world.record()
    );
}

type Edit = fn(&World);

/// An upgrade of the package may need another proof while the gate is open.
#[rstest]
#[case::another_generation((|world: &World| world.management.edit(&app(), |app| app["metadata"]["generation"] = json!(2))) as Edit)]
#[case::paused((|world: &World| world.management.edit(INSTALL, |install| install["spec"]["paused"] = json!(true))) as Edit)]
#[case::removed((|world: &World| world.management.remove(INSTALL)) as Edit)]
#[case::higher_requirement((|world: &World| world.management.edit(RELEASE_PATH, |release| {
    release["metadata"]["annotations"] = json!({annotation::REQUIRES: format!("{REF_NAME}>=0.32.0")});
})) as Edit)]
#[case::malformed((|world: &World| world.management.edit(RELEASE_PATH, |release| {
    release["metadata"]["annotations"] = json!({annotation::REQUIRES: REF_NAME});
})) as Edit)]
#[tokio::test(start_paused = true)]
async fn a_withdrawn_proof_closes_the_gate(#[case] edit: Edit) {
    let world = requiring();
    put_package(&world, "0.31.0", 1);
    world.reconcile().await;
    world.deployed();
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
    edit(&world);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        NOT_READY,
        "{:?}",
        world.record()
    );

    // A cache that is behind opens no gate, either.
    let world = requiring();
    put_package(&world, "0.31.0", 1);
    world.reconcile().await;
    world.deployed();
    let leader = world.leader().await;
    edit(&world);
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        NOT_READY,
        "{:?}",
        world.record()
    );
}

const SAME_VERSION: &str = "v1.36.3---test.2";
const SAME_VERSION_PATH: &str =
    "/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases/v1.36.3---test.2";

/// Returns a Cluster with machines of [`RELEASE`] whose label names [`SAME_VERSION`], which needs a management package. The packages of that
/// release are merged already.
async fn swapping() -> World {
    let world = World::completed().await;
    put_release(&world.management, SAME_VERSION, VERSION);
    world.management.edit(SAME_VERSION_PATH, |release| {
        release["metadata"]["annotations"] = json!({annotation::REQUIRES: format!("{REF_NAME}>=0.31.0")});
        release["spec"]["osImages"] = json!([{"name": "image"}]);
    });
    world.management.put(
        "/apis/run.tanzu.vmware.com/v1alpha3/osimages/image",
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {},
            "spec": {
                "kubernetesVersion": VERSION,
                "os": {"type": "linux", "name": "ubuntu", "version": "24.04", "arch": "amd64"},
                "image": {"type": "ami", "ref": {"id": "ami-0123"}},
            },
        }),
    );
    world.management.put(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusterclasses/class",
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {},
            "spec": {"variables": [{"name": "TKR_DATA"}]},
        }),
    );
    let mut template = world.management.get(&format!("{TEMPLATES}/{RELEASE}")).unwrap();
    template["metadata"] = json!({});
    world
        .management
        .put(&format!("{TEMPLATES}/{SAME_VERSION}"), template);
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["generation"] = json!(2);
        cluster["metadata"]["labels"][label::TKR] = json!(SAME_VERSION);
        let entry = json!({"osImageRef": {"name": "old"}, "labels": {label::TKR: RELEASE}});
        cluster["spec"]["topology"]["variables"] = json!([{"name": "TKR_DATA", "value": {VERSION: entry}}]);
    });
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR] = json!(SAME_VERSION);
    });
    world
}

/// Returns the release of the entry that the machines are made of.
fn made_of(world: &World) -> String {
    let cluster = world.management.get(CLUSTER).unwrap();
    let entry = &cluster["spec"]["topology"]["variables"][0]["value"][VERSION];
    entry["labels"][label::TKR].as_str().unwrap().to_owned()
}

/// Fails unless the machines stay because of the requirement.
fn waits_for_package(world: &World) {
    let record = world.record();
    let swap = record.swap.as_ref().unwrap();
    assert!(!swap.open, "{record:?}");
    assert_eq!(
        GateReason::parse(&swap.reason),
        Some(GateReason::ManagementPackageNotReady),
        "{record:?}"
    );
    assert_eq!(made_of(world), RELEASE);
}

/// Merged packages do not end the wait: machines of the release are made only after a fresh proof.
#[tokio::test(start_paused = true)]
async fn a_swap_waits_for_the_package_after_the_merge() {
    let world = swapping().await;
    put_package(&world, "0.30.0", 1);
    world.reconcile().await;
    waits_for_package(&world);
    put_package(&world, "0.31.0", 2);
    world.reconcile().await;
    assert_eq!(made_of(&world), SAME_VERSION, "{:?}", world.record());
}

/// A cache that is behind lets no machines be replaced, either.
#[rstest]
#[case::another_generation((|world: &World| world.management.edit(&app(), |app| app["metadata"]["generation"] = json!(3))) as Edit)]
#[case::removed((|world: &World| world.management.remove(INSTALL)) as Edit)]
#[case::higher_requirement((|world: &World| world.management.edit(SAME_VERSION_PATH, |release| {
    release["metadata"]["annotations"] = json!({annotation::REQUIRES: format!("{REF_NAME}>=0.32.0")});
})) as Edit)]
#[tokio::test(start_paused = true)]
async fn a_swap_does_not_begin_by_a_withdrawn_proof(#[case] edit: Edit) {
    let world = swapping().await;
    put_package(&world, "0.30.0", 1);
    world.reconcile().await;
    put_package(&world, "0.31.0", 2);
    let leader = world.leader().await;
    edit(&world);
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    waits_for_package(&world);
}

/// The status of the release has the proof of this generation of the App.
#[tokio::test(start_paused = true)]
async fn a_failed_resync_keeps_the_gate_open() {
    let world = requiring();
    put_package(&world, "0.31.0", 1);
    world.management.edit(RELEASE_PATH, |release| {
        release["status"]["requirements"] = json!({
            "requires": format!("{REF_NAME}>=0.31.0"),
            "proven": [{"package": REF_NAME, "version": "0.31.0", "appUID": "tkg-app", "appGeneration": 1}],
        });
    });
    world.reconcile().await;
    world.deployed();
    let failed = json!([{"type": "ReconcileFailed", "status": "True"}]);
    let app_path = app();
    for path in [INSTALL, app_path.as_str()] {
        world
            .management
            .edit(path, |object| object["status"]["conditions"] = failed.clone());
    }
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );
    world.management.edit(&app(), |app| {
        app["metadata"]["generation"] = json!(2);
        app["status"]["observedGeneration"] = json!(2);
    });
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        NOT_READY,
        "{:?}",
        world.record()
    );
}

#[tokio::test(start_paused = true)]
async fn a_listed_release_waits_for_no_package() {
    let world = requiring();
    world.management.edit(RELEASE_PATH, |release| {
        release["status"]["requirements"] =
            json!({"requires": format!("{REF_NAME}>=0.31.0"), "overridden": true});
    });
    world.reconcile().await;
    world.deployed();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_is_not_created_before() {
    let world = requiring();
    world.management.remove(BOOTSTRAP);
    world
        .management
        .remove("/apis/controlplane.example.com/v1/namespaces/team-a/goods/one");
    world.management.edit(CLUSTER, |cluster| {
        cluster["spec"].as_object_mut().unwrap().remove("controlPlaneRef");
    });
    world
        .management
        .edit(&format!("{TEMPLATES}/{RELEASE}"), |template| {
            template["spec"] = json!({"cni": {"refName": PACKAGE}});
        });
    world.reconcile().await;
    assert!(world.management.get(BOOTSTRAP).is_none());
    put_package(&world, "0.31.0", 1);
    world.leader().await;
    assert!(world.management.get(BOOTSTRAP).is_some());
}

/// Returns the message of condition `UpdatesAvailable` of the ClusterBootstrap.
fn updates_shown(world: &World) -> Option<Value> {
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    let conditions = bootstrap["status"]["conditions"].as_array()?;
    let mut found = conditions
        .iter()
        .filter(|found| found["type"] == "UpdatesAvailable");
    found.next().map(|found| found["message"].clone())
}

/// Writes the conditions of the Cluster about its release, with this message.
fn say_updates(world: &World, message: &str) {
    world.management.edit(CLUSTER, |cluster| {
        cluster["status"]["conditions"] = json!([
            {"type": "UpdatesAvailable", "status": "True", "reason": "UpdatesAvailable", "message": message},
            {"type": "ReleaseCompatible", "status": "True", "reason": "ReleaseCompatible", "message": ""},
        ]);
    });
}

/// Fails unless the columns follow the Cluster: one write for a change, and none without.
async fn columns_follow(world: &World) {
    assert_eq!(updates_shown(world), None);
    for message in ["[v1.37.0]", "[v1.37.0 v1.37.1]"] {
        say_updates(world, message);
        let before = (world.writes_of_bootstrap(), world.workload.asked_to_write());
        world.reconcile().await;
        assert_eq!(updates_shown(world), Some(json!(message)));
        assert_eq!(world.writes_of_bootstrap(), before.0 + 1);
        world.reconcile().await;
        assert_eq!(
            (world.writes_of_bootstrap(), world.workload.asked_to_write()),
            (before.0 + 1, before.1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn columns_of_a_cluster_at_rest_follow() {
    columns_follow(&World::completed().await).await;
}

/// A Cluster may wait for long.
#[tokio::test(start_paused = true)]
async fn columns_of_a_held_cluster_follow() {
    let world = requiring();
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), NOT_READY);
    columns_follow(&world).await;
}

/// While packages are deployed, the columns wait for the next change of the record.
#[tokio::test(start_paused = true)]
async fn columns_cost_no_write_of_their_own_during_an_upgrade() {
    let world = World::new();
    for _ in 0..3 {
        world.reconcile().await;
    }
    say_updates(&world, "[v1.37.0]");
    let before = world.writes_of_bootstrap();
    world.reconcile().await;
    assert_eq!(
        (updates_shown(&world), world.writes_of_bootstrap()),
        (None, before)
    );
    world.deployed();
    world.reconcile().await;
    assert_eq!(updates_shown(&world), Some(json!("[v1.37.0]")));
}
