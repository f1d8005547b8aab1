//! Available updates of a Cluster, and the writes of a fan-out.

use super::*;

/// Releases of three minor versions, some of them excluded.
fn several() -> World {
    let excluded = |version, more| release(version, &more);
    World::of([
        release("v1.34.9", &json!({})),
        release("v1.35.4+vmware.1-tkg.1", &json!({})),
        release("v1.35.4+vmware.1-tkg.10", &json!({})),
        release("v1.35.4+vmware.1-tkg.2", &json!({})),
        release("v1.36.3", &json!({})),
        release("v1.37.0", &json!({})),
        excluded("v1.36.4", json!({"metadata": {"labels": {"deactivated": ""}}})),
        excluded(
            "v1.36.5",
            json!({"metadata": {"labels": {"run.tanzu.vmware.com/legacy-tkr": ""}}}),
        ),
        excluded(
            "v1.36.6",
            json!({"spec": {"bootstrapPackages": [{"name": "gone"}]}}),
        ),
        excluded(
            "v1.36.7",
            json!({"metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"}}),
        ),
    ])
}

#[rstest]
#[case(
    "v1.35.4+vmware.1-tkg.1",
    "[v1.35.4+vmware.1-tkg.2 v1.35.4+vmware.1-tkg.10 v1.36.3]"
)]
#[case("v1.35.4+vmware.1-tkg.10", "[v1.36.3]")]
#[case("v1.36.3", "[v1.37.0]")]
#[case("v1.37.0", "")]
#[case(
    "v1.34.9",
    "[v1.35.4+vmware.1-tkg.1 v1.35.4+vmware.1-tkg.2 v1.35.4+vmware.1-tkg.10]"
)]
fn newer_releases_of_this_minor_version_and_the_next(#[case] version: &str, #[case] expected: &str) {
    let mut world = several();
    world.settle(now());
    let (status, reason, message) = world.condition(&version_label(version), "UpdatesAvailable");
    assert_eq!(message, expected);
    let (is, why) = if expected.is_empty() {
        ("False", "AlreadyUpToDate")
    } else {
        ("True", "")
    };
    assert_eq!((status.as_str(), reason.as_str()), (is, why));
}

/// A release is available as long as one of its images is usable.
#[test]
fn a_release_without_a_usable_image_is_not_named() {
    let mut world = World::of([release("v1.35.4", &json!({})), release("v1.35.5", &json!({}))]);
    let from = Ordered::of("v1.35.4").unwrap();
    assert_eq!(world.evaluation().updates.after(&from), ["v1.35.5"]);
    let deactivated = image(&json!({"metadata": {"labels": {"deactivated": ""}}}));
    world.images.insert("ubuntu".to_owned(), Arc::new(deactivated));
    assert!(world.evaluation().updates.after(&from).is_empty());
}

#[test]
fn only_the_newest_are_named() {
    let versions: Vec<String> = (0..40).map(|patch| format!("v1.35.{patch}")).collect();
    let world = World::of(versions.iter().map(|version| release(version, &json!({}))));
    let newer = world.evaluation();
    let from = Ordered::of("v1.35.4").unwrap();
    let said = newer.updates.message(&from).unwrap();
    assert_eq!(newer.updates.after(&from).len(), 20);
    assert_eq!(said.split(' ').count(), 20);
    assert!(
        said.starts_with("[v1.35.20 ") && said.ends_with(" v1.35.39]"),
        "{said}"
    );
}

fn cluster(labels: &Value, conditions: &Value) -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "one", "namespace": "team-a", "uid": "uid", "labels": labels},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn on(release: &str) -> Value {
    json!({"run.tanzu.vmware.com/tkr": release})
}

#[rstest]
#[case::known("v1.36.3", "True", "UpdatesAvailable", "[v1.37.0]")]
#[case::unknown_release("v1.36.1", "True", "UpdatesAvailable", "[v1.36.3 v1.37.0]")]
#[case::newest("v1.37.0", "False", "AlreadyUpToDate", "")]
#[case::no_version(
    "my-release",
    "Unknown",
    "CannotParseTKR",
    "\"my-release\" is not a semantic version"
)]
fn available_updates_of_a_cluster(
    #[case] release: &str,
    #[case] status: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let evaluation = several().evaluation();
    let fresh = cluster(&on(release), &json!([]));
    let offer = of_cluster(&fresh, &evaluation).unwrap();
    let writes = carry_out(&offer, now(), &json!(fresh));
    let [write] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    let condition = &write.body["status"]["conditions"][0];
    assert_eq!(
        [&condition["status"], &condition["reason"], &condition["message"]],
        [status, reason, message]
    );
    assert_eq!(condition["lastTransitionTime"], "2026-11-02T00:00:00Z");
    assert_eq!(write.body["metadata"]["uid"], "uid");
    let said = cluster(&on(release), &json!([condition]));
    assert!(of_cluster(&said, &evaluation).is_none(), "it is as it shall be");
}

#[test]
fn the_time_of_the_last_transition_is_kept() {
    let (evaluation, since) = (several().evaluation(), "2026-10-01T00:00:00Z");
    let before = json!({
        "type": "UpdatesAvailable", "status": "True", "reason": "UpdatesAvailable", "message": "[v1.36.1]",
        "lastTransitionTime": since,
    });
    let offer = of_cluster(&cluster(&on("v1.36.3"), &json!([before])), &evaluation).unwrap();
    let time = |before: &Value| {
        let found =
            json!({"kind": "Cluster", "metadata": {"uid": "uid"}, "status": {"conditions": [before]}});
        carry_out(&offer, now(), &found)[0].body["status"]["conditions"][0]["lastTransitionTime"].clone()
    };
    assert_eq!(time(&before), since);
    let mut false_before = before;
    false_before["status"] = json!("False");
    assert_eq!(time(&false_before), "2026-11-02T00:00:00Z");
}

#[test]
fn a_cluster_without_a_release_has_no_such_condition() {
    let evaluation = several().evaluation();
    assert!(of_cluster(&cluster(&json!({}), &json!([])), &evaluation).is_none());
    let said = json!([{"type": "UpdatesAvailable", "status": "True", "reason": "UpdatesAvailable", "message": "[v1.36.3]"}]);
    let left = cluster(&json!({}), &said);
    let offer = of_cluster(&left, &evaluation).unwrap();
    let found = json!({"kind": "Cluster", "metadata": {"uid": "uid"}, "status": {"conditions": said}});
    assert_eq!(
        carry_out(&offer, now(), &found)[0].body["status"]["conditions"],
        json!([])
    );
    let another = json!({"kind": "Cluster", "metadata": {"uid": "another"}, "status": {"conditions": said}});
    assert!(carry_out(&offer, now(), &another).is_empty(), "it was made again");
    let mut going = left;
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(then()));
    assert!(of_cluster(&going, &evaluation).is_none());
}

/// A relist writes nothing and compares no release with all others.
#[test]
fn five_thousand_releases_at_rest_need_no_write() {
    let versions = (0..5000).map(|number| format!("v1.{}.{}", 20 + number / 500, number % 500));
    let mut world = World::of(versions.map(|version| release(&version, &json!({}))));
    assert_eq!(world.settle(then()), 5000);
    assert_eq!(world.settle(now()), 0);
}
