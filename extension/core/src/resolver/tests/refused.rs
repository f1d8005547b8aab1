//! Refusals and their messages.

use super::*;

#[test]
fn images_that_were_not_read_are_waited_for() {
    let world = World::new();
    let asked = Asked {
        old: None,
        new: cluster(&new("v1.35", &json!([]))),
    };
    let known = ResolverInputs {
        images: None,
        ..world.known()
    };
    assert_eq!(resolve(&asked, known), Err(Unknown::Images));
}

/// Only a release with an image for every part is suitable.
#[test]
fn a_release_without_an_image_for_a_pool_is_passed_over() {
    let mut world = World::new();
    world.release("v1.35.8", 14, &["ubuntu"]);
    let (both, _) = world.becomes(None, &new("v1.35", &json!([{"name": "b", "class": "photon"}])));
    assert_eq!(label_of(&both), "v1.35.4---a.10");
    let (one, _) = world.becomes(None, &new("v1.35", &json!([])));
    assert_eq!(label_of(&one), "v1.35.8---a.14");
}

#[rstest]
#[case::set_to_an_older_one("v1.35", "v1.35.4---a.9", Ok("v1.35.4---a.9"))]
#[case::of_another_version(
    "v1.35",
    "v1.36.3---a.11",
    Err("does not begin with v1.35; v1.35.4---a.10 can be taken")
)]
#[case::of_none("v1.35", "v1.35.4---none", Err("v1.35.4---none does not exist"))]
fn a_label_that_is_set_is_taken_or_refused(
    #[case] version: &str,
    #[case] name: &str,
    #[case] expected: Result<&str, &str>,
) {
    let world = World::new();
    let mut labelled = new(version, &json!([]));
    labelled["metadata"]["labels"] = json!({label::TKR: name});
    match expected {
        Ok(release) => assert_eq!(label_of(&world.becomes(None, &labelled).0), release),
        Err(says) => {
            let refusal = world.refusal(None, &labelled);
            assert!(refusal.contains(says), "{refusal}");
        }
    }
}

#[test]
fn a_release_that_is_gone_is_not_replaced() {
    let mut world = World::new();
    let (stored, _) = world.becomes(None, &new("v1.35", &json!([])));
    world.releases.remove("v1.35.4---a.10");
    let refusal = world.refusal(Some(&stored), &stored);
    assert!(
        refusal.contains("does not exist any more; set the label to another one"),
        "{refusal}"
    );
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    assert_eq!(
        label_of(&world.becomes(Some(&stored), &bumped).0),
        "v1.36.3---a.11"
    );
}

#[rstest]
#[case::no_version("v1.37", &[], "no version has this prefix, the nearest are v1.36.3---a.11, v1.35.4---a.10, v1.35.4---a.9")]
#[case::deactivated("v1.36", &[("v1.36.3---a.11", label::DEACTIVATED)], "v1.36.3---a.11 is deactivated")]
#[case::incompatible("v1.36", &[("v1.36.3---a.11", label::INCOMPATIBLE)], "v1.36.3---a.11 is incompatible")]
#[case::legacy("v1.36", &[("v1.36.3---a.11", label::LEGACY_TKR)], "v1.36.3---a.11 is marked legacy")]
#[case::invalid("v1.36", &[("v1.36.3---a.11", label::INVALID)], "v1.36.3---a.11 is invalid")]
#[case::named("v1.36.3+a.11", &[("v1.36.3---a.11", label::INVALID)], "v1.36.3---a.11 is invalid")]
#[case::all(
    "v1.35",
    &[("v1.35.4---a.9", label::INVALID), ("v1.35.4---a.10", label::DEACTIVATED)],
    "v1.35.4---a.10 is deactivated, v1.35.4---a.9 is invalid"
)]
fn unresolvable_clusters_are_refused(
    #[case] version: &str,
    #[case] labels: &[(&str, &str)],
    #[case] says: &str,
) {
    let mut world = World::new();
    for (release, key) in labels {
        world.label(release, key);
    }
    let refusal = world.refusal(None, &new(version, &json!([])));
    let begin = format!(
        "spec.topology.version: Invalid value: {version:?}: could not resolve TKR/OSImage for controlPlane, machineDeployments: [], \
         query: {{version {}, releases \"\", OSImages of controlPlane \"os-name=ubuntu\"}}, result: ",
        crate::releases::version_label(version)
    );
    assert!(
        refusal.starts_with(&begin) && refusal.ends_with(says),
        "{refusal}"
    );
}

#[test]
fn an_image_is_needed_and_only_one() {
    let mut world = World::new();
    let flatcar = json!({"annotations": {annotation::RESOLVE_OS_IMAGE: "os-name=flatcar"}});
    let pool = json!([{"name": "md", "class": "default", "metadata": flatcar}]);
    let refusal = world.refusal(None, &new("v1.36", &pool));
    assert!(
        refusal.contains("v1.36.3---a.11 has no OSImage for machineDeployments[md]"),
        "{refusal}"
    );
    world.release("v1.36.9", 15, &["ubuntu", "photon"]);
    let image = world.images["v1.36.9---a.15-photon"].as_ref().clone();
    let mut second = image.clone();
    second.spec.os.name = "ubuntu".to_owned();
    world
        .images
        .insert("v1.36.9---a.15-photon".to_owned(), Arc::new(second));
    let refusal = world.refusal(None, &new("v1.36", &json!([])));
    let says =
        "v1.36.9---a.15 has 2 OSImages for controlPlane (v1.36.9---a.15-ubuntu, v1.36.9---a.15-photon)";
    assert!(refusal.contains(says), "{refusal}");
}

#[test]
fn selectors_are_of_labels_that_nothing_has_written_yet() {
    let world = World::new();
    let mut selecting = new("v1", &json!([]));
    selecting["metadata"]["annotations"][annotation::RESOLVE_TKR] = json!("v1.35,!v1.35.4---a.10");
    assert_eq!(label_of(&world.becomes(None, &selecting).0), "v1.35.4---a.9");
}

#[rstest]
#[case::selector(json!({"metadata": {"annotations": {annotation::RESOLVE_TKR: "a in"}}}), "metadata.annotations[run.tanzu.vmware.com/resolve-tkr]")]
#[case::class_of_a_pool(
    json!({"spec": {"topology": {"workers": {"machineDeployments": [{"name": "md", "class": "none"}]}}}}),
    "spec.topology.workers.machineDeployments[md].class: Invalid value: \"none\": ClusterClass class has no such class of workers; it has default, photon"
)]
#[case::data(json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": [1]}]}}}), "spec.topology.variables[TKR_DATA]: Invalid value: \"[1]\": it is not an object")]
#[case::data_of_no_version(json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": {"a": {}}}]}}}), "key \"a\" is not a Kubernetes version")]
#[case::data_without_objects(json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": {"v1.35.4": 1}}]}}}), "the entry for v1.35.4 is not an object")]
#[case::labels_of_data(
    json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": {"v1.35.4": {"labels": {"a": 1}}}}]}}}),
    "a label of v1.35.4 is not a string"
)]
fn bad_input_is_named(#[case] change: Value, #[case] says: &str) {
    let mut bad = new("v1.35", &json!([]));
    merge(&mut bad, &change);
    let refusal = World::new().refusal(None, &bad);
    assert!(refusal.contains(says), "{refusal}");
}

#[test]
fn a_class_that_is_missing_is_named() {
    let world = World {
        class: None,
        ..World::new()
    };
    let refusal = world.refusal(None, &new("v1.35", &json!([])));
    assert!(
        refusal.contains("spec.topology.classRef.name: Invalid value: \"class\": ClusterClass not found"),
        "{refusal}"
    );
}
