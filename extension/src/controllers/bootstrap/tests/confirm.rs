//! Whole reconciles of a Cluster whose gate is about to open. In each, the watches show the desired state, and the re-read from the API
//! servers does not.

use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::reasons::GateReason::{self, PackagesNotReady, PackagesUnknown};
use sluice_crds::run::Hook;

use super::super::{
    now, reconcile_once,
    world::{
        BOOTSTRAP, KUBE_SYSTEM, PACKAGE, PACKAGES, RELEASE, TEMPLATES, VALUES, World, change, cluster,
        package, package_of, values,
    },
};

type Edit = fn(&World);

#[rstest]
#[case::nothing((|_| {}) as Edit, None)]
#[case::the_app_is_deployed_again((|world| change(&world.workload, "apps", |app| app["metadata"]["generation"] = json!(2))) as Edit, Some(GateReason::PackagesNotReady))]
#[case::the_app_is_paused((|world| change(&world.workload, "apps", |app| app["spec"]["paused"] = json!(true))) as Edit, Some(GateReason::PackagesNotReady))]
#[case::the_app_is_worked_on((|world| change(&world.workload, "apps", |app| app["status"]["conditions"] = json!([{"type": "Reconciling", "status": "True"}]))) as Edit, Some(GateReason::PackagesNotReady))]
#[case::the_app_is_gone((|world| world.workload.refuse("/apps/", 404)) as Edit, Some(GateReason::PackagesNotReady))]
#[case::the_app_is_made_from_an_edited_package((|world| change(&world.workload, "apps", |app| app["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]))) as Edit, Some(GateReason::PackagesNotReady))]
#[case::the_install_is_paused((|world| change(&world.workload, "packageinstalls", |install| install["spec"]["paused"] = json!(true))) as Edit, Some(GateReason::PackagesNotReady))]
#[case::nobody_answers((|world| world.workload.refuse("/packageinstalls/", 503)) as Edit, Some(GateReason::WorkloadUnreachable))]
#[case::another_server_answers((|world| world.workload.put(KUBE_SYSTEM, json!({"metadata": {"uid": "another"}}))) as Edit, Some(GateReason::PackagesNotReady))]
#[case::another_server_answers_in_the_middle_of_the_pass((|world| world.workload.put_later(KUBE_SYSTEM, json!({"metadata": {"uid": "another"}}))) as Edit, Some(GateReason::WorkloadUnreachable))]
#[case::other_values((|world| world.management.put(VALUES, values(2))) as Edit, Some(GateReason::PackagesNotReady))]
#[case::other_values_in_the_middle_of_the_pass((|world| world.management.put_later(VALUES, values(2))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::the_copy_of_the_values_is_gone((|world| world.workload.refuse("/secrets/", 404)) as Edit, Some(GateReason::PackagesNotReady))]
#[case::another_package((|world| world.management.put(&format!("{PACKAGES}/{PACKAGE}"), package("b"))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::another_version_of_the_package((|world| world.management.put(&format!("{PACKAGES}/{PACKAGE}"), package_of("antrea.example.com", "1.9.1", "a"))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::a_package_of_another_name((|world| world.management.put(&format!("{PACKAGES}/{PACKAGE}"), package_of("calico.example.com", "1.9.0", "a"))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::another_template((|world| world.management.edit(&format!("{TEMPLATES}/{RELEASE}"), |template| template["spec"]["csi"] = json!({"refName": "csi.example.com.1.0.0"}))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::no_template((|world| world.management.remove(&format!("{TEMPLATES}/{RELEASE}"))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::another_copy_of_the_package_in_the_middle_of_the_pass((|world| world.workload.put_later(&format!("{PACKAGES}/{PACKAGE}"), package("b"))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::a_copy_of_another_version_in_the_middle_of_the_pass((|world| world.workload.put_later(&format!("{PACKAGES}/{PACKAGE}"), package_of("antrea.example.com", "1.9.1", "a"))) as Edit, Some(GateReason::PackagesUnknown))]
#[case::a_copy_of_another_name_in_the_middle_of_the_pass((|world| world.workload.put_later(&format!("{PACKAGES}/{PACKAGE}"), package_of("calico.example.com", "1.9.0", "a"))) as Edit, Some(GateReason::PackagesUnknown))]
#[tokio::test(start_paused = true)]
async fn a_gate_opens_for_what_the_servers_say_and_not_for_what_watches_have_shown(
    #[case] meanwhile: Edit,
    #[case] held: Option<GateReason>,
) {
    let world = World::new();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackagesNotReady),
        "nothing is proven yet"
    );

    world.deployed();
    let second = world.leader().await;
    meanwhile(&world);
    reconcile_once(&cluster(&second), &second).await.unwrap();
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        held,
        "{:?}",
        world.record()
    );
}

/// kapp-controller may have deployed it, with the same success.
#[rstest]
#[case::before_the_pass("secrets", |world: &World, path: &str, altered: Value| { world.workload.put(path, altered); }, PackagesNotReady)]
#[case::in_the_middle_of_the_pass("secrets", |world: &World, path: &str, altered: Value| { world.workload.put_later(path, altered); }, PackagesUnknown)]
#[case::a_package_before_the_pass("packages", |world: &World, path: &str, altered: Value| { world.workload.put(path, altered); }, PackagesNotReady)]
#[case::a_package_in_the_middle_of_the_pass("packages", |world: &World, path: &str, altered: Value| { world.workload.put_later(path, altered); }, PackagesUnknown)]
#[tokio::test(start_paused = true)]
async fn what_was_altered_on_the_workload_is_deployed_again(
    #[case] plural: &str,
    #[case] alter: fn(&World, &str, Value),
    #[case] reason: GateReason,
) {
    let world = World::new();
    world.reconcile().await;
    world.deployed();
    let (path, mut altered) = world.workload.only(plural);
    match plural {
        "secrets" => altered["data"] = values(2)["data"].clone(),
        _ => {
            altered["spec"]["template"]["spec"]["deploy"] =
                json!([{"kapp": {"rawOptions": ["--wait=false"]}}]);
        }
    }
    let secret_of = || world.workload.only("packageinstalls").1["spec"]["values"].clone();
    let before = secret_of();
    alter(&world, &path, altered);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(reason),
        "{:?}",
        world.record()
    );

    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(PackagesNotReady),
        "{:?}",
        world.record()
    );
    assert_ne!(secret_of(), before, "the App has another generation");
    world.deployed();
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );
    assert_eq!(world.record().packages[0].repairs, 1);
}

/// Changes the content of the values Secret on the workload cluster. Returns its path and its object.
fn alter_values(world: &World) -> (String, Value) {
    change(&world.workload, "secrets", |secret| {
        secret["data"] = values(2)["data"].clone();
    });
    world.workload.only("secrets")
}

/// Fault that keeps a reconcile from recording an altered Secret.
#[rstest]
#[case::other_progress_was_just_written(false)]
#[case::others_write_the_bootstrap(true)]
#[tokio::test(start_paused = true)]
async fn what_was_altered_is_found_until_it_is_recorded(#[case] refused: bool) {
    let world = World::new();
    world.reconcile().await;
    let leader = world.leader().await;
    world.deployed();
    alter_values(&world);
    if refused {
        world.management.refuse("/clusterbootstraps/one", 409);
    } else {
        leader.local_states().wrote("uid", now());
    }
    let found = reconcile_once(&cluster(&leader), &leader).await;
    assert_eq!(found.is_err(), refused);
    world.management.refuse("/nothing", 409);

    world.reconcile().await;
    assert_eq!(world.record().packages[0].repairs, 1, "{:?}", world.record());
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(PackagesNotReady));
}

/// A connection that was just opened does not know the PackageInstall yet.
#[tokio::test(start_paused = true)]
async fn what_was_altered_is_found_before_the_first_list() {
    let world = World::new();
    world.reconcile().await;
    world.deployed();
    let leader = world.leader().await;
    world.connect(&leader);
    alter_values(&world);
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(world.record().packages[0].repairs, 1, "{:?}", world.record());
}

/// kapp-controller is stopped, so the App keeps the status of the altered Secret.
#[tokio::test(start_paused = true)]
async fn what_was_altered_counts_for_as_long_as_the_app_names_it() {
    let world = World::new();
    world.reconcile().await;
    world.deployed();
    let (path, altered) = alter_values(&world);
    change(&world.workload, "packageinstalls", |install| {
        install["spec"]["values"] = json!([{"secretRef": {"name": "another"}}]);
    });
    world.reconcile().await;
    assert_eq!(world.record().packages[0].repairs, 1, "{:?}", world.record());
    assert_eq!(world.workload.get(&path).unwrap()["data"], altered["data"]);
}

/// No deployment used it.
#[tokio::test(start_paused = true)]
async fn an_altered_secret_that_nothing_names_is_put_right() {
    let world = World::new();
    world.reconcile().await;
    let (path, right) = world.workload.only("secrets");
    alter_values(&world);
    world.workload.remove(&world.workload.only("packageinstalls").0);
    world.reconcile().await;
    assert_eq!(world.record().packages[0].repairs, 0, "{:?}", world.record());
    assert_eq!(world.workload.get(&path).unwrap()["data"], right["data"]);
}

/// The gate is open, and no reconcile has observed a run of kapp-controller.
#[tokio::test(start_paused = true)]
async fn a_proof_at_another_generation_is_checked_while_the_gate_is_open() {
    let world = World::released().await;
    change(&world.workload, "apps", |app| {
        app["metadata"]["generation"] = json!(2);
        app["status"]["observedGeneration"] = json!(2);
        app["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]);
    });
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(PackagesNotReady));
}

/// Pauses or resumes the ClusterBootstrap.
fn pause(world: &World, paused: bool) {
    world
        .management
        .edit(BOOTSTRAP, |bootstrap| bootstrap["spec"]["paused"] = json!(paused));
}

/// A paused ClusterBootstrap has no writes, so no drift check either.
#[tokio::test(start_paused = true)]
async fn what_is_altered_in_a_pause_is_found_after_it() {
    let world = World::released().await;
    pause(&world, true);
    world.reconcile().await;
    change(&world.workload, "packages", |package| {
        package["spec"]["template"]["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]);
    });
    change(&world.workload, "apps", |app| {
        app["metadata"]["generation"] = json!(2);
        app["status"]["observedGeneration"] = json!(2);
        app["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]);
    });
    world.reconcile().await;
    assert_eq!(world.record().packages[0].repairs, 0, "{:?}", world.record());
    pause(&world, false);
    world.reconcile().await;
    assert_eq!(world.record().packages[0].repairs, 1, "{:?}", world.record());
}

/// Its proofs are recorded: only the pause kept the gate closed.
#[tokio::test(start_paused = true)]
async fn a_gate_opens_after_a_pause_for_what_the_servers_say() {
    let world = Box::pin(World::released()).await;
    pause(&world, true);
    Box::pin(world.reconcile()).await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::BootstrapPaused)
    );
    pause(&world, false);
    let leader = Box::pin(world.leader()).await;
    change(&world.workload, "apps", |app| {
        app["status"]["conditions"] = json!([{"type": "ReconcileFailed", "status": "True"}]);
    });
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::PackageFailed),
        "{:?}",
        world.record()
    );
}

/// Only the policy of a package itself releases it.
#[tokio::test(start_paused = true)]
async fn the_policy_of_another_package_lets_nothing_go() {
    let world = World::new();
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["upgradePolicy"] =
            json!({"packages": [{"package": "metrics", "phase": "AfterControlPlane"}]});
    });
    world.reconcile().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(PackagesNotReady));
}

/// Each has values of its own.
#[tokio::test(start_paused = true)]
async fn additional_packages_are_confirmed_each_for_itself() {
    let world = World::new();
    let additional = ["metrics", "logs"].map(|name| {
        let secret = format!("/api/v1/namespaces/team-a/secrets/{name}-values");
        world
            .management
            .put(&secret, values(name.len().try_into().unwrap()));
        let ref_name = format!("{name}.example.com");
        let package = package_of(&ref_name, "1.9.0", "a");
        world
            .management
            .put(&format!("{PACKAGES}/{ref_name}.1.9.0"), package);
        json!({
            "refName": format!("{ref_name}.1.9.0"), "valuesFrom": {"secretRef": format!("{name}-values")},
        })
    });
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["additionalPackages"] = json!(additional);
    });
    Box::pin(world.reconcile()).await;
    world.deployed();
    Box::pin(world.reconcile()).await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        None,
        "{:?}",
        world.record()
    );
    assert_eq!(world.record().packages.len(), 3);
}
