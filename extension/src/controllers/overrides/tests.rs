use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::labels::label;
use tokio::time::sleep;

use super::*;
use crate::controllers::bootstrap::world::{RELEASE, VERSION, World};

const OVERRIDE: &str = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/team-a/upgradeoverrides/metrics";
const CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/two";
const POLICIES: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/sluice-overrides",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/sluice-overrides",
];

/// Time after which the stores of a world show every write.
const LISTED: Duration = Duration::from_secs(15);

/// Returns the world of a managed Cluster `two` without a record, and an override for it that expires in an hour.
fn world() -> World {
    let world = World::new();
    world.management.put(
        CLUSTER,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"uid": "two", "generation": 1, "labels": {label::TKR: RELEASE}},
            "spec": {"topology": {"classRef": {"name": "class"}, "version": VERSION}},
        }),
    );
    let now = Timestamp::now();
    let expires = now + SignedDuration::from_hours(1);
    world.management.put(
        OVERRIDE,
        json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
            "metadata": {"uid": "override", "generation": 1, "creationTimestamp": now.to_string()},
            "spec": {
                "clusterName": "two", "clusterUID": "two", "gate": "ControlPlane", "packages": ["metrics"],
                "target": {"kubernetesVersion": VERSION, "release": RELEASE},
                "reason": "CHG-4711", "requestedBy": "ada", "expiresAt": expires.to_string(),
            },
        }),
    );
    world
}

/// Installs the policy and its binding.
fn install_policy(world: &World) {
    bind_policy(world, "Deny");
}

/// Installs the policy, and its binding with this action.
fn bind_policy(world: &World, action: &str) {
    let created = (Timestamp::now() - SignedDuration::from_hours(1)).to_string();
    for path in POLICIES {
        let spec = json!({"policyName": "sluice-overrides", "validationActions": [action]});
        let object = json!({"metadata": {"creationTimestamp": created}, "spec": spec});
        world.management.put(path, object);
    }
}

/// Returns the controller of a leader with filled stores.
async fn statuses(world: &World) -> OverrideStatuses {
    let leader = world.leader().await;
    OverrideStatuses::new(
        leader.client.clone(),
        leader.stores.clone(),
        leader.metrics.clone(),
    )
}

/// Returns status and reason of condition `Accepted`.
fn accepted(world: &World) -> Option<(String, String)> {
    let object = world.management.get(OVERRIDE).unwrap();
    let conditions = object["status"]["conditions"].as_array()?;
    let is_it = |condition: &&Value| condition["type"] == "Accepted";
    let condition = conditions.iter().find(is_it).unwrap();
    let text = |field: &str| condition[field].as_str().unwrap().to_owned();
    Some((text("status"), text("reason")))
}

fn said(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn writes(world: &World) -> usize {
    let asked = world.management.asked_to_write();
    asked
        .iter()
        .filter(|asked| asked.contains("/upgradeoverrides/"))
        .count()
}

#[tokio::test(start_paused = true)]
async fn an_accepted_override_is_written_once_and_requeued_for_its_expiry_or_the_policy() {
    let world = world();
    install_policy(&world);
    let statuses = statuses(&world).await;
    let again = turn(&statuses, "team-a").await.unwrap();
    assert_eq!(accepted(&world).unwrap(), said("True", "Accepted"));
    assert!(again <= FOUND_FOR && again > MISSED_FOR, "{again:?}");
    sleep(LISTED).await;
    turn(&statuses, "team-a").await;
    assert_eq!(writes(&world), 1);
    for path in POLICIES {
        assert_eq!(world.management.times_asked_for(path), 1, "{path}");
    }
}

#[rstest]
#[case::neither(&[])]
#[case::only_the_policy(&POLICIES[..1])]
#[case::only_the_binding(&POLICIES[1..])]
#[tokio::test(start_paused = true)]
async fn without_the_policy_or_its_binding_no_override_is_accepted(#[case] installed: &[&str]) {
    let world = world();
    for path in installed {
        world.management.put(path, json!({"metadata": {}}));
    }
    let statuses = statuses(&world).await;
    let again = turn(&statuses, "team-a").await.unwrap();
    assert_eq!(accepted(&world).unwrap(), said("False", "PolicyMissing"));
    install_policy(&world);
    sleep(again.max(LISTED)).await;
    turn(&statuses, "team-a").await;
    assert_eq!(accepted(&world).unwrap(), said("True", "Accepted"));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_cannot_be_read_leaves_it_unknown() {
    let world = world();
    let statuses = statuses(&world).await;
    world
        .management
        .refuse("/validatingadmissionpolicybindings/", 403);
    world.management.put(POLICIES[0], json!({"metadata": {}}));
    turn(&statuses, "team-a").await;
    assert_eq!(accepted(&world).unwrap(), said("Unknown", "PolicyUnreadable"));
}

#[rstest]
#[case::that_does_not_exist(None)]
#[case::that_is_not_managed(Some(json!({})))]
#[tokio::test(start_paused = true)]
async fn an_override_of_a_cluster_is_refused_without_reads(#[case] labels: Option<Value>) {
    let world = world();
    match labels {
        Some(labels) => world
            .management
            .edit(CLUSTER, |cluster| cluster["metadata"]["labels"] = labels),
        None => world.management.remove(CLUSTER),
    }
    let statuses = statuses(&world).await;
    assert_eq!(turn(&statuses, "team-a").await, None, "only an event changes it");
    assert_eq!(accepted(&world).unwrap(), said("False", "ClusterNotFound"));
    assert_eq!(world.management.times_asked_below(POLICIES[0]), 0);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_reconciled_once_a_second_and_not_without_overrides() {
    let world = world();
    let statuses = statuses(&world).await;
    assert_eq!(turn(&statuses, "team-b").await, None);
    turn(&statuses, "team-a").await;
    let left = turn(&statuses, "team-a").await.unwrap();
    assert!(!left.is_zero() && left <= INTERVAL, "{left:?}");
    assert_eq!(writes(&world), 1);
}
