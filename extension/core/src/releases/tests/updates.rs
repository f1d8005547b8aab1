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
    let mut offers = several().offers();
    let fresh = cluster(&on(release), &json!([]));
    let offer = offers.of_cluster(&fresh, None).unwrap();
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
    let said = cluster(&on(release), &write.body["status"]["conditions"]);
    assert!(offers.of_cluster(&said, None).is_none(), "it is as it shall be");
}

#[test]
fn the_time_of_the_last_transition_is_kept() {
    let (mut offers, since) = (several().offers(), "2026-10-01T00:00:00Z");
    let before = json!({
        "type": "UpdatesAvailable", "status": "True", "reason": "UpdatesAvailable", "message": "[v1.36.1]",
        "lastTransitionTime": since,
    });
    let offer = offers
        .of_cluster(&cluster(&on("v1.36.3"), &json!([before])), None)
        .unwrap();
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
    let mut offers = several().offers();
    assert!(
        offers
            .of_cluster(&cluster(&json!({}), &json!([])), None)
            .is_none()
    );
    let said = json!([{"type": "UpdatesAvailable", "status": "True", "reason": "UpdatesAvailable", "message": "[v1.36.3]"}]);
    let left = cluster(&json!({}), &said);
    let offer = offers.of_cluster(&left, None).unwrap();
    let found = json!({"kind": "Cluster", "metadata": {"uid": "uid"}, "status": {"conditions": said}});
    assert_eq!(
        carry_out(&offer, now(), &found)[0].body["status"]["conditions"],
        json!([])
    );
    let another = json!({"kind": "Cluster", "metadata": {"uid": "another"}, "status": {"conditions": said}});
    assert!(carry_out(&offer, now(), &another).is_empty(), "it was made again");
    let mut going = left;
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(then()));
    assert!(offers.of_cluster(&going, None).is_none());
}

/// A relist writes nothing and compares no release with all others.
#[test]
fn five_thousand_releases_at_rest_need_no_write() {
    let versions = (0..5000).map(|number| format!("v1.{}.{}", 20 + number / 500, number % 500));
    let mut world = World::of(versions.map(|version| release(&version, &json!({}))));
    assert_eq!(world.settle(then()), 5000);
    assert_eq!(world.settle(now()), 0);
}

/// Two releases of v1.35.4, and one of v1.36.3 with images of two distributions.
fn with_images() -> World {
    let mut world = World::of([
        release("v1.35.4", &json!({})),
        release("v1.35.5", &json!({"metadata": {"labels": {"channel": "stable"}}})),
        release(
            "v1.36.3",
            &json!({
                "metadata": {"labels": {"channel": "fast"}},
                "spec": {
                    "kubernetes": {"version": "v1.36.3"},
                    "osImages": [{"name": "ubuntu-36"}, {"name": "photon-36"}],
                },
            }),
        ),
    ]);
    for os in ["ubuntu", "photon"] {
        let name = format!("{os}-36");
        let of_os =
            json!({"metadata": {"name": name}, "spec": {"kubernetesVersion": "v1.36.3", "os": {"name": os}}});
        world.images.insert(name, Arc::new(image(&of_os)));
    }
    world
}

fn selects(selector: &str) -> Value {
    json!({"annotations": {"run.tanzu.vmware.com/resolve-os-image": selector}})
}

/// A Cluster that requests a resolution.
fn resolved() -> Value {
    let mut resolved = json!(cluster(&on("v1.35.4"), &json!([])));
    resolved["metadata"]["annotations"] = json!({"run.tanzu.vmware.com/resolve-tkr": ""});
    resolved["spec"]["topology"] = json!({
        "classRef": {"name": "class"}, "version": "v1.35.4", "controlPlane": {},
        "workers": {"machineDeployments": [{"name": "md", "class": "default"}]},
    });
    resolved
}

/// Its class, whose parts select ubuntu.
fn class() -> Value {
    json!({
        "metadata": {"name": "class", "namespace": "team-a", "annotations": {}},
        "spec": {
            "controlPlane": {"metadata": selects("os-name=ubuntu")},
            "workers": {"machineDeployments": [{"class": "default", "metadata": selects("os-name=ubuntu")}]},
            "variables": [{"name": "TKR_DATA"}],
        },
    })
}

fn offer_of(offers: &mut Offers, cluster: &Value, class: &Value) -> Option<Value> {
    let (cluster, class): (Cluster, ClusterClass) = (
        serde_json::from_value(cluster.clone()).unwrap(),
        serde_json::from_value(class.clone()).unwrap(),
    );
    let offer = offers.of_cluster(&cluster, Some(&class))?;
    let writes = carry_out(&offer, now(), &json!(cluster));
    Some(writes[0].body["status"]["conditions"][0]["message"].clone())
}

type Edit = fn(&mut Value, &mut Value);

const ALL: &str = "[v1.35.5 v1.36.3]";

#[rstest]
#[case::nothing(|_: &mut Value, _: &mut Value| {}, ALL)]
#[case::releases_by_the_cluster(
    |cluster: &mut Value, _: &mut Value| cluster["metadata"]["annotations"]["run.tanzu.vmware.com/resolve-tkr"] = json!("channel=fast"),
    "[v1.36.3]"
)]
#[case::releases_by_the_class(
    |cluster: &mut Value, class: &mut Value| {
        cluster["metadata"]["annotations"] = json!({});
        class["metadata"]["annotations"] = json!({"run.tanzu.vmware.com/resolve-tkr": "channel=stable"});
    },
    "[v1.35.5]"
)]
#[case::images_by_the_cluster(
    |cluster: &mut Value, _: &mut Value| cluster["spec"]["topology"]["controlPlane"]["metadata"] = selects("os-name=photon"),
    "[v1.36.3]"
)]
#[case::images_by_the_class(
    |_: &mut Value, class: &mut Value| class["spec"]["workers"]["machineDeployments"][0]["metadata"] = selects("os-name=photon"),
    "[v1.36.3]"
)]
#[case::images_by_a_pool(
    |cluster: &mut Value, _: &mut Value| {
        cluster["spec"]["topology"]["workers"]["machineDeployments"][0]["metadata"] = selects("os-name=photon");
    },
    "[v1.36.3]"
)]
#[case::two_images_for_a_part(
    |cluster: &mut Value, _: &mut Value| cluster["spec"]["topology"]["controlPlane"]["metadata"] = selects(""),
    "[v1.35.5]"
)]
#[case::versions_of_the_class(
    |_: &mut Value, class: &mut Value| class["spec"]["kubernetesVersions"] = json!(["v1.35.4", "v1.37.1"]),
    "[v1.35.5]"
)]
#[case::all_versions_of_the_class(
    |_: &mut Value, class: &mut Value| class["spec"]["kubernetesVersions"] = json!(["v1.35.4", "v1.36.3"]),
    ALL
)]
#[case::no_images_are_used(
    |_: &mut Value, class: &mut Value| {
        class["spec"] = json!({"workers": {"machineDeployments": [{"class": "default"}]}});
    },
    ALL
)]
#[case::invalid_selector(
    |cluster: &mut Value, _: &mut Value| cluster["metadata"]["annotations"]["run.tanzu.vmware.com/resolve-tkr"] = json!("a b"),
    ""
)]
#[case::invalid_image_selector(
    |cluster: &mut Value, _: &mut Value| cluster["spec"]["topology"]["controlPlane"]["metadata"] = selects("a b"),
    ""
)]
#[case::unknown_worker_class(
    |_: &mut Value, class: &mut Value| class["spec"]["workers"]["machineDeployments"][0]["class"] = json!("other"),
    ""
)]
#[case::no_request(
    |cluster: &mut Value, class: &mut Value| {
        cluster["metadata"]["annotations"] = json!({});
        class["spec"]["kubernetesVersions"] = json!(["v1.35.4"]);
    },
    ALL
)]
fn only_accepted_releases_are_offered(#[case] edit: Edit, #[case] message: &str) {
    let (mut cluster, mut class) = (resolved(), class());
    edit(&mut cluster, &mut class);
    let offer = offer_of(&mut with_images().offers(), &cluster, &class);
    assert_eq!(offer, Some(json!(message)));
}

/// The condition stays as it is meanwhile.
#[test]
fn nothing_is_offered_while_inputs_are_unknown() {
    let cluster: Cluster = serde_json::from_value(resolved()).unwrap();
    let world = with_images();
    assert!(world.offers().of_cluster(&cluster, None).is_none(), "no class");
    let mut unlisted = Offers::of(
        Arc::new(world.evaluation()),
        Arc::new(world.releases.clone()),
        None,
    );
    assert_eq!(offer_of(&mut unlisted, &resolved(), &class()), None, "no images");
}

#[test]
fn clusters_with_the_same_constraints_share_their_offers() {
    let mut offers = with_images().offers();
    let mut newest = resolved();
    newest["metadata"]["labels"] = on("v1.36.3");
    let mut other = class();
    other["metadata"]["name"] = json!("other");
    for class in [class(), other] {
        assert_eq!(offer_of(&mut offers, &resolved(), &class), Some(json!(ALL)));
        assert_eq!(offer_of(&mut offers, &newest, &class), Some(json!("")));
    }
    assert_eq!(offers.accepted.len(), 1);
}

/// Users choose their selectors.
#[test]
fn the_number_of_kept_offers_is_limited() {
    let mut offers = with_images().offers();
    for number in 0..1_000 {
        let mut cluster = resolved();
        cluster["metadata"]["annotations"]["run.tanzu.vmware.com/resolve-tkr"] =
            json!(format!("!other-{number}"));
        assert_eq!(offer_of(&mut offers, &cluster, &class()), Some(json!(ALL)));
    }
    assert!(offers.accepted.len() <= 64, "{}", offers.accepted.len());
}

#[test]
fn a_change_of_labels_or_images_affects_clusters() {
    let world = with_images();
    let offers = world.offers();
    assert!(world.offers().is_same_for_clusters(&offers));
    let mut labelled = with_images();
    let release = Arc::make_mut(labelled.releases.get_mut("v1.35.5").unwrap());
    release.metadata.labels.get_or_insert_default().clear();
    assert!(!labelled.offers().is_same_for_clusters(&offers), "a label");
    let mut another = with_images();
    let image = Arc::make_mut(another.images.get_mut("ubuntu").unwrap());
    "photon".clone_into(&mut image.spec.os.name);
    assert!(!another.offers().is_same_for_clusters(&offers), "an image");
    let mut fewer = with_images();
    fewer.images.remove("photon-36");
    assert!(!fewer.offers().is_same_for_clusters(&offers), "no image");
}
