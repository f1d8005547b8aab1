//! Labels of releases and of images.

use super::*;

#[rstest]
#[case("1.22.0+vmware.1-tkg.3", "v1.22.0---vmware.1-tkg.3")]
#[case("v1.35.4", "v1.35.4")]
#[case("1.35", "v1.35")]
fn versions_are_spelled_as_labels(#[case] version: &str, #[case] expected: &str) {
    assert_eq!(version_label(version), expected);
    assert_eq!(
        from_label(expected).trim_start_matches('v'),
        version.trim_start_matches('v')
    );
}

#[rstest]
#[case(
    "v1.17.9---vmware.2-tkg.3",
    &["v1.17.9---vmware.2-tkg.3", "v1.17.9---vmware.2-tkg", "v1.17.9---vmware.2", "v1.17.9---vmware", "v1.17.9", "v1.17", "v1"]
)]
#[case("v1", &["v1"])]
#[case("", &[])]
#[case("...", &["..."])]
fn prefixes_of_a_version(#[case] label: &str, #[case] expected: &[&str]) {
    assert_eq!(prefixes(label).collect::<Vec<_>>(), expected);
}

proptest! {
    #[test]
    fn a_version_comes_back_from_its_label(version in "v1\\.[0-9]{1,2}\\.[0-9]{1,2}(\\+[a-z]{1,8}\\.[0-9]{1,3}(-[a-z]{1,4}\\.[0-9]{1,3})?)?") {
        prop_assert_eq!(from_label(&version_label(&version)), version);
    }

    #[test]
    fn each_prefix_begins_the_one_before_and_ends_in_a_letter_or_digit(text in "v[0-9a-z.-]{0,30}") {
        let all: Vec<&str> = prefixes(&text).collect();
        for pair in all.windows(2) {
            prop_assert!(pair[0].starts_with(pair[1]) && pair[1].len() < pair[0].len());
            prop_assert!(pair[1].ends_with(|letter: char| letter.is_alphanumeric()));
        }
    }

    #[test]
    fn an_image_is_marked_once(text in "(v[0-9])?\\PC{0,20}", field in "(v1|x)[a-z.0-9]{0,5}", value in "[a-z/]{0,2}") {
        let mut object = json!(image(&json!({
            "metadata": {"labels": {"v1.2": "", "os-version": "old"}},
            "spec": {"kubernetesVersion": text, "os": {"version": text}, "image": {"type": field, "ref": {field.clone(): value}}},
        })));
        let unmarked: OSImage = serde_json::from_value(object.clone()).unwrap();
        for round in 0..2 {
            let image: OSImage = serde_json::from_value(object.clone()).unwrap();
            let Some(mark) = of_image(&image, now()) else {
                // A selector of each single label matches before the label is written.
                let (before, after) = (kube::ResourceExt::labels(&unmarked), kube::ResourceExt::labels(&image));
                for key in before.keys().chain(after.keys()).filter(|key| !["incompatible", "invalid"].contains(&key.as_str())) {
                    let found = image_labels_of(&unmarked, &BTreeSet::from([key.clone()]));
                    prop_assert_eq!(found.get(key), after.get(key), "{}", key);
                }
                return Ok(());
            };
            prop_assert_eq!(round, 0, "{:?}", mark);
            for write in carry_out(&mark, now(), &json!({})) {
                merge(&mut object, &write.body);
            }
        }
    }

    #[test]
    fn labels_of_any_image_are_labels(text in "\\PC{0,80}", field in "\\PC{0,80}") {
        let image = image(&json!({"spec": {
            "os": {"version": text}, "image": {"type": field, "ref": {field.clone(): text, "more": {text.clone(): true}}},
        }}));
        let Some(mark) = of_image(&image, now()) else { return Ok(()) };
        for (key, value) in labels_of(&carry_out(&mark, now(), &json!({}))) {
            for text in [Some(key), value].into_iter().flatten().filter(|text| !text.is_empty()) {
                prop_assert!(text.len() <= 63 && text.is_ascii(), "{}", text);
                prop_assert!(text.starts_with(|letter: char| letter.is_ascii_alphanumeric()), "{}", text);
            }
        }
    }
}

fn labels_of(writes: &[Write]) -> BTreeMap<String, Option<String>> {
    let labels = writes
        .iter()
        .find_map(|write| write.body["metadata"].get("labels"))
        .cloned();
    labels
        .map(|labels| serde_json::from_value(labels).unwrap())
        .unwrap_or_default()
}

#[test]
fn a_release_gets_its_labels_and_conditions_once() {
    let mut world = World::of([release("v1.35.4+vmware.1-tkg.2", &json!({}))]);
    assert_eq!(world.settle(then()), 1);
    let name = "v1.35.4---vmware.1-tkg.2";
    let labels: Vec<&str> = world.releases[name]
        .metadata
        .labels
        .as_ref()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let prefixes = [
        "v1",
        "v1.35",
        "v1.35.4",
        "v1.35.4---vmware",
        "v1.35.4---vmware.1",
        "v1.35.4---vmware.1-tkg",
        name,
    ];
    assert_eq!(labels, prefixes);
    let said =
        ["Valid", "Compatible", "Ready", "UpdatesAvailable"].map(|type_| world.condition(name, type_).0);
    assert_eq!(said, ["True", "Unknown", "True", "False"]);
    assert_eq!(world.condition(name, "Compatible").1, "NoCompatibilityData");
    assert_eq!(world.condition(name, "UpdatesAvailable").1, "AlreadyUpToDate");
    assert_eq!(world.settle(now()), 0, "it is as it shall be");
}

/// The labels are written first, then the status with the resourceVersion of that write.
#[test]
fn a_status_is_written_after_the_labels() {
    let world = World::of([release("v1.35.4", &json!({}))]);
    let mark = world
        .evaluation()
        .of_release(&world.releases["v1.35.4"], now())
        .unwrap();
    let writes = carry_out(&mark, now(), &json!({}));
    let versions: Vec<&Value> = writes
        .iter()
        .map(|write| &write.body["metadata"]["resourceVersion"])
        .collect();
    assert_eq!(versions, ["1", "2"]);
    assert!(
        writes
            .iter()
            .all(|write| write.body["metadata"]["uid"] == "v1.35.4")
    );
}

#[test]
fn labels_of_a_version_that_was_corrected_go_and_those_of_others_stay() {
    let labels =
        json!({"v1.34": "", "v1": "", "vendor": "", "v2-only": "yes", "invalid": "", "deactivated": ""});
    let world = World::of([release("v1.35.4", &json!({"metadata": {"labels": labels}}))]);
    let mark = world
        .evaluation()
        .of_release(&world.releases["v1.35.4"], now())
        .unwrap();
    let changes = labels_of(&carry_out(&mark, now(), &json!({})));
    let (kept, removed) = (Some(String::new()), None);
    let expected = [
        ("invalid", removed.clone()),
        ("v1.34", removed),
        ("v1.35", kept.clone()),
        ("v1.35.4", kept),
    ];
    assert_eq!(
        changes,
        expected.map(|(key, value)| (key.to_owned(), value)).into()
    );
}

#[test]
fn an_image_gets_the_labels_that_it_is_selected_by() {
    let reference = json!({"id": "ami-0123", "name": "ubuntu/24.04", "nested": {"zone": 1}});
    let first = image(&json!({"spec": {"image": {"ref": reference}}}));
    let mark = of_image(&first, then()).unwrap();
    let writes = carry_out(&mark, then(), &json!({}));
    let labels: Vec<String> = labels_of(&writes)
        .into_iter()
        .map(|(key, value)| format!("{key}={}", value.unwrap()))
        .collect();
    let expected = [
        "ami-id=ami-0123",
        "ami-nested-zone=1",
        "ami-region=us-east-1",
        "image-type=ami",
        "os-arch=amd64",
        "os-name=ubuntu",
        "os-type=linux",
        "os-version=24.04",
        "v1=",
        "v1.35=",
        "v1.35.4=",
    ];
    assert_eq!(labels, expected);
    let mut object = json!(first);
    for write in &writes {
        merge(&mut object, &write.body);
    }
    let written: OSImage = serde_json::from_value(object).unwrap();
    assert!(of_image(&written, now()).is_none(), "it is as it shall be");
}

#[rstest]
#[case::version(json!({"spec": {"kubernetesVersion": "1.35"}}), "invalid", "Invalid")]
#[case::deactivated(json!({"metadata": {"labels": {"deactivated": ""}}}), "deactivated", "Deactivated")]
#[case::incompatible(
    json!({"status": {"conditions": [
        {"type": "Compatible", "status": "False", "lastTransitionTime": "2026-11-01T00:00:00Z"},
    ]}}),
    "incompatible", "Incompatible"
)]
fn images_are_excluded_with_a_reason(#[case] more: Value, #[case] label: &str, #[case] reason: &str) {
    let image = image(&more);
    let writes = carry_out(&of_image(&image, now()).unwrap(), now(), &json!({}));
    let mut object = json!(image);
    for write in &writes {
        merge(&mut object, &write.body);
    }
    assert_eq!(object["metadata"]["labels"][label], "");
    let conditions = object["status"]["conditions"].as_array().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .unwrap();
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!(reason))
    );
}
