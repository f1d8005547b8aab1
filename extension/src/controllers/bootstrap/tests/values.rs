//! Values of packages.

use rstest::rstest;
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{BOOTSTRAP, PACKAGE, PACKAGES, VALUES, World, package_of, values};

const KAPP_CONTROLLER: &str = "kapp-controller.example.com.0.50.0";
const KAPP_VALUES: &str = "/api/v1/namespaces/team-a/secrets/kapp-values";
const ANTREA_CONFIG: &str = "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/team-a/antreaconfigs/one";

/// The digest of the CNI after another pass.
async fn digest(world: &World) -> String {
    world.pass().await;
    let packages = world.record().packages.into_iter();
    let mut of_cni = packages.filter(|package| package.name == "antrea");
    of_cni.next().unwrap().values_digest
}

/// kapp-controller restarts with other values, and leaves what it was deploying as it is unless it is asked again.
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

/// The provider is labelled with the package before it has computed the values for it.
#[rstest]
#[case::for_the_package(Some(PACKAGE), HoldReason::PackagesNotReady)]
#[case::for_another_package(Some("antrea.example.com.1.8.0"), HoldReason::ValuesNotReady)]
#[case::for_a_package_that_is_not_known(None, HoldReason::ValuesNotReady)]
#[tokio::test(start_paused = true)]
async fn values_of_a_provider_are_used_when_they_were_computed(
    #[case] computed_for: Option<&str>,
    #[case] held: HoldReason,
) {
    let world = World::new();
    let provider = json!({"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "one"});
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["cni"]["valuesFrom"] = json!({"providerRef": provider});
    });
    let config = json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "AntreaConfig",
        "metadata": {"labels": {label::PACKAGE_NAME: PACKAGE}}, "status": {"secretRef": "antrea-values"},
    });
    world.management.put(ANTREA_CONFIG, config);
    if let Some(package) = computed_for {
        world.management.edit(VALUES, |secret| {
            secret["metadata"]["labels"] = json!({label::PACKAGE_NAME: package});
        });
    }
    world.pass().await;
    assert_eq!(world.held(Hook::BeforeClusterUpgrade), Some(held));
}
