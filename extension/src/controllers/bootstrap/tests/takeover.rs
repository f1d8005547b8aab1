//! A Cluster with leftovers of the addons-manager: removed and preserved objects.

mod trouble;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rstest::rstest;
use sluice_crds::{
    labels::{annotation, finalizer},
    run::Hook,
};

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, KUBECONFIG, PACKAGE, PACKAGES, RELEASE, VALUES, VERSION, World, package, values,
};

const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machines";
const INSTALL: &str = "/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/one-antrea";
const SECRET: &str = "/api/v1/namespaces/tkg-system/secrets/one-antrea-data-values";
const OLD: &str = finalizer::LEGACY_ADDON;
const OTHER: &str = "a.user/waits";

/// Adds the old finalizer beside a foreign one to all objects that had it, and the annotation to one of two Machines.
fn leave(world: &World) {
    for path in [CLUSTER, BOOTSTRAP, KUBECONFIG] {
        world.management.edit(path, |object| {
            object["metadata"]["finalizers"] = json!([OTHER, OLD]);
        });
    }
    for (name, value) in [
        ("held", annotation::LEGACY_PRE_TERMINATE_OWNER),
        ("of-a-user", "a user"),
    ] {
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {
                "labels": {"cluster.x-k8s.io/cluster-name": "one"},
                "annotations": {annotation::LEGACY_PRE_TERMINATE: value, "a.user/note": "stays"},
            },
            "spec": {"version": "v1.35.4"},
        });
        world.management.put(&format!("{MACHINES}/{name}"), machine);
    }
}

fn finalizers(world: &World) -> Vec<Value> {
    let objects = [CLUSTER, BOOTSTRAP, KUBECONFIG];
    let of = |path| world.management.get(path).unwrap()["metadata"]["finalizers"].clone();
    objects.map(of).to_vec()
}

fn annotations(world: &World, machine: &str) -> Value {
    let path = format!("{MACHINES}/{machine}");
    world.management.get(&path).unwrap()["metadata"]["annotations"].clone()
}

/// Returns patched paths, in order.
fn patched(world: &World) -> Vec<String> {
    let asked = world.management.asked_to_write();
    let patches = asked.iter().filter_map(|asked| asked.strip_prefix("PATCH "));
    let names = patches.filter_map(|path| path.rsplit('/').next());
    names.map(str::to_owned).collect()
}

fn condition(world: &World) -> Option<(String, String)> {
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    let conditions = bootstrap["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut found = conditions
        .iter()
        .filter(|condition| condition["type"] == "TakeoverIncomplete");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    found
        .next()
        .map(|found| (text(&found["reason"]), text(&found["message"])))
}

fn delete(world: &World, annotations: Value) {
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!(jiff::Timestamp::now().to_string());
        cluster["metadata"]["annotations"] = annotations;
    });
}

#[rstest]
#[case::that_runs(false)]
#[case::that_is_being_deleted(true)]
#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_cluster_goes_the_finalizer_of_the_cluster_last(#[case] deleting: bool) {
    let world = World::new();
    leave(&world);
    if deleting {
        delete(&world, json!({}));
    }
    world.leader().await;
    assert_eq!(finalizers(&world), vec![json!([OTHER]); 3]);
    assert_eq!(annotations(&world, "held"), json!({"a.user/note": "stays"}));
    assert_eq!(
        annotations(&world, "of-a-user")[annotation::LEGACY_PRE_TERMINATE],
        json!("a user")
    );
    let order = ["held", "one", "one-kubeconfig", "one"];
    assert_eq!(patched(&world), order);
    let last = world.management.asked_to_write();
    let patches: Vec<_> = last.iter().filter(|asked| asked.starts_with("PATCH")).collect();
    assert!(patches[3].ends_with("/clusters/one"), "{patches:?}");

    let machine = world.management.get(&format!("{MACHINES}/held")).unwrap();
    assert_eq!(machine["spec"], json!({"version": "v1.35.4"}));
    let asked = world.management.times_asked_below("/machines");
    world.reconcile().await;
    assert_eq!(
        world.management.times_asked_below("/machines"),
        asked,
        "nothing can be left"
    );
    assert_eq!(condition(&world), None);
}

#[rstest]
#[case::the_pause(json!({"spec": {"paused": true}}))]
#[case::the_annotation(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}))]
#[tokio::test(start_paused = true)]
async fn a_cluster_that_a_user_has_paused_is_left_alone(#[case] pause: Value) {
    let world = World::new();
    leave(&world);
    world.management.edit(CLUSTER, |cluster| {
        if pause["spec"].is_object() {
            cluster["spec"]["paused"] = json!(true);
        } else {
            cluster["metadata"]["annotations"] = pause["metadata"]["annotations"].clone();
        }
    });
    world.leader().await;
    world.reconcile().await;
    assert_eq!(finalizers(&world), vec![json!([OTHER, OLD]); 3]);
}

/// The addons-manager has removed its finalizers, but stopped before the Machines.
#[tokio::test(start_paused = true)]
async fn half_of_what_was_left_goes() {
    let world = World::new();
    leave(&world);
    for path in [CLUSTER, BOOTSTRAP, KUBECONFIG] {
        world
            .management
            .edit(path, |object| object["metadata"]["finalizers"] = json!([]));
    }
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["status"] = json!({"resolvedTKR": RELEASE});
    });
    world.leader().await;
    assert_eq!(annotations(&world, "held"), json!({"a.user/note": "stays"}));
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_cluster_of_which_nothing_is_left_are_not_asked_for() {
    let world = World::released().await;
    assert_eq!(world.management.times_asked_below("/machines"), 0);
}

#[rstest]
#[case::machines_may_not_be_listed("/machines", false)]
#[case::machines_may_not_be_written("/machines/", true)]
#[tokio::test(start_paused = true)]
async fn what_may_not_be_removed_holds_nothing(#[case] path: &'static str, #[case] only_writes: bool) {
    let world = World::new();
    leave(&world);
    if only_writes {
        world.management.refuse_writes(path, 403);
    } else {
        world.management.refuse(path, 403);
    }
    world.leader().await;
    let (reason, message) = condition(&world).expect("it is said");
    assert_eq!(reason, "LeftoversNotRemoved");
    assert!(message.contains("manifests/base"), "{message}");
    assert!(message.contains("Machine"), "{message}");
    assert_eq!(
        finalizers(&world)[0],
        json!([OTHER, OLD]),
        "while it is there the rest is looked for"
    );
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

/// Cluster API continues whatever hooks respond, and the packages are uninstalled from its Machines before they go.
#[tokio::test(start_paused = true)]
async fn machines_stay_while_packages_are_uninstalled_that_no_hook_waits_for() {
    let world = World::new();
    let metrics = "metrics.example.com.1.9.0";
    let of_metrics = crate::controllers::bootstrap::world::package_of("metrics.example.com", "1.9.0", "a");
    world.management.put(&format!("{PACKAGES}/{metrics}"), of_metrics);
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["additionalPackages"] = json!([{"refName": metrics}]);
    });
    world.reconcile().await;
    leave(&world);
    let install = "/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/one-metrics";
    world.workload.edit(install, |install| {
        install["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    delete(&world, json!({annotation::OK_TO_DELETE: ""}));
    world.leader().await;
    assert_eq!(finalizers(&world)[0], json!([OTHER, OLD]));
    world.workload.remove(install);
    world.leader().await;
    assert_eq!(finalizers(&world), vec![json!([OTHER]); 3]);
}

/// Returns a settled Cluster with the package as the addons-manager installs it.
fn installed_by_the_addons_manager() -> World {
    let world = World::new();
    world.control_plane_at(VERSION);
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["annotations"] = json!({});
        bootstrap["status"] = json!({"resolvedTKR": RELEASE});
    });
    let mut copy = package("a");
    copy["metadata"]["namespace"] = json!("tkg-system");
    let path = format!("/apis/data.packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packages/{PACKAGE}");
    world.workload.put(&path, copy);
    // The same values in another notation.
    let document = BASE64_STANDARD.encode("{\"replicas\": 1}\n");
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"values.yaml": document}});
    world.workload.put(SECRET, secret);
    let install = json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
        "metadata": {"annotations": {annotation::CLUSTER_NAME: "one", annotation::CLUSTER_NAMESPACE: "team-a"}},
        "spec": {
            "serviceAccountName": "tanzu-cluster-bootstrap-sa", "syncPeriod": "5m0s",
            "packageRef": {
                "refName": "antrea.example.com", "versionSelection": {"constraints": "1.9.0", "prereleases": {}},
            },
            "values": [{"secretRef": {"name": "one-antrea-data-values"}}],
        },
    });
    world.workload.put(INSTALL, install);
    world.deployed();
    world
}

fn install(world: &World) -> Value {
    world.workload.get(INSTALL).unwrap()
}

/// Returns the values Secret of the PackageInstall.
fn named(world: &World) -> String {
    let name = &install(world)["spec"]["values"][0]["secretRef"]["name"];
    name.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_keeps_what_the_addons_manager_has_installed() {
    let world = installed_by_the_addons_manager();
    let (before, secret) = (install(&world), world.workload.get(SECRET));
    world.reconcile().await;
    world.reconcile().await;
    assert_eq!(install(&world), before);
    assert_eq!(world.workload.get(SECRET), secret);
    assert_eq!(world.workload.names("secrets"), ["one-antrea-data-values"]);
    assert!(world.record().outcome.is_some(), "{:?}", world.record());
    let writes = world.workload.asked_to_write().len() + world.management.asked_to_write().len();
    world.reconcile().await;
    let after = world.workload.asked_to_write().len() + world.management.asked_to_write().len();
    assert_eq!(after, writes, "a resync writes nothing");
}

#[rstest]
#[case::of_other_content("replicas: 2\n")]
#[case::of_another_form("#@data/values\n---\nreplicas: 1\n")]
#[tokio::test(start_paused = true)]
async fn values_that_are_not_right_are_deployed_by_name(#[case] document: &str) {
    let world = installed_by_the_addons_manager();
    let uid = install(&world)["metadata"]["uid"].clone();
    let document = BASE64_STANDARD.encode(document);
    world
        .workload
        .edit(SECRET, |secret| secret["data"]["values.yaml"] = json!(document));
    world.reconcile().await;
    assert!(
        named(&world).starts_with("one-antrea-data-values-"),
        "{}",
        named(&world)
    );
    assert_eq!(install(&world)["metadata"]["uid"], uid);
    assert_eq!(
        world.workload.get(SECRET).unwrap()["data"]["values.yaml"],
        json!(document),
        "it is not written"
    );
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_values_moves_what_was_kept_to_names() {
    let world = installed_by_the_addons_manager();
    world.reconcile().await;
    world.management.put(VALUES, values(2));
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["generation"] = json!(2);
    });
    world.reconcile().await;
    assert!(
        named(&world).starts_with("one-antrea-data-values-"),
        "{}",
        named(&world)
    );
}

/// Installations of the addons-manager open no gate before the machines of an upgrade, however ready they are.
#[tokio::test(start_paused = true)]
async fn an_upgrade_is_never_released_by_what_was_kept() {
    let world = installed_by_the_addons_manager();
    world.reconcile().await;
    world.reconcile().await;
    let next = "v1.37.0";
    let release = "v1.37.0---test.1";
    crate::controllers::bootstrap::world::put_release(&world.management, release, next);
    let templates = crate::controllers::bootstrap::world::TEMPLATES;
    let template = world.management.get(&format!("{templates}/{RELEASE}")).unwrap();
    world.management.put(&format!("{templates}/{release}"), template);
    // The next release has the same packages.
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"][label::TKR] = json!(release);
        cluster["metadata"]["generation"] = json!(2);
        cluster["spec"]["topology"]["version"] = json!(next);
    });
    for _ in 0..3 {
        world.reconcile().await;
        let gates = world.record().gates;
        let open = gates.iter().find(|gate| gate.version == next && gate.open);
        assert!(open.is_none(), "{open:?}");
    }
    assert!(
        named(&world).starts_with("one-antrea-data-values-"),
        "{}",
        named(&world)
    );
    world.deployed();
    world.reconcile().await;
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );
}

/// Machines still have to follow, so installations of the addons-manager are proven first.
#[tokio::test(start_paused = true)]
async fn nothing_is_kept_while_a_hook_is_waited_for() {
    let world = installed_by_the_addons_manager();
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["annotations"] = json!({annotation::PENDING_HOOKS: "AfterClusterUpgrade"});
    });
    world.reconcile().await;
    assert!(
        named(&world).starts_with("one-antrea-data-values-"),
        "{}",
        named(&world)
    );
}
