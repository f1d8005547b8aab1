//! Copies of a template's values Secrets in the namespace of a Cluster.

use rstest::rstest;

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, PACKAGE, RELEASE, TEMPLATES, World, cluster, values,
};

const SOURCE: &str = "/api/v1/namespaces/tkg-system/secrets/antrea-values";
const CLONE: &str = "/api/v1/namespaces/team-a/secrets/one-antrea-package";
const ANOTHER_CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/two";

/// Returns a Cluster without ClusterBootstrap, whose template takes values from a Secret.
fn new_cluster() -> World {
    let world = World::new();
    world.management.remove(BOOTSTRAP);
    world.management.put(SOURCE, values(3));
    world
}

/// Returns that Cluster with its ClusterBootstrap.
fn with_bootstrap() -> World {
    let world = new_cluster();
    let values_from = json!({"secretRef": "one-antrea-package"});
    let bootstrap = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        "metadata": {
            "generation": 1, "uid": "bootstrap",
            "annotations": {sluice_crds::labels::annotation::RESOLVED_TKR: RELEASE},
        },
        "spec": {"cni": {"refName": PACKAGE, "valuesFrom": values_from}},
    });
    world.management.put(BOOTSTRAP, bootstrap);
    world
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    let group = match kind {
        "Cluster" => "cluster.x-k8s.io/v1beta1",
        "ClusterBootstrap" => "run.tanzu.vmware.com/v1alpha3",
        _ => "v1",
    };
    json!({"apiVersion": group, "kind": kind, "name": name, "uid": uid})
}

/// Returns a Secret with the name of the clone and other content.
fn found(world: &World, owners: &[Value]) -> Value {
    let mut found = values(9);
    found["metadata"]["ownerReferences"] = json!(owners);
    world.management.put(CLONE, found);
    world.management.get(CLONE).unwrap()
}

#[rstest]
#[case::of_a_user(&[])]
#[case::of_an_earlier_try(&[owner("Cluster", "one", "uid")])]
#[case::that_another_cluster_owns_too(&[owner("Cluster", "two", "two"), owner("Cluster", "one", "uid")])]
#[case::that_something_else_owns(&[owner("ConfigMap", "values", "1")])]
#[case::that_something_else_owns_too(&[owner("Cluster", "one", "earlier"), owner("ConfigMap", "values", "1")])]
#[tokio::test(start_paused = true)]
async fn values_that_are_there_win(#[case] owners: &[Value]) {
    let world = new_cluster();
    world.management.remove(SOURCE);
    world
        .management
        .put(ANOTHER_CLUSTER, json!({"metadata": {"uid": "two"}}));
    let there = found(&world, owners);
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE), Some(there));
    assert!(world.management.get(BOOTSTRAP).is_some());
}

/// The garbage collector has not deleted them yet.
#[rstest]
#[case::by_its_cluster(&[owner("Cluster", "one", "earlier")])]
#[case::by_its_cluster_bootstrap(&[owner("ClusterBootstrap", "one", "earlier")])]
#[case::of_another_name(&[owner("Cluster", "two", "two")])]
#[tokio::test(start_paused = true)]
async fn values_of_a_cluster_that_is_gone_are_copied_again(#[case] owners: &[Value]) {
    let world = new_cluster();
    let there = found(&world, owners);
    world.reconcile().await;
    let copied = world.management.get(CLONE).unwrap();
    assert_eq!(copied["data"], values(3)["data"]);
    assert_eq!(copied["metadata"]["ownerReferences"][0]["uid"], "uid");
    assert_ne!(copied["metadata"]["uid"], there["metadata"]["uid"]);
    assert!(world.management.get(BOOTSTRAP).is_some());
}

#[tokio::test(start_paused = true)]
async fn values_of_another_cluster_are_left_alone_and_hold() {
    let world = new_cluster();
    world
        .management
        .put(ANOTHER_CLUSTER, json!({"metadata": {"uid": "two"}}));
    let there = found(&world, &[owner("Cluster", "two", "two")]);
    world.reconcile().await;
    let (_, event) = world.management.only("events");
    assert_eq!(event["reason"], "ValuesOwnerMismatch", "{event}");
    let note = event["note"].as_str().unwrap();
    assert!(
        note.contains("Secret team-a/one-antrea-package") && note.contains("Cluster team-a/two"),
        "{note}"
    );
    assert_eq!(world.management.get(CLONE), Some(there));
    assert_eq!(world.management.get(BOOTSTRAP), None);
}

/// This Cluster is the earlier one, and the watch does not show that yet.
#[tokio::test(start_paused = true)]
async fn values_of_a_later_cluster_of_the_name_are_left_alone() {
    let world = new_cluster();
    world.management.remove(SOURCE);
    let leader = world.leader().await;
    world.management.put(SOURCE, values(3));
    world
        .management
        .edit(CLUSTER, |cluster| cluster["metadata"]["uid"] = json!("later"));
    let there = found(&world, &[owner("Cluster", "one", "later")]);
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(world.management.get(CLONE), Some(there));
    assert_eq!(world.management.get(BOOTSTRAP), None);
}

/// Foreign finalizers block its deletion.
#[tokio::test(start_paused = true)]
async fn values_of_an_earlier_cluster_that_do_not_go_hold() {
    let world = new_cluster();
    found(&world, &[owner("Cluster", "one", "earlier")]);
    world.management.edit(CLONE, |secret| {
        secret["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    world.reconcile().await;
    let (_, event) = world.management.only("events");
    assert_eq!(event["reason"], "ValuesNotFound", "{event}");
    assert_eq!(world.management.get(BOOTSTRAP), None);
}

/// The next reconcile sees their owner.
#[tokio::test(start_paused = true)]
async fn values_that_appear_meanwhile_are_read_again() {
    let world = new_cluster();
    let leader = world.leader().await;
    world.management.remove(BOOTSTRAP);
    world.management.remove(CLONE);
    world.management.put_later(CLONE, values(9));
    let failed = reconcile_once(&cluster(&leader), &leader).await;
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(world.management.get(BOOTSTRAP), None);
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE).unwrap()["data"], values(9)["data"]);
    assert!(world.management.get(BOOTSTRAP).is_some());
}

#[tokio::test(start_paused = true)]
async fn values_that_are_gone_are_copied_again() {
    let world = with_bootstrap();
    world.reconcile().await;
    let copied = world.management.get(CLONE).unwrap();
    assert_eq!(copied["data"], values(3)["data"]);
    assert_eq!(copied["metadata"]["ownerReferences"][0]["uid"], "uid");
    assert_eq!(
        world.workload.names("packageinstalls"),
        ["one-antrea"],
        "in the same reconcile"
    );
}

#[tokio::test(start_paused = true)]
async fn values_that_a_user_has_edited_stay() {
    let world = with_bootstrap();
    let there = found(&world, &[owner("Cluster", "one", "uid")]);
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE), Some(there));
}

type Prepare = fn(&World);

fn named_by_a_user(world: &World) {
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["cni"]["valuesFrom"]["secretRef"] = json!("own-values");
    });
}

fn not_in_the_template(world: &World) {
    let template = format!("{TEMPLATES}/{RELEASE}");
    world.management.edit(&template, |template| {
        template["spec"]["cni"] = json!({"refName": PACKAGE});
    });
}

fn paused(world: &World) {
    world
        .management
        .edit(CLUSTER, |cluster| cluster["spec"]["paused"] = json!(true));
}

#[rstest]
#[case::named_by_a_user(named_by_a_user)]
#[case::not_in_the_template(not_in_the_template)]
#[case::whose_source_is_gone(|world: &World| world.management.remove(SOURCE))]
#[case::of_a_paused_cluster(paused)]
#[tokio::test(start_paused = true)]
async fn values_that_are_gone_are_left_to_their_user(#[case] prepare: Prepare) {
    let world = with_bootstrap();
    prepare(&world);
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE), None);
    let written = world.management.asked_to_write();
    assert!(
        !written.iter().any(|asked| asked.contains("/secrets")),
        "{written:?}"
    );
    assert!(world.record().gates.iter().all(|gate| !gate.open));
}
