//! References of a user's ClusterBootstrap: owned by the Cluster, and read for values.

use super::*;

/// Returns a Cluster with a ClusterBootstrap of a user, with this values source for its CNI.
fn with_own_bootstrap(values_from: &Value, metadata: Value) -> World {
    let world = World::new();
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"] = metadata;
        bootstrap["spec"]["cni"]["valuesFrom"] = values_from.clone();
    });
    world
}

fn by_provider(group: &str, kind: &str) -> Value {
    json!({"providerRef": {"apiGroup": group, "kind": kind, "name": "one-antrea-package"}})
}

#[rstest]
#[case::it_has_none(json!([]), &["uid"])]
#[case::of_another_project(json!([{"apiVersion": "fleet.test/v1", "kind": "Fleet", "name": "f", "uid": "fleet"}]), &["fleet", "uid"])]
#[case::of_an_earlier_cluster(json!([owner("one", "earlier")]), &["earlier"])]
#[tokio::test(start_paused = true)]
async fn a_bootstrap_of_a_user_gets_its_cluster_as_controller(#[case] by: Value, #[case] expected: &[&str]) {
    let metadata = json!({
        "generation": 1, "ownerReferences": by,
        "annotations": {sluice_crds::labels::annotation::RESOLVED_TKR: RELEASE},
    });
    let world = with_own_bootstrap(&json!({"secretRef": "antrea-values"}), metadata);
    world.reconcile().await;
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    assert_eq!(owners(&bootstrap), expected);
    let own = &bootstrap["metadata"]["ownerReferences"][expected.len() - 1];
    assert_eq!(own["controller"] == true, own["uid"] == "uid", "{own}");
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_a_user_refers_to_goes_with_its_cluster() {
    let world = with_own_bootstrap(&by_provider(GROUP, KIND), json!({"generation": 1}));
    world.management.put(CLONE, config(&[owner("one", "earlier")]));
    world.reconcile().await;
    let found = world.management.get(CLONE).unwrap();
    assert!(is_labelled(&found), "{found}");
    assert_eq!(owners(&found), ["uid"], "the one that is gone is none of them");
}

/// Values that Sluice computes follow from one Cluster. Other packages continue.
#[tokio::test(start_paused = true)]
async fn a_configuration_of_another_cluster_holds_its_package_only() {
    let world = with_own_bootstrap(&by_provider(GROUP, KIND), json!({"generation": 1}));
    let by = another_cluster(&world);
    let mut there = config(&[by]);
    there["metadata"]["labels"] = json!({label::CLUSTER_NAME: "two", label::PACKAGE_NAME: PACKAGE});
    there["status"] = json!({"secretRef": "antrea-values"});
    world.management.put(CLONE, there);
    world.add_metrics(None);
    let there = world.management.get(CLONE);
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE), there);
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ValuesOwnerMismatch)
    );
    assert_eq!(world.workload.names("packageinstalls"), ["one-metrics"]);
}

/// Each Cluster would remove the labels of the other one.
#[tokio::test(start_paused = true)]
async fn what_two_clusters_share_goes_with_both_and_keeps_its_labels() {
    let world = with_own_bootstrap(
        &by_provider("fleet.test", "FleetConfig"),
        json!({"generation": 1}),
    );
    serve_fleets(&world);
    let by = another_cluster(&world);
    let labels = json!({label::CLUSTER_NAME: "two", label::PACKAGE_NAME: PACKAGE});
    world.management.put(OTHERS, fleet_config(&[by], &labels));
    world.reconcile().await;
    let shared = world.management.get(OTHERS).unwrap();
    assert_eq!(owners(&shared), ["two", "uid"]);
    assert_eq!(shared["metadata"]["labels"], labels);
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesNotReady)
    );
}

#[rstest]
#[case::of_a_user(json!({}), true)]
#[case::of_a_cluster_that_is_gone(json!({label::CLUSTER_NAME: "three"}), true)]
#[case::of_another_cluster(json!({label::CLUSTER_NAME: "two"}), false)]
#[tokio::test(start_paused = true)]
async fn a_secret_of_a_user_is_labelled_and_stays_the_users(#[case] labels: Value, #[case] is_ours: bool) {
    let world = with_own_bootstrap(&json!({"secretRef": "antrea-values"}), json!({"generation": 1}));
    another_cluster(&world);
    world
        .management
        .edit(VALUES, |secret| secret["metadata"]["labels"] = labels.clone());
    world.reconcile().await;
    let secret = world.management.get(VALUES).unwrap();
    assert_eq!(is_labelled(&secret), is_ours, "{secret}");
    assert!(is_ours || secret["metadata"]["labels"] == labels);
    assert_eq!(owners(&secret), Vec::<&str>::new());
}

/// Its label would requeue the Cluster, and mark the Secret as values of a package.
#[rstest]
#[case::by_its_type("antrea-values", "kubernetes.io/service-account-token")]
#[case::by_its_name("two-ca", "Opaque")]
#[tokio::test(start_paused = true)]
async fn a_credential_is_refused_and_not_labelled(#[case] name: &str, #[case] type_: &str) {
    let world = with_own_bootstrap(&json!({ "secretRef": name }), json!({"generation": 1}));
    another_cluster(&world);
    let path = VALUES.replace("antrea-values", name);
    let mut secret = values(1);
    secret["metadata"]["labels"] = json!({});
    secret["type"] = json!(type_);
    world.management.put(&path, secret);
    let there = world.management.get(&path);
    world.reconcile().await;
    assert_eq!(world.management.get(&path), there);
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ValuesSecretRefused)
    );
}

/// Only its next edit takes effect later.
#[tokio::test(start_paused = true)]
async fn a_label_that_is_refused_is_an_event() {
    let world = with_own_bootstrap(&json!({"secretRef": "antrea-values"}), json!({"generation": 1}));
    world
        .management
        .edit(VALUES, |secret| secret["metadata"]["labels"] = json!({}));
    world.management.refuse_writes("/secrets/antrea-values", 403);
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "WriteRefused", "{note}");
    assert!(note.contains("Secret team-a/antrea-values"), "{note}");
    assert_eq!(world.workload.names("packageinstalls"), ["one-antrea"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tied_to_a_cluster_that_is_paused() {
    let world = with_own_bootstrap(&by_provider(GROUP, KIND), json!({"generation": 1}));
    world.management.put(CLONE, config(&[]));
    world
        .management
        .edit(CLUSTER, |cluster| cluster["spec"]["paused"] = json!(true));
    let there = world.management.get(CLONE);
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE), there);
}

/// A tenant may reference any object, and Sluice has more rights than the tenant.
#[rstest]
#[case::a_cluster("cluster.x-k8s.io", "Cluster", "two")]
#[case::a_secret("", "Secret", "ca")]
#[case::a_package_install("packaging.carvel.dev", "PackageInstall", "one")]
#[case::a_release("run.tanzu.vmware.com", "TanzuKubernetesRelease", "one")]
#[case::another_part_of_an_object("fleet.test", "FleetConfig", "one-antrea-package/status")]
#[tokio::test(start_paused = true)]
async fn nothing_is_written_to_what_provides_no_values(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] name: &str,
) {
    let by = json!({"providerRef": {"apiGroup": group, "kind": kind, "name": name}});
    let world = with_own_bootstrap(&by, json!({"generation": 1}));
    serve_fleets(&world);
    another_cluster(&world);
    world.management.put(OTHERS, fleet_config(&[], &json!({})));
    world.management.put(
        "/api/v1/namespaces/team-a/secrets/ca",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}}),
    );
    world.reconcile().await;
    let written = world.management.asked_to_write();
    let is_expected = |asked: &&String| asked.contains("/clusterbootstraps") || asked.contains("/events");
    assert!(written.iter().all(|asked| is_expected(&asked)), "{written:?}");
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::ValuesNotFound)
    );
}

/// Each reconcile would label it for the other package.
#[tokio::test(start_paused = true)]
async fn an_object_that_two_packages_name_is_labelled_for_one_of_them() {
    let world = with_own_bootstrap(&json!({"secretRef": "antrea-values"}), json!({"generation": 1}));
    world.add_metrics(Some(&json!({"secretRef": "antrea-values"})));
    world
        .management
        .edit(VALUES, |secret| secret["metadata"]["labels"] = json!({}));
    for _ in 0..3 {
        world.reconcile().await;
        assert!(is_labelled(&world.management.get(VALUES).unwrap()));
    }
    let written = world.management.asked_to_write();
    let patched = written
        .iter()
        .filter(|asked| asked.ends_with("/secrets/antrea-values"));
    assert_eq!(patched.count(), 1, "{written:?}");
}

/// The response code does not matter.
#[rstest]
#[case::of_a_webhook_that_is_away(500)]
#[case::of_a_server_that_is_busy(429)]
#[case::of_a_policy(403)]
#[tokio::test(start_paused = true)]
async fn a_label_that_is_refused_stops_no_package(#[case] code: u16) {
    let world = with_own_bootstrap(&json!({"secretRef": "antrea-values"}), json!({"generation": 1}));
    world
        .management
        .edit(VALUES, |secret| secret["metadata"]["labels"] = json!({}));
    world.management.refuse_writes("/secrets/antrea-values", code);
    world.reconcile().await;
    assert_eq!(world.workload.names("packageinstalls"), ["one-antrea"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_refused_stops_no_package() {
    let metadata = json!({
        "generation": 1, "annotations": {sluice_crds::labels::annotation::RESOLVED_TKR: RELEASE},
    });
    let world = with_own_bootstrap(&json!({"secretRef": "antrea-values"}), metadata);
    world.management.refuse_writes("/clusterbootstraps/one", 422);
    let leader = world.leader().await;
    drop(reconcile_once(&cluster(&leader), &leader).await);
    assert_eq!(world.workload.names("packageinstalls"), ["one-antrea"]);
}

/// Two configurations of one Cluster write the same Secret.
#[tokio::test(start_paused = true)]
async fn values_of_another_configuration_are_not_taken() {
    let world = with_own_bootstrap(&by_provider(GROUP, KIND), json!({"generation": 1}));
    let mut own = config(&[owner("one", "uid")]);
    own["metadata"]["uid"] = json!("own");
    own["metadata"]["labels"] = json!({label::CLUSTER_NAME: "one", label::PACKAGE_NAME: PACKAGE});
    own["status"] = json!({"secretRef": "antrea-values"});
    world.management.put(CLONE, own);
    for (by, held) in [
        ("another", GateReason::ValuesNotReady),
        ("own", GateReason::PackagesNotReady),
    ] {
        world.management.edit(VALUES, |secret| {
            secret["metadata"]["annotations"] =
                json!({sluice_crds::labels::annotation::CONFIGURATION_UID: by});
            secret["metadata"]["ownerReferences"] = json!([owner("one", "uid")]);
        });
        world.reconcile().await;
        assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(held), "{by}");
    }
}
