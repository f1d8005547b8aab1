//! Release label of a new Cluster whose ClusterBootstrap pins another release.

use sluice_crds::labels::annotation;

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, PACKAGE, PACKAGES, RELEASE, TEMPLATES, VERSION, World, cluster, package_of,
    put_release,
};

/// Newest release of the version.
const NEWEST: &str = "v1.36.3---test.2";
const KAPP_CONTROLLER: &str = "kapp-controller.example.com.0.50.0";

/// Returns a new Cluster that was resolved to the newest release before its user created the ClusterBootstrap.
fn resolved() -> World {
    let world = World::new();
    let management = &world.management;
    put_release(management, NEWEST, VERSION);
    management.put(
        &format!("{PACKAGES}/{KAPP_CONTROLLER}"),
        package_of("kapp-controller.example.com", "0.50.0", "a"),
    );
    management.edit(&format!("{TEMPLATES}/{RELEASE}"), |template| {
        template["spec"]["kapp"] = json!({"refName": KAPP_CONTROLLER});
    });
    management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"] = json!({label::TKR: NEWEST});
        cluster["metadata"]["annotations"] =
            json!({annotation::RESOLVE_TKR: "", annotation::CUSTOM_CLUSTER_BOOTSTRAP: ""});
        cluster["spec"].as_object_mut().unwrap().remove("controlPlaneRef");
        cluster["status"]["initialization"] = json!({"infrastructureProvisioned": true});
    });
    management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["metadata"]["annotations"] = json!({annotation::ADD_MISSING_FIELDS: RELEASE});
        bootstrap["metadata"]["ownerReferences"] = json!([]);
        bootstrap["spec"] =
            json!({"cni": {"refName": PACKAGE, "valuesFrom": {"secretRef": "antrea-values"}}});
    });
    world
}

/// Returns the label of the Cluster, and the number of attempts to change it.
fn label_of(world: &World) -> (Value, usize) {
    let cluster = world.management.get(CLUSTER).unwrap();
    let patch = format!("PATCH {CLUSTER}");
    let asked = world.management.asked_to_write();
    let patches = asked.iter().filter(|asked| **asked == patch).count();
    (cluster["metadata"]["labels"][label::TKR].clone(), patches)
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_moves_to_the_release_that_its_bootstrap_pins() {
    let world = resolved();
    let leader = world.leader().await;
    assert_eq!(label_of(&world), (json!(RELEASE), 1));
    let held = world.management.get(BOOTSTRAP).unwrap();
    assert!(
        held["status"].to_string().contains("MissingFieldsNotFilled"),
        "{held}"
    );
    assert_eq!(
        held["metadata"]["ownerReferences"],
        json!([]),
        "it is adopted later"
    );
    // The cache shows neither the label nor the status, whose write may fail.
    drop(reconcile_once(&cluster(&leader), &leader).await);
    assert_eq!(label_of(&world), (json!(RELEASE), 1));

    drop(world.leader().await);
    let adopted = world.management.get(BOOTSTRAP).unwrap();
    assert_eq!(
        adopted["metadata"]["annotations"][annotation::RESOLVED_TKR],
        RELEASE
    );
    assert_eq!(adopted["spec"]["kapp"]["refName"], KAPP_CONTROLLER);
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["name"], "one");
    assert_eq!(label_of(&world), (json!(RELEASE), 1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_of_the_label_is_retried_after_a_while() {
    let world = resolved();
    world.management.refuse_writes("/clusters/one", 422);
    let leader = world.leader().await;
    assert_eq!(label_of(&world), (json!(NEWEST), 1));
    let held = world.management.get(BOOTSTRAP).unwrap();
    assert!(held["status"].to_string().contains("cannot be changed"), "{held}");
    // The status that these reconciles write may be outdated.
    drop(reconcile_once(&cluster(&leader), &leader).await);
    assert_eq!(label_of(&world), (json!(NEWEST), 1));
    sleep(Duration::from_secs(31)).await;
    drop(reconcile_once(&cluster(&leader), &leader).await);
    assert_eq!(label_of(&world), (json!(NEWEST), 2));
}
