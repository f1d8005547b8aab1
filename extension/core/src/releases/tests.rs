use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Cluster,
    run::{OSImage, TanzuKubernetesRelease},
};

use super::*;
use crate::{
    bootstrap::{Catalogue, PackageFacts},
    step::{Clock, Done, Error, Known, Object, Stop, Subject, Write},
    stores::Releases,
    version::Ordered,
};

const PACKAGE: &str = "antrea.tanzu.vmware.com.1.7.1+vmware.1-tkg.1";

fn then() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

fn now() -> Timestamp {
    "2026-11-02T00:00:00Z".parse().unwrap()
}

fn release(version: &str, more: &Value) -> TanzuKubernetesRelease {
    let mut object = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
        "metadata": {"name": version_label(version), "uid": version, "resourceVersion": "1"},
        "spec": {
            "version": version, "kubernetes": {"version": "v1.35.4"},
            "osImages": [{"name": "ubuntu"}], "bootstrapPackages": [{"name": PACKAGE}],
        },
    });
    merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

fn image(more: &Value) -> OSImage {
    let mut object = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage",
        "metadata": {"name": "ubuntu", "uid": "ubuntu", "resourceVersion": "1"},
        "spec": {
            "kubernetesVersion": "v1.35.4",
            "os": {"type": "linux", "name": "ubuntu", "version": "24.04", "arch": "amd64"},
            "image": {"type": "ami", "ref": {"id": "ami-0123", "region": "us-east-1"}},
        },
    });
    merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

/// Puts the fields of `more` into `object`, as a merge patch does.
pub(super) fn merge(object: &mut Value, more: &Value) {
    let (Value::Object(fields), Value::Object(more)) = (&mut *object, more) else {
        *object = more.clone();
        return;
    };
    for (name, value) in more {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// What a survey of these releases is made of: one image, one Package, and nothing that says what is compatible.
struct World {
    releases: Releases,
    images: Images,
    packages: Catalogue,
    compatibility: Compatibility,
}

impl World {
    fn of(releases: impl IntoIterator<Item = TanzuKubernetesRelease>) -> Self {
        let named =
            |release: TanzuKubernetesRelease| (release.metadata.name.clone().unwrap(), Arc::new(release));
        Self {
            releases: releases.into_iter().map(named).collect(),
            images: Images::from([("ubuntu".to_owned(), Arc::new(image(&json!({}))))]),
            packages: Catalogue::from([(PACKAGE.to_owned(), PackageFacts::default())]),
            compatibility: Compatibility::of(&Sources::default()),
        }
    }

    fn survey(&self) -> Survey {
        Survey::of(Facts {
            releases: &self.releases,
            images: Some(&self.images),
            packages: &self.packages,
            compatibility: Some(&self.compatibility),
        })
    }

    /// Writes what has to be written of each release, once. Says of how many there was something to write.
    fn settle(&mut self, at: Timestamp) -> usize {
        let survey = self.survey();
        let mut written = 0;
        for release in self.releases.values_mut() {
            let Some(mark) = survey.of_release(release, at) else {
                continue;
            };
            let mut object = json!(**release);
            for write in carry_out(&mark, at, &json!({})) {
                merge(&mut object, &write.body);
            }
            *release = Arc::new(serde_json::from_value(object).unwrap());
            written += 1;
        }
        written
    }

    fn condition(&self, release: &str, type_: &str) -> (String, String, String) {
        let status = self.releases[release].status.as_ref().unwrap();
        let found = status
            .conditions
            .iter()
            .find(|found| found.type_ == type_)
            .unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    }
}

/// Carries a pass out against a server that has `object` and takes every write. Says what was written.
fn carry_out<S: Subject<Memory = (), Effects = (), Hold = String>>(
    subject: &S,
    at: Timestamp,
    object: &Value,
) -> Vec<Write> {
    let began = Clock {
        now: at,
        instant: std::time::Instant::now(),
    };
    let (mut known, mut written) = (Known::new(subject, &(), began), Vec::new());
    loop {
        match S::pass(&known, &mut ()) {
            Ok(done) => {
                assert_eq!(done, Done::AwaitChange);
                return written;
            }
            Err(Stop::Need(asks)) => {
                for ask in known
                    .unanswered(asks)
                    .map_err(|error: Error| error.to_string())
                    .unwrap()
                {
                    known.record_answer(ask, crate::step::Answer::Found(Object(object.clone())));
                }
            }
            Err(Stop::Write(writes)) => {
                for write in writes {
                    written.push(write.clone());
                    let version = format!("{}", written.len() + 1);
                    let made = json!({"metadata": {"resourceVersion": version}});
                    known.record_outcome(write, Ok(Object(made)));
                }
            }
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

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
                // Each label alone is selected by as it will be written.
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

/// The labels are written first, and the status with the version that this has made.
#[test]
fn a_status_is_written_onto_what_the_labels_have_made() {
    let world = World::of([release("v1.35.4", &json!({}))]);
    let mark = world
        .survey()
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
        .survey()
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

#[rstest]
#[case::version(json!({"spec": {"version": "latest"}}), "VersionInvalid", "latest")]
#[case::no_label(json!({"spec": {"version": format!("v1.35.4+{}", "a".repeat(60))}}), "VersionInvalid", "63")]
#[case::kubernetes(json!({"spec": {"kubernetes": {"version": "1.35"}}}), "KubernetesVersionInvalid", "1.35")]
#[case::image(json!({"spec": {"osImages": [{"name": "photon"}]}}), "OSImageNotFound", "spec.osImages[0].name \"photon\"")]
#[case::image_of_another_version(
    json!({"spec": {"kubernetes": {"version": "v1.35.5"}}}), "OSImageOfAnotherVersion", "v1.35.4"
)]
#[case::package(json!({"spec": {"bootstrapPackages": [{"name": "gone"}]}}), "PackageNotFound", "\"gone\"")]
fn what_is_wrong_with_a_release(#[case] more: Value, #[case] reason: &str, #[case] named: &str) {
    let mut world = World::of([release("v1.35.4", &more)]);
    world.settle(then());
    let (status, found, message) = world.condition("v1.35.4", "Valid");
    assert_eq!((status.as_str(), found.as_str()), ("False", reason));
    assert!(message.contains(named), "{message}");
    assert_eq!(
        world.condition("v1.35.4", "Ready"),
        ("False".into(), "Invalid".into(), "invalid".into())
    );
    assert!(
        world.releases["v1.35.4"]
            .metadata
            .labels
            .as_ref()
            .unwrap()
            .contains_key("invalid")
    );
    assert_eq!(world.survey().faults().values().sum::<u64>(), 1);
    assert_eq!(world.settle(now()), 0);
    // Corrected, it is as any other one.
    let mut object = json!(*world.releases["v1.35.4"]);
    object["spec"] = json!(release("v1.35.4", &json!({})).spec);
    world.releases.insert(
        "v1.35.4".to_owned(),
        Arc::new(serde_json::from_value(object).unwrap()),
    );
    world.settle(now());
    assert_eq!(world.condition("v1.35.4", "Ready").0, "True");
    assert!(
        !world.releases["v1.35.4"]
            .metadata
            .labels
            .as_ref()
            .unwrap()
            .contains_key("invalid")
    );
}

/// The one that is named after its version is in use; the other one is at fault.
#[test]
fn of_two_releases_with_one_version_the_other_one_is_at_fault() {
    let other = |name: &str| release("v1.35.4", &json!({"metadata": {"name": name}}));
    let mut world = World::of([other("a-copy"), release("v1.35.4", &json!({})), other("b-copy")]);
    world.settle(now());
    let valid = ["a-copy", "v1.35.4", "b-copy"].map(|name| world.condition(name, "Valid").1);
    assert_eq!(valid, ["DuplicateVersion", "", "DuplicateVersion"]);
    let mut spelled = World::of([
        release("v1.35.4", &json!({})),
        release("1.35.4", &json!({"metadata": {"name": "b"}})),
    ]);
    spelled.settle(now());
    assert_eq!(spelled.condition("b", "Valid").1, "DuplicateVersion", "without v");
    let mut unnamed = World::of([other("a-copy"), other("b-copy")]);
    unnamed.settle(now());
    assert_eq!(
        ["a-copy", "b-copy"].map(|name| unnamed.condition(name, "Valid").1),
        ["", "DuplicateVersion"]
    );
}

/// A store that was not filled yet is no proof that something is missing.
#[test]
fn what_is_not_known_yet_stays_as_it_was() {
    let mut world = World::of([release(
        "v1.35.4",
        &json!({"spec": {"osImages": [{"name": "photon"}]}}),
    )]);
    world.settle(then());
    let blind = Survey::of(Facts {
        images: None,
        compatibility: None,
        releases: &world.releases,
        packages: &world.packages,
    });
    assert!(blind.of_release(&world.releases["v1.35.4"], now()).is_none());
    assert_eq!(blind.updates, Updates::default(), "it is still excluded");
}

fn config_map(name: &str, data: &Value) -> ConfigMap {
    let mut object = json!({"metadata": {"name": name, "namespace": "tkg-system"}});
    merge(&mut object, data);
    serde_json::from_value(object).unwrap()
}

fn bom(text: &str) -> ConfigMap {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    config_map(
        "bom-metadata",
        &json!({"binaryData": {"compatibility": STANDARD.encode(text)}}),
    )
}

fn listing(text: &str) -> Vec<ConfigMap> {
    vec![config_map("more", &json!({"data": {"tkrVersions": text}}))]
}

const BOM: &str = "
version: v1
managementClusterVersions:
- version: v2.5.1
  supportedKubernetesVersions: [v1.34.4+vmware.1]
- version: v2.5.2
  supportedKubernetesVersions:
  - v1.35.4+vmware.1
";

#[rstest]
#[case::nothing(None, vec![], Some("v2.5.2"), "Unknown", "NoCompatibilityData")]
#[case::listed(Some(bom(BOM)), vec![], Some("v2.5.2"), "True", "")]
#[case::listed_for_another_version(Some(bom(BOM)), vec![], Some("v2.5.1"), "False", "")]
#[case::no_entry(Some(bom(BOM)), vec![], Some("v2.6.0"), "False", "")]
#[case::no_management_cluster(Some(bom(BOM)), vec![], None, "False", "")]
#[case::listed_as_well(Some(bom(BOM)), listing("[v1.35.4+vmware.1]"), Some("v2.5.1"), "True", "")]
#[case::only_listed_as_well(None, listing("- v1.35.4+vmware.1\n- v1.36.3"), None, "True", "")]
#[case::only_others_listed(None, listing("- v1.36.3"), None, "False", "")]
#[case::empty_list(None, listing(""), None, "False", "")]
#[case::no_yaml(Some(bom("{")), vec![], Some("v2.5.2"), "Unknown", "CompatibilityDataInvalid")]
#[case::no_key(Some(config_map("bom-metadata", &json!({}))), vec![], Some("v2.5.2"), "Unknown", "CompatibilityDataInvalid")]
#[case::no_yaml_but_listed(Some(bom("{")), listing("[v1.35.4+vmware.1]"), Some("v2.5.2"), "True", "")]
#[case::listing_is_no_list(
    Some(bom(BOM)),
    listing("a: b"),
    Some("v2.5.1"),
    "Unknown",
    "CompatibilityDataInvalid"
)]
#[case::listing_is_no_list_but_listed(Some(bom(BOM)), listing("a: b"), Some("v2.5.2"), "True", "")]
fn compatibility_of_a_release(
    #[case] bom: Option<ConfigMap>,
    #[case] additional: Vec<ConfigMap>,
    #[case] version: Option<&str>,
    #[case] status: &str,
    #[case] reason: &str,
) {
    let mut world = World::of([release("v1.35.4+vmware.1", &json!({}))]);
    world.compatibility = Compatibility::of(&Sources {
        bom,
        additional,
        management_version: version.map(str::to_owned),
    });
    world.settle(now());
    let name = "v1.35.4---vmware.1";
    let (found, why, message) = world.condition(name, "Compatible");
    assert_eq!((found.as_str(), why.as_str()), (status, reason), "{message}");
    assert_eq!(message.is_empty(), status == "True", "{message}");
    let excluded = status == "False";
    assert_eq!(
        world.releases[name]
            .metadata
            .labels
            .as_ref()
            .unwrap()
            .contains_key("incompatible"),
        excluded
    );
    assert_eq!(
        world.condition(name, "Ready").1,
        if excluded { "Incompatible" } else { "" }
    );
    assert_eq!(
        world
            .survey()
            .updates
            .after(&Ordered::of("v1.35.0").unwrap())
            .is_empty(),
        excluded
    );
}

#[test]
fn the_management_cluster_says_its_version() {
    let cluster = |labels: Value, annotations: Value| -> Cluster {
        serde_json::from_value(
            json!({"metadata": {"name": "one", "labels": labels, "annotations": annotations}}),
        )
        .unwrap()
    };
    let ours = json!({"cluster-role.tkg.tanzu.vmware.com/management": ""});
    let (mut known, one) = (
        ManagementClusters::of("tkg-system"),
        ClusterRef::new("tkg-system", "one"),
    );
    let mut saw = |labels: &Value, version: &str, is_there| {
        let changed = known.saw(
            &one,
            &cluster(labels.clone(), json!({"TKGVERSION": version})),
            is_there,
        );
        (changed, known.version())
    };
    let version = Some("v2.5.2".to_owned());
    assert_eq!(saw(&json!({}), "v9", true), (false, None));
    assert_eq!(saw(&ours, "v2.5.2", true), (true, version.clone()));
    assert_eq!(saw(&ours, "v2.5.2", true), (false, version.clone()));
    assert_eq!(saw(&json!({}), "v2.5.2", true), (true, None));
    assert_eq!(saw(&ours, "v2.5.2", true), (true, version));
    assert_eq!(saw(&ours, "v2.5.2", false), (true, None));
    let nothing = cluster(ours.clone(), json!({}));
    assert!(known.saw(&one, &nothing, true), "it has no version yet");
    assert_eq!(known.version(), None);
    let tenant = cluster(ours, json!({"TKGVERSION": "v9"}));
    assert!(
        !known.saw(&ClusterRef::new("a-tenant", "one"), &tenant, true),
        "a tenant's"
    );
    assert_eq!(known.version(), None);
}

/// Releases of three minor versions, some of which nothing may be upgraded to.
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

/// A release can be taken as long as one of its images can.
#[test]
fn a_release_without_a_usable_image_is_not_named() {
    let mut world = World::of([release("v1.35.4", &json!({})), release("v1.35.5", &json!({}))]);
    let from = Ordered::of("v1.35.4").unwrap();
    assert_eq!(world.survey().updates.after(&from), ["v1.35.5"]);
    let deactivated = image(&json!({"metadata": {"labels": {"deactivated": ""}}}));
    world.images.insert("ubuntu".to_owned(), Arc::new(deactivated));
    assert!(world.survey().updates.after(&from).is_empty());
}

#[test]
fn only_the_newest_are_named() {
    let versions: Vec<String> = (0..40).map(|patch| format!("v1.35.{patch}")).collect();
    let world = World::of(versions.iter().map(|version| release(version, &json!({}))));
    let newer = world.survey();
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
fn what_a_cluster_may_take_next(
    #[case] release: &str,
    #[case] status: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let survey = several().survey();
    let fresh = cluster(&on(release), &json!([]));
    let offer = of_cluster(&fresh, &survey).unwrap();
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
    assert!(of_cluster(&said, &survey).is_none(), "it is as it shall be");
}

#[test]
fn the_time_of_the_last_transition_is_kept() {
    let (survey, since) = (several().survey(), "2026-10-01T00:00:00Z");
    let before = json!({
        "type": "UpdatesAvailable", "status": "True", "reason": "UpdatesAvailable", "message": "[v1.36.1]",
        "lastTransitionTime": since,
    });
    let offer = of_cluster(&cluster(&on("v1.36.3"), &json!([before])), &survey).unwrap();
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
    let survey = several().survey();
    assert!(of_cluster(&cluster(&json!({}), &json!([])), &survey).is_none());
    let said = json!([{"type": "UpdatesAvailable", "status": "True", "reason": "UpdatesAvailable", "message": "[v1.36.3]"}]);
    let left = cluster(&json!({}), &said);
    let offer = of_cluster(&left, &survey).unwrap();
    let found = json!({"kind": "Cluster", "metadata": {"uid": "uid"}, "status": {"conditions": said}});
    assert_eq!(
        carry_out(&offer, now(), &found)[0].body["status"]["conditions"],
        json!([])
    );
    let another = json!({"kind": "Cluster", "metadata": {"uid": "another"}, "status": {"conditions": said}});
    assert!(carry_out(&offer, now(), &another).is_empty(), "it was made again");
    let mut going = left;
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(then()));
    assert!(of_cluster(&going, &survey).is_none());
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
fn what_excludes_an_image(#[case] more: Value, #[case] label: &str, #[case] reason: &str) {
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

/// Also after another list of all of them: nothing is written, and no release is compared with all others.
#[test]
fn five_thousand_releases_at_rest_need_no_write() {
    let versions = (0..5000).map(|number| format!("v1.{}.{}", 20 + number / 500, number % 500));
    let mut world = World::of(versions.map(|version| release(&version, &json!({}))));
    assert_eq!(world.settle(then()), 5000);
    assert_eq!(world.settle(now()), 0);
}
