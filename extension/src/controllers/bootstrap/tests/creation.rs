//! Creation of a ClusterBootstrap.

use sluice_core::{
    gate::{
        decision::Decision,
        hook_call::{Hook, HookCall},
    },
    reasons::{CallReason, HoldReason},
};
use sluice_hooks::Gate as _;

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, PACKAGES, RELEASE, TEMPLATES, VERSION, World, cluster, package_of, values,
};

const IN_SYSTEM_NAMESPACE: &str = "/api/v1/namespaces/tkg-system/secrets/antrea-values";
const CLONE: &str = "/api/v1/namespaces/team-a/secrets/one-antrea-package";

/// Returns the reason why the index holds the creation of the Cluster.
fn held(context: &Context) -> Option<HoldReason> {
    let call = HookCall {
        hook: Hook::BeforeClusterCreate,
        namespace: "team-a",
        name: "one",
        uid: "uid",
        generation: 1,
        label: Some(RELEASE),
        labels: None,
        version: VERSION,
        first_step: None,
        deleted_at: None,
        now: None,
        clock: None,
    };
    match context.index.decide(&call) {
        Decision::Release => None,
        Decision::Hold { reason, .. } => Some(reason),
    }
}

/// No watch shows the Secret, so that only another reconcile finds it.
#[tokio::test(start_paused = true)]
async fn a_bootstrap_is_created_once_the_values_of_its_template_exist() {
    let world = World::new();
    world.management.remove(BOOTSTRAP);
    let leader = world.leader().await;
    let (index, stores) = (leader.index.clone(), leader.stores.clone());
    let following = tokio::spawn(async move { index.follow(stores).await });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(held(&leader), Some(HoldReason::Call(CallReason::RecordNotFound)));

    let action = reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let Done::RequeueAfter(again) = action else {
        panic!("the Secret is waited for: {action:?}");
    };
    assert!(again <= Duration::from_secs(10), "{again:?}");
    assert_eq!(held(&leader), Some(HoldReason::Gate(GateReason::ValuesNotFound)));
    let (_, event) = world.management.only("events");
    assert_eq!(event["reason"], "ValuesNotFound", "{event}");
    assert_eq!(
        world.management.get(BOOTSTRAP),
        None,
        "it would name a Secret that does not exist"
    );

    world.management.put(IN_SYSTEM_NAMESPACE, values(3));
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let created = world.management.get(BOOTSTRAP).unwrap();
    assert_eq!(
        created["spec"]["cni"]["valuesFrom"]["secretRef"],
        "one-antrea-package"
    );
    let clone = world.management.get(CLONE).unwrap();
    assert_eq!(clone["data"], values(3)["data"]);
    let asked = world.management.asked_to_write();
    let position = |end: &str| {
        asked
            .iter()
            .position(|asked| asked.starts_with("POST ") && asked.ends_with(end))
    };
    assert!(
        position("/team-a/secrets") < position("/clusterbootstraps"),
        "{asked:?}"
    );
    following.abort();
}

/// The existing source may be corrected while the other one is missing.
#[tokio::test(start_paused = true)]
async fn values_are_cloned_once_those_of_all_packages_exist() {
    let world = World::new();
    world.management.remove(BOOTSTRAP);
    let package = json!({"refName": "other.example.com.1.0.0", "valuesFrom": {"secretRef": "other-values"}});
    world
        .management
        .edit(&format!("{TEMPLATES}/{RELEASE}"), |template| {
            template["spec"]["additionalPackages"] = json!([package]);
        });
    world.management.put(
        &format!("{PACKAGES}/other.example.com.1.0.0"),
        package_of("other.example.com", "1.0.0", "a"),
    );
    world.management.put(IN_SYSTEM_NAMESPACE, values(3));
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE), None);

    world.management.put(IN_SYSTEM_NAMESPACE, values(4));
    let other = "/api/v1/namespaces/tkg-system/secrets/other-values";
    world.management.put(other, values(5));
    world.reconcile().await;
    assert_eq!(world.management.get(CLONE).unwrap()["data"], values(4)["data"]);
}
