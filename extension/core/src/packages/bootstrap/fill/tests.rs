use std::collections::BTreeSet;

use proptest::{collection::vec, option, prelude::*, sample::select};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::packages::bootstrap::PackageFacts;

/// A package with the last part of its name as its version.
fn facts(name: &str) -> PackageFacts {
    let (ref_name, version) = name.rsplit_once('/').unwrap_or((name, ""));
    PackageFacts {
        ref_name: ref_name.to_owned(),
        version: version.to_owned(),
        ..PackageFacts::default()
    }
}

fn spec(spec: Value) -> ClusterBootstrapSpec {
    serde_json::from_value(spec).unwrap()
}

fn template() -> ClusterBootstrapSpec {
    spec(json!({
        "kapp": {"refName": "kapp/1"},
        "cni": {
            "refName": "antrea/1",
            "valuesFrom": {"providerRef": {"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "v1"}},
        },
        "csi": {"refName": "csi/1", "valuesFrom": {"secretRef": "csi"}},
        "additionalPackages": [
            {"refName": "metrics/1", "valuesFrom": {"inline": {"replicas": 1}}},
            {"refName": "secretgen/1"},
        ],
    }))
}

fn release() -> Vec<String> {
    [
        "kapp/1",
        "antrea/1",
        "antrea-interworking/1",
        "calico/1",
        "csi/1",
        "metrics/1",
        "secretgen/1",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn filled(own: &ClusterBootstrapSpec, unmanaged_cni: bool) -> Result<ClusterBootstrapSpec, Vec<String>> {
    let (template, packages) = (template(), release());
    let kept = KeptVersions::default();
    fill(own, filling(&template, &packages, unmanaged_cni, &kept))
        .map(|completed| completed.filled)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

fn filling<'a>(
    template: &'a ClusterBootstrapSpec,
    packages: &'a [String],
    unmanaged_cni: bool,
    kept: &'a KeptVersions,
) -> Filling<'a> {
    Filling {
        template,
        release: Release { name: "v1", packages },
        unmanaged_cni,
        kept,
    }
}

fn whole(own: &ClusterBootstrapSpec, unmanaged_cni: bool) -> Result<Draft, Hold> {
    let (template, packages) = (template(), release());
    let named = super::packages(own)
        .into_iter()
        .map(|(_, package)| package.ref_name.clone());
    let catalogue: Catalogue = named
        .chain(packages.iter().cloned())
        .map(|name| (name.clone(), facts(&name)))
        .collect();
    {
        let kept = KeptVersions::default();
        let from = filling(&template, &packages, unmanaged_cni, &kept);
        fill_with_values("one", own, from, &catalogue)
    }
}

#[rstest]
#[case::nothing(json!({}), json!({
    "kapp": {"refName": "kapp/1"}, "cni": {"refName": "antrea/1"}, "csi": {"refName": "csi/1"},
    "additionalPackages": [{"refName": "metrics/1"}, {"refName": "secretgen/1"}],
}))]
#[case::a_wildcard(json!({"cni": {"refName": "calico*"}}), json!({
    "kapp": {"refName": "kapp/1"}, "cni": {"refName": "calico/1"}, "csi": {"refName": "csi/1"},
    "additionalPackages": [{"refName": "metrics/1"}, {"refName": "secretgen/1"}],
}))]
#[case::additional_ones(
    json!({"additionalPackages": [
        {"refName": "own/7", "valuesFrom": {"secretRef": "own"}},
        {"refName": "secretgen/1", "valuesFrom": {"inline": {}}},
    ]}),
    json!({
        "kapp": {"refName": "kapp/1"}, "cni": {"refName": "antrea/1"}, "csi": {"refName": "csi/1"},
        "additionalPackages": [
            {"refName": "metrics/1"},
            {"refName": "secretgen/1", "valuesFrom": {"inline": {}}},
            {"refName": "own/7", "valuesFrom": {"secretRef": "own"}},
        ],
    }),
)]
#[case::wildcards_of_additional_ones(
    json!({"kapp": {"refName": "kapp*"}, "additionalPackages": [
        {"refName": "secretgen*", "valuesFrom": {"inline": {"x": 1}}},
        {"refName": "calico*"},
    ]}),
    json!({
        "kapp": {"refName": "kapp/1"}, "cni": {"refName": "antrea/1"}, "csi": {"refName": "csi/1"},
        "additionalPackages": [
            {"refName": "metrics/1"},
            {"refName": "secretgen/1", "valuesFrom": {"inline": {"x": 1}}},
            {"refName": "calico/1"},
        ],
    }),
)]
#[case::names(
    json!({
        "kapp": {"refName": "", "valuesFrom": {"secretRef": "own"}}, "cni": {"refName": ""},
        "cpi": {"refName": "", "valuesFrom": {"secretRef": "own"}},
    }),
    json!({
        "kapp": {"refName": "kapp/1", "valuesFrom": {"secretRef": "own"}}, "cni": {"refName": "antrea/1"},
        "cpi": {"refName": "", "valuesFrom": {"secretRef": "own"}}, "csi": {"refName": "csi/1"},
        "additionalPackages": [{"refName": "metrics/1"}, {"refName": "secretgen/1"}],
    }),
)]
fn missing_fields_come_from_the_template(#[case] own: Value, #[case] expected: Value) {
    assert_eq!(filled(&spec(own), false), Ok(spec(expected)));
}

#[test]
fn an_unmanaged_cni_is_not_filled() {
    for own in [json!({}), json!({"cni": {"refName": ""}})] {
        let without = filled(&spec(own), true).unwrap();
        assert_eq!(without.cni, None);
        assert!(without.kapp.is_some() && without.csi.is_some());
    }
}

#[test]
fn whole_names_keep_the_order_of_the_user() {
    let (template, packages) = (template(), release());
    let kept = KeptVersions::default();
    let own = spec(json!({"additionalPackages": [{"refName": "secretgen*"}, {"refName": "metrics*"}]}));
    let Completed { named, filled } = fill(&own, filling(&template, &packages, false, &kept)).unwrap();
    let names = |spec: &ClusterBootstrapSpec| {
        let all = spec.additional_packages.iter();
        all.map(|package| package.ref_name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&named), ["secretgen/1", "metrics/1"]);
    assert_eq!(names(&filled), ["metrics/1", "secretgen/1"]);
    assert_eq!(named.kapp, None);
}

#[rstest]
#[case::no_match(json!({"cni": {"refName": "cilium*"}}), "spec.cni.refName: Invalid value: \"cilium*\": no package of TanzuKubernetesRelease v1 has this prefix; it has kapp/1, antrea/1,")]
#[case::several(json!({"cni": {"refName": "antrea*"}}), "2 packages of TanzuKubernetesRelease v1 have this prefix: antrea/1, antrea-interworking/1; write more of the name")]
#[case::in_the_list(
    json!({"additionalPackages": [{"refName": "metrics*"}, {"refName": "own*"}]}),
    "spec.additionalPackages[1].refName: Invalid value: \"own*\": no package of TanzuKubernetesRelease v1 has this prefix; it has kapp/1,"
)]
#[case::several_in_the_list(json!({"additionalPackages": [{"refName": "antrea*"}]}), "2 packages of TanzuKubernetesRelease v1 have this prefix: antrea/1, antrea-interworking/1; write more of the name")]
#[case::twice_in_the_list(
    json!({"additionalPackages": [{"refName": "metrics/1"}, {"refName": "metrics*"}]}),
    "spec.additionalPackages[1].refName: Invalid value: \"metrics*\": more than one additional packages share the same refName"
)]
fn a_wildcard_without_one_meaning_is_refused(#[case] own: Value, #[case] says: &str) {
    let faults = filled(&spec(own), false).unwrap_err();
    assert!(faults.len() == 1 && faults[0].contains(says), "{faults:?}");
}

#[test]
fn excluded_packages_are_not_filled() {
    let (theirs, mut packages) = (
        spec(json!({
            "kapp": {"refName": "kapp.x.1"}, "cni": {"refName": "antrea.x.1"}, "csi": {"refName": "csi.x.1"},
            "additionalPackages": [{"refName": "metrics.x.1"}, {"refName": "secretgen.x.1"}],
        })),
        release(),
    );
    packages.clear();
    let kept = KeptVersions::parse("csi=none,metrics.x=none").unwrap();
    let own = spec(json!({"csi": {"refName": ""}}));
    let completed = fill(&own, filling(&theirs, &packages, false, &kept)).unwrap();
    let mut expected = theirs.clone();
    expected.csi = None;
    expected.additional_packages.remove(0);
    assert_eq!(completed.filled, expected);
}

#[test]
fn fields_that_the_template_lacks_are_refused() {
    let (lacking, packages) = (ClusterBootstrapSpec::default(), release());
    let kept = KeptVersions::default();
    let faults = fill(&spec(json!({})), filling(&lacking, &packages, false, &kept)).unwrap_err();
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let says = "package can't be nil, and ClusterBootstrapTemplate v1 has none either";
    assert_eq!(
        texts,
        [
            format!("spec.cni: Invalid value: \"null\": {says}"),
            format!("spec.kapp: Invalid value: \"null\": {says}"),
        ]
    );
}

#[test]
fn values_come_as_clones_and_only_for_their_own_package() {
    let draft = whole(&spec(json!({"cni": {"refName": "calico*"}})), false).unwrap();
    assert_eq!(
        draft.spec.cni.unwrap().values_from,
        None,
        "those of antrea are not those of calico"
    );
    let names: Vec<&str> = draft.clones.iter().map(super::super::ValuesClone::name).collect();
    assert_eq!(names.len(), 2, "csi and metrics: {names:?}");
    let csi = draft.spec.csi.unwrap().values_from.unwrap();
    assert_eq!(csi.secret_ref.as_deref(), Some(names[0]));
}

#[rstest]
#[case::unowned_and_the_same(false, "v1", "v1", Ok(Some("v1")))]
#[case::owned_means_nothing_any_more(true, "v2", "v1", Ok(None))]
#[case::another_release(false, "v2", "v1", Err("write the same release in both"))]
#[case::empty(false, "", "v1", Err("it must name the TanzuKubernetesRelease"))]
fn the_annotation_has_to_name_the_release_of_the_label(
    #[case] owned: bool,
    #[case] named: &str,
    #[case] label: &str,
    #[case] expected: Result<Option<&str>, &str>,
) {
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.metadata.annotations =
        Some([(annotation::ADD_MISSING_FIELDS.to_owned(), named.to_owned())].into());
    match (filled_from(&bootstrap, owned, label), expected) {
        (Err(hold), Err(says)) => assert!(hold.message.contains(says), "{}", hold.message),
        (found, expected) => assert_eq!(found.ok(), expected.ok()),
    }
}

#[rstest]
#[case::of_a_user(json!({"annotations": {annotation::ADD_MISSING_FIELDS: "v1"}}), Some("v1"))]
#[case::empty(json!({"annotations": {annotation::ADD_MISSING_FIELDS: ""}}), None)]
#[case::without_annotation(json!({}), None)]
#[case::completed(
    json!({"annotations": {annotation::ADD_MISSING_FIELDS: "v1", annotation::RESOLVED_TKR: "v2"}}),
    None
)]
#[case::adopted(
    json!({
        "annotations": {annotation::ADD_MISSING_FIELDS: "v1"},
        "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "u"}],
    }),
    None
)]
fn a_release_is_pinned_until_adoption(#[case] metadata: Value, #[case] expected: Option<&str>) {
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
    assert_eq!(pinned_release(&metadata), expected);
}

fn listed(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let values = select(vec![
        Value::Null,
        json!({}),
        json!({"inline": {"a": 1}}),
        json!({"secretRef": "own"}),
    ]);
    (select(names), values).prop_map(|(name, values)| {
        let mut listed = json!({"refName": name});
        if !values.is_null() {
            listed["valuesFrom"] = values;
        }
        listed
    })
}

fn any_spec() -> impl Strategy<Value = ClusterBootstrapSpec> {
    let one = |names| option::of(listed(names));
    (
        one(&["kapp/1", "kapp/2", "kapp*"]),
        one(&["antrea/1", "calico*", "calico/1"]),
        one(&["csi/1", "csi/2", "csi*"]),
        vec(
            listed(&["metrics/1", "metrics*", "secretgen/1", "own/1", "own/2"]),
            0..4,
        ),
    )
        .prop_map(|(kapp, cni, csi, additional)| {
            spec(json!({"kapp": kapp, "cni": cni, "csi": csi, "additionalPackages": additional}))
        })
}

/// Whether `filled` keeps all fields of `own`; a wildcard is the prefix of a name.
fn keeps(own: &ClusterBootstrapSpec, filled: &ClusterBootstrapSpec) -> bool {
    super::packages(own).into_iter().all(|(role, own)| {
        super::packages(filled).into_iter().any(|(of, filled)| {
            let named = match own.ref_name.strip_suffix(WILDCARD) {
                Some(prefix) => filled.ref_name.starts_with(prefix),
                None => filled.ref_name == own.ref_name,
            };
            let valued = own.values_from.is_none() || own.values_from == filled.values_from;
            of == role && named && valued
        })
    })
}

proptest! {
    #[test]
    fn filling_is_idempotent_and_keeps_what_a_user_set(own in any_spec(), unmanaged in any::<bool>()) {
        let stored_name = |name: &str| name.replace(WILDCARD, "/1");
        let names: BTreeSet<_> = own.additional_packages.iter().map(|each| stored_name(&each.ref_name)).collect();
        let once = filled(&own, unmanaged);
        prop_assert_eq!(once.is_err(), names.len() < own.additional_packages.len(), "one name twice");
        let Ok(once) = once else { return Ok(()) };
        prop_assert!(keeps(&own, &once), "{:?} of {:?}", once, own);
        prop_assert_eq!(filled(&once, unmanaged), Ok(once.clone()));
        let Ok(draft) = whole(&own, unmanaged) else { return Ok(()) };
        prop_assert!(keeps(&own, &draft.spec), "{:?} of {:?}", draft.spec, own);
    }

    #[test]
    fn webhook_and_reconcile_match_the_reconcile_alone(own in any_spec(), unmanaged in any::<bool>()) {
        let Ok(stored) = filled(&own, unmanaged) else { return Ok(()) };
        prop_assert_eq!(whole(&stored, unmanaged).ok(), whole(&own, unmanaged).ok());
    }
}

/// The webhook writes no policy, and the reconcile copies that of the template if the user has none.
#[rstest]
#[case::none(json!({}), json!({"onCancel": "Rollback"}))]
#[case::of_the_user(json!({"upgradePolicy": {"onCancel": "Keep"}}), json!({"onCancel": "Keep"}))]
#[case::of_the_user_in_part(json!({"upgradePolicy": {"deadline": "1h"}}), json!({"deadline": "1h"}))]
fn a_policy_is_copied_as_a_whole(#[case] own: Value, #[case] expected: Value) {
    let own = spec(own);
    let mut template = template();
    template.upgrade_policy = serde_json::from_value(json!({"onCancel": "Rollback"})).unwrap();
    let (packages, kept) = (release(), KeptVersions::default());
    let from = filling(&template, &packages, false, &kept);
    let by_webhook = fill(&own, from).unwrap().filled;
    assert_eq!(by_webhook.upgrade_policy, own.upgrade_policy);
    let catalogue = packages.iter().map(|name| (name.clone(), facts(name))).collect();
    let by_reconcile = fill_with_values("one", &own, from, &catalogue).unwrap().spec;
    assert_eq!(json!(by_reconcile.upgrade_policy), expected);
}
