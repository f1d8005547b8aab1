//! Faults and compatibility of releases.

use super::*;

#[rstest]
#[case::version(json!({"spec": {"version": "latest"}}), "VersionInvalid", "latest")]
#[case::no_label(json!({"spec": {"version": format!("v1.35.4+{}", "a".repeat(60))}}), "VersionInvalid", "63")]
#[case::kubernetes(json!({"spec": {"kubernetes": {"version": "1.35"}}}), "KubernetesVersionInvalid", "1.35")]
#[case::image(json!({"spec": {"osImages": [{"name": "photon"}]}}), "OSImageNotFound", "spec.osImages[0].name \"photon\"")]
#[case::image_of_another_version(
    json!({"spec": {"kubernetes": {"version": "v1.35.5"}}}), "OSImageOfAnotherVersion", "v1.35.4"
)]
#[case::package(json!({"spec": {"bootstrapPackages": [{"name": "gone"}]}}), "PackageNotFound", "\"gone\"")]
#[case::requirement(json!({"metadata": {"annotations": {"lifecycle.sluice.dev/requires": "tkg"}}}), "RequirementInvalid", "\"tkg\"")]
fn faults_of_a_release(#[case] more: Value, #[case] reason: &str, #[case] named: &str) {
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
    assert_eq!(world.evaluation().faults().values().sum::<u64>(), 1);
    assert_eq!(world.settle(now()), 0);
    // After its correction the release is valid.
    let mut object = json!(*world.releases["v1.35.4"]);
    object["spec"] = json!(release("v1.35.4", &json!({})).spec);
    object["metadata"]["annotations"] = json!({});
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

/// The release that is named after its version is valid; the duplicate is at fault.
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

/// A store without its first list does not prove that an object is missing.
#[test]
fn unknown_parts_stay_unchanged() {
    let mut world = World::of([release(
        "v1.35.4",
        &json!({"spec": {"osImages": [{"name": "photon"}]}}),
    )]);
    world.settle(then());
    let blind = Evaluation::of(Facts {
        images: None,
        compatibility: None,
        management_packages: None,
        releases: &world.releases,
        packages: Some(&world.packages),
    });
    assert!(blind.of_release(&world.releases["v1.35.4"], now()).is_none());
    assert_eq!(blind.updates, Updates::default(), "it is still excluded");
}

#[test]
fn a_release_stays_valid_before_its_packages_are_known() {
    let mut world = World::of([release("v1.35.4", &json!({}))]);
    world.settle(then());
    let blind = Evaluation::of(Facts {
        images: Some(&world.images),
        compatibility: None,
        management_packages: None,
        releases: &world.releases,
        packages: None,
    });
    assert!(blind.of_release(&world.releases["v1.35.4"], now()).is_none());
    assert_eq!(blind.updates, world.evaluation().updates);
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

/// The same after tkr-source was stopped.
fn frozen(text: &str) -> ConfigMap {
    let mut bom = bom(text);
    let mark = ("lifecycle.sluice.dev/frozen".to_owned(), String::new());
    bom.metadata.annotations.get_or_insert_default().extend([mark]);
    bom
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
#[case::frozen_and_listed(Some(frozen(BOM)), vec![], Some("v2.5.2"), "True", "")]
#[case::frozen(Some(frozen(BOM)), vec![], Some("v2.5.1"), "Unknown", "CompatibilityDataFrozen")]
#[case::frozen_without_entry(Some(frozen(BOM)), vec![], Some("v2.6.0"), "Unknown", "CompatibilityDataFrozen")]
#[case::frozen_without_management_cluster(Some(frozen(BOM)), vec![], None, "Unknown", "CompatibilityDataFrozen")]
#[case::frozen_but_listed_as_well(
    Some(frozen(BOM)),
    listing("[v1.35.4+vmware.1]"),
    Some("v2.5.1"),
    "True",
    ""
)]
#[case::frozen_no_yaml(Some(frozen("{")), vec![], Some("v2.5.2"), "Unknown", "CompatibilityDataInvalid")]
#[case::frozen_and_listing_is_no_list(
    Some(frozen(BOM)),
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
            .evaluation()
            .updates
            .after(&Ordered::of("v1.35.0").unwrap())
            .is_empty(),
        excluded
    );
}

/// After its deletion, and after its data became unreadable, a release stays usable; label `deactivated` still excludes one.
#[test]
fn data_that_nothing_maintains_excludes_only_deactivated_releases() {
    let on = |bom: Option<ConfigMap>| {
        Compatibility::of(&Sources {
            bom,
            additional: vec![],
            management_version: Some("v2.5.1".to_owned()),
        })
    };
    let mut world = World::of([release("v1.35.4+vmware.1", &json!({}))]);
    let name = "v1.35.4---vmware.1";
    world.compatibility = on(Some(bom(BOM)));
    world.settle(then());
    let (status, _, message) = world.condition(name, "Compatible");
    assert_eq!(status, "False");
    let command = "kubectl -n tkg-system annotate configmap bom-metadata lifecycle.sluice.dev/frozen=";
    assert!(message.ends_with(command), "{message}");
    for unmaintained in [Some(frozen(BOM)), Some(bom("{")), None] {
        world.compatibility = on(unmaintained);
        world.settle(now());
        assert_eq!(world.condition(name, "Compatible").0, "Unknown");
        assert_eq!(world.condition(name, "Ready").0, "True");
        assert_eq!(world.settle(now()), 0);
    }
    let labelled = Arc::make_mut(world.releases.get_mut(name).unwrap());
    let mark = ("deactivated".to_owned(), String::new());
    labelled.metadata.labels.get_or_insert_default().extend([mark]);
    world.settle(now());
    assert_eq!(world.condition(name, "Ready").1, "Deactivated");
    assert_eq!(world.evaluation().updates, Updates::default());
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
