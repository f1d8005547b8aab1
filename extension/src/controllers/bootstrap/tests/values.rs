//! Values of packages.

use rstest::rstest;
use sluice_core::protocol::SecretVersion;
use sluice_crds::{
    labels::annotation,
    run::{Hook, PackageState},
};
use tokio::time::timeout;

use super::*;
use crate::controllers::bootstrap::world::{
    APPS, BOOTSTRAP, METRICS, PACKAGE, PACKAGES, VALUES, VERSION, World, change, cluster, package_of, values,
};

const KAPP_CONTROLLER: &str = "kapp-controller.example.com.0.50.0";
const KAPP_VALUES: &str = "/api/v1/namespaces/team-a/secrets/kapp-values";
const ANTREA_CONFIG: &str = "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/team-a/antreaconfigs/one";

/// Returns the digest of the CNI after another reconcile.
async fn digest(world: &World) -> String {
    world.reconcile().await;
    let packages = world.record().packages.into_iter();
    let mut of_cni = packages.filter(|package| package.name == "antrea");
    of_cni.next().unwrap().values_digest
}

/// kapp-controller restarts with other values, and does not resume a deployment without an app resync.
#[tokio::test(start_paused = true)]
async fn other_values_of_kapp_controller_are_another_digest_of_all_other_packages() {
    let world = World::new();
    world.management.put(
        &format!("{PACKAGES}/{KAPP_CONTROLLER}"),
        package_of("kapp-controller.example.com", "0.50.0", "a"),
    );
    world.management.put(KAPP_VALUES, values(1));
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["kapp"] =
            json!({"refName": KAPP_CONTROLLER, "valuesFrom": {"secretRef": "kapp-values"}});
    });
    let before = digest(&world).await;
    assert_eq!(digest(&world).await, before, "nothing has changed");
    world.management.put(KAPP_VALUES, values(2));
    assert_ne!(digest(&world).await, before);
}

/// Returns the number of times that another reconcile of a leader reads the values source.
async fn reads(world: &World, leader: &Context) -> usize {
    let before = world.management.times_asked_for(VALUES);
    let cluster = cluster(leader);
    Box::pin(reconcile_once(&cluster, leader)).await.unwrap();
    world.management.times_asked_for(VALUES) - before
}

/// Makes a configuration of Sluice the values source of the package, with the Secret as its result.
fn provide(world: &World) {
    let provider = json!({"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "one"});
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["cni"]["valuesFrom"] = json!({"providerRef": provider});
    });
    let config = json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "AntreaConfig",
        "metadata": {"uid": "config", "labels": {label::PACKAGE_NAME: PACKAGE}}, "status": {"secretRef": "antrea-values"},
    });
    world.management.put(ANTREA_CONFIG, config);
    world.management.edit(VALUES, |secret| {
        secret["metadata"]["annotations"] = json!({annotation::CONFIGURATION_UID: "config"});
        secret["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "uid",
        }]);
    });
}

/// Waits until the watch of a leader shows the values source as the server has it. It expires every ten seconds, and the next list follows
/// after a random delay.
async fn until_shown(world: &World, leader: &Context) {
    let shown = async {
        loop {
            let secret = world.management.get(VALUES).unwrap();
            let text = |key: &str| secret["metadata"][key].as_str().unwrap().to_owned();
            let version = SecretVersion {
                namespace: text("namespace"),
                name: text("name"),
                uid: text("uid"),
                resource_version: text("resourceVersion"),
            };
            if leader.values_watches.shows(&version) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let shown = timeout(Duration::from_mins(1), shown).await;
    shown.expect("the watch shows the values source within a minute");
}

#[rstest]
#[case::secret_of_a_user(|_: &World| {})]
#[case::secret_of_a_provider(provide)]
#[tokio::test(start_paused = true)]
async fn a_values_secret_of_a_hot_cluster_is_read_only_once_it_has_changed(#[case] prepare: fn(&World)) {
    let world = World::new();
    prepare(&world);
    world.reconcile().await;
    world.reconcile().await;
    let leader = Box::pin(world.leader()).await;
    let watching = leader.values_watches.clone().run(
        world.management.client(),
        Requeues::default(),
        leader.stores.clusters.clone(),
        leader.rollbacks.clone(),
    );
    tokio::spawn(watching);
    until_shown(&world, &leader).await;
    assert_eq!(reads(&world, &leader).await, 1, "it is not cached yet");
    assert_eq!(reads(&world, &leader).await, 0, "it is unchanged");

    world.management.edit(VALUES, |secret| {
        secret["data"] = values(2)["data"].clone();
    });
    until_shown(&world, &leader).await;
    assert_eq!(reads(&world, &leader).await, 1, "it has changed");
    // The identity of its copy is checked after 19 s at most.
    sleep(Duration::from_secs(20)).await;
    until_shown(&world, &leader).await;
    assert_eq!(reads(&world, &leader).await, 1, "its copy is compared");
    assert_eq!(reads(&world, &leader).await, 0, "it is unchanged");

    world.management.refuse("/api/v1/secrets", 403);
    sleep(Duration::from_secs(15)).await;
    for _ in 0..2 {
        assert_eq!(reads(&world, &leader).await, 1, "it cannot be watched");
    }
}

/// The provider has the label of the package before it has computed the values.
#[rstest]
#[case::for_the_package(Some(PACKAGE), GateReason::PackagesNotReady)]
#[case::for_another_package(Some("antrea.example.com.1.8.0"), GateReason::ValuesNotReady)]
#[case::for_a_package_that_is_not_known(None, GateReason::ValuesNotReady)]
#[tokio::test(start_paused = true)]
async fn values_of_a_provider_are_used_when_they_were_computed(
    #[case] computed_for: Option<&str>,
    #[case] held: GateReason,
) {
    let world = World::new();
    provide(&world);
    world.management.edit(VALUES, |secret| {
        let labels = computed_for.map(|package| json!({label::PACKAGE_NAME: package}));
        secret["metadata"]["labels"] = labels.unwrap_or_else(|| json!({}));
    });
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(held));
}

/// Lets the first package reference missing values.
fn take_values_away(world: &World) {
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["cni"]["valuesFrom"] = json!({"secretRef": "gone"});
    });
}

type Edit = fn(&mut Value);

#[rstest]
#[case::they_do_not_exist((|spec| spec["cni"]["valuesFrom"] = json!({"secretRef": "gone"})) as Edit, GateReason::ValuesNotFound, &["one-metrics"])]
#[case::of_the_last_one((|spec| spec["additionalPackages"][0]["valuesFrom"] = json!({"secretRef": "gone"})) as Edit, GateReason::ValuesNotFound, &["one-antrea"])]
#[case::from_two_sources((|spec| spec["cni"]["valuesFrom"]["inline"] = json!({"a": 1})) as Edit, GateReason::ValuesSourceAmbiguous, &["one-metrics"])]
#[case::of_kapp_controller((|spec| spec["kapp"] = json!({"refName": KAPP_CONTROLLER, "valuesFrom": {"secretRef": "gone"}})) as Edit, GateReason::ValuesNotFound, &[])]
#[case::and_one_is_listed_twice((|spec| spec["csi"] = json!({"refName": METRICS, "valuesFrom": {"secretRef": "gone"}})) as Edit, GateReason::PackageDuplicated, &[])]
#[tokio::test(start_paused = true)]
async fn a_package_without_values_keeps_no_other_one_from_being_written(
    #[case] edit: Edit,
    #[case] held: GateReason,
    #[case] written: &[&str],
) {
    let world = World::new();
    // It shares the values of the first package.
    world.add_metrics(Some(&json!({"secretRef": "antrea-values"})));
    world.management.put(
        &format!("{PACKAGES}/{KAPP_CONTROLLER}"),
        package_of("kapp-controller.example.com", "0.50.0", "a"),
    );
    world
        .management
        .edit(BOOTSTRAP, |bootstrap| edit(&mut bootstrap["spec"]));
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(held));
    let installs: Vec<String> = world.workload.names("packageinstalls");
    assert_eq!(installs, written);
}

/// The deployment is compared with the Package of the same name, whichever package before it is missing.
#[tokio::test(start_paused = true)]
async fn a_package_is_confirmed_as_itself_where_another_one_has_no_values() {
    let world = World::new();
    // It shares the values of the first package.
    world.add_metrics(Some(&json!({"secretRef": "antrea-values"})));
    world.reconcile().await;
    world.deployed();
    world.reconcile().await;
    // The workers of a version that is proven wait for no package.
    let world = world.complete().await;
    take_values_away(&world);
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["generation"] = json!(2);
    });
    world.workload.edit(&format!("{APPS}/one-metrics"), |app| {
        app["metadata"]["generation"] = json!(2);
        app["status"]["observedGeneration"] = json!(2);
        app["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]);
    });
    world.reconcile().await;
    let record = world.record();
    assert_eq!(record.packages.len(), 1, "{record:?}");
    assert_eq!(record.packages[0].state, PackageState::Reconciling, "{record:?}");
    assert_eq!(record.packages[0].reason, "AppTemplateMismatch");
}

/// The edit affects all Clusters of a release at once, and so does a values provider.
#[tokio::test(start_paused = true)]
async fn a_package_that_is_edited_in_place_waits_also_where_another_one_has_no_values() {
    let world = World::completed().await;
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["csi"] = json!({"refName": METRICS, "valuesFrom": {"secretRef": "gone"}});
    });
    world.management.put(
        &format!("{PACKAGES}/{METRICS}"),
        package_of("metrics.example.com", "1.9.0", "a"),
    );
    let before = world.workload.asked_to_write();
    world.management.put(
        &format!("{PACKAGES}/{PACKAGE}"),
        package_of("antrea.example.com", "1.9.0", "b"),
    );
    world.reconcile().await;
    assert_eq!(world.workload.asked_to_write(), before);
}

/// Two packages beside kapp-controller need the identity, and a second write with the old version would be refused.
#[tokio::test(start_paused = true)]
async fn the_identity_that_several_packages_need_is_written_once() {
    let world = World::new();
    // It shares the values of the first package.
    world.add_metrics(Some(&json!({"secretRef": "antrea-values"})));
    world.reconcile().await;
    change(&world.workload, "clusterroles", |role| role["rules"] = json!([]));
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["cni"]["valuesFrom"] = json!({"inline": {"replicas": 3}});
    });
    let install = |world: &World| {
        world
            .workload
            .get("/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/one-antrea")
            .unwrap()["spec"]["values"]
            .clone()
    };
    let before = install(&world);
    world.reconcile().await;
    assert_ne!(install(&world), before, "in the same reconcile");
}

/// Its status is the proof of all other packages.
#[tokio::test(start_paused = true)]
async fn nothing_is_installed_by_a_kapp_controller_that_is_not_proven() {
    let world = World::new();
    world.management.put(
        &format!("{PACKAGES}/{KAPP_CONTROLLER}"),
        package_of("kapp-controller.example.com", "0.50.0", "a"),
    );
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["kapp"] = json!({"refName": KAPP_CONTROLLER});
    });
    world.reconcile().await;
    assert_eq!(world.management.names("packageinstalls").len(), 1);
    assert_eq!(world.workload.asked_to_write(), Vec::<String>::new());
}

/// The provider computes the values for the package of its label.
#[tokio::test(start_paused = true)]
async fn a_provider_is_labelled_with_its_package() {
    let world = World::new();
    let provider = json!({"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "one"});
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["cni"]["valuesFrom"] = json!({"providerRef": provider});
    });
    let config =
        json!({"apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "AntreaConfig", "metadata": {}});
    world.management.put(ANTREA_CONFIG, config);
    world.reconcile().await;
    let config = world.management.get(ANTREA_CONFIG).unwrap();
    assert_eq!(config["metadata"]["labels"][label::PACKAGE_NAME], PACKAGE);
}

/// If the reference is a mistake, another package may have to be installed.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_a_package_does_not_exist() {
    let world = World::new();
    world.control_plane_at(VERSION);
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["csi"] = json!({"refName": "csi.example.com.1.0.0"});
    });
    world.reconcile().await;
    let record = world.record();
    assert!(
        record.gates.iter().any(|gate| gate.reason == "PackageNotFound"),
        "{record:?}"
    );
    assert_eq!(world.workload.asked_to_write(), Vec::<String>::new());
}
