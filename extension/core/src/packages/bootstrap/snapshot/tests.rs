use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::{Inputs, KeptVersions, PackageFacts, Release, merge};
use super::*;
use crate::reasons::GateReason;

const VERSION: &str = "v1.35.4";
const RELEASE: &str = "v1.35.4---a.1";

/// Every package `<ref>.<version>` for versions 1 and 2.
fn catalogue() -> Catalogue {
    let refs = [
        "kapp.x",
        "antrea.x",
        "antrea-interworking.x",
        "metrics.x",
        "own.x",
    ];
    let each = refs.iter().flat_map(|ref_name| {
        ["1", "2"].map(|version| {
            let facts = PackageFacts {
                ref_name: (*ref_name).to_owned(),
                version: version.to_owned(),
                ..PackageFacts::default()
            };
            (format!("{ref_name}.{version}"), facts)
        })
    });
    each.collect()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the cases read better with json! alone"
)]
fn spec(additional: Value, version: &str) -> ClusterBootstrapSpec {
    serde_json::from_value(json!({
        "kapp": {"refName": format!("kapp.x.{version}")},
        "cni": {"refName": format!("antrea.x.{version}"), "valuesFrom": {"secretRef": "mine"}},
        "additionalPackages": additional,
    }))
    .unwrap()
}

/// Returns the snapshot of a spec with version 1 of its packages.
fn before(additional: Value) -> Snapshot {
    Snapshot::of(VERSION, RELEASE, &spec(additional, "1"), &catalogue())
}

fn policy(value: Value) -> UpgradePolicy {
    serde_json::from_value(value).unwrap()
}

fn rollback() -> UpgradePolicy {
    policy(json!({"onCancel": "Rollback"}))
}

fn back(spec: &ClusterBootstrapSpec, snapshot: &Snapshot, policy: &UpgradePolicy) -> Restored {
    restored("one", spec, snapshot, &catalogue(), Some(policy)).unwrap()
}

fn annotated(text: &str) -> ClusterBootstrap {
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.metadata.annotations = Some([(annotation::ROLLBACK_TO.to_owned(), text.to_owned())].into());
    bootstrap
}

#[test]
fn a_snapshot_is_read_as_it_was_written() {
    let snapshot = before(json!([{"refName": "metrics.x.1"}]));
    assert_eq!(
        Snapshot::in_bootstrap(&annotated(&snapshot.to_json())),
        Ok(Some(snapshot.clone()))
    );
    let written: Value = serde_json::from_str(&snapshot.to_json()).unwrap();
    assert_eq!(
        written,
        json!({"version": VERSION, "release": RELEASE, "packages": {
            "kapp.x": {"name": "kapp.x.1", "values": false},
            "antrea.x": {"name": "antrea.x.1", "values": true},
            "metrics.x": {"name": "metrics.x.1", "values": false},
        }})
    );
    let none = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    assert_eq!(Snapshot::in_bootstrap(&none), Ok(None));
}

#[rstest]
#[case::empty("")]
#[case::no_json("kapp.x.1")]
#[case::no_packages(r#"{"version": "v1.35.4", "release": "a"}"#)]
#[case::unknown_field(r#"{"version": "v1.35.4", "release": "a", "packages": {}, "more": 1}"#)]
#[case::no_values(r#"{"version": "v1.35.4", "release": "a", "packages": {"kapp.x": {"name": "kapp.x.1"}}}"#)]
#[case::another_package(
    r#"{"version": "v1.35.4", "release": "a", "packages": {"kapp.x": {"name": "antrea.x.1", "values": false}}}"#
)]
#[case::similar_package(
    r#"{"version": "v1.35.4", "release": "a", "packages": {"antrea": {"name": "antrea-interworking.x.1", "values": false}}}"#
)]
fn an_edited_snapshot_is_not_read(#[case] text: &str) {
    assert!(Snapshot::in_bootstrap(&annotated(text)).is_err());
}

#[test]
fn a_snapshot_that_is_too_large_leaves_no_earlier_one() {
    let mut snapshot = before(json!([]));
    for number in 0..200 {
        let ref_name = format!("{}{number}.x", "p".repeat(240));
        let name = format!("{ref_name}.1");
        snapshot
            .packages
            .insert(ref_name, SnapshotPackage { name, values: false });
    }
    let text = snapshot.to_json();
    assert!(text.len() <= LARGEST);
    assert!(Snapshot::in_bootstrap(&annotated(&text)).is_err());
    let longer = format!("{}{}", before(json!([])).to_json(), " ".repeat(LARGEST));
    assert!(Snapshot::in_bootstrap(&annotated(&longer)).is_err());
}

#[rstest]
#[case::of_a_repaired_release(VERSION, Some("v1.36.3---a.1"), None, true)]
#[case::after_the_upgrade_to_it(VERSION, Some("v1.36.3---a.1"), Some(RELEASE), true)]
#[case::of_another_version("v1.36.3", Some("v1.36.3---a.1"), None, false)]
#[case::restored_since(VERSION, Some(RELEASE), None, false)]
#[case::nothing_merged(VERSION, None, None, false)]
#[case::another_release_completed_since(VERSION, Some("v1.35.4---a.2"), Some("v1.35.4---a.2"), false)]
fn a_further_merge_keeps_a_snapshot(
    #[case] version: &str,
    #[case] merged: Option<&str>,
    #[case] completed: Option<&str>,
    #[case] kept: bool,
) {
    assert_eq!(before(json!([])).is_kept(version, merged, completed), kept);
}

#[test]
fn packages_go_back_to_their_names() {
    let restored = back(&spec(json!([]), "2"), &before(json!([])), &rollback());
    assert_eq!(restored.spec, spec(json!([]), "1"));
    assert_eq!(restored.staying, []);
    let again = back(&restored.spec, &before(json!([])), &rollback());
    assert_eq!(again, restored, "the same again");
}

#[rstest]
#[case::kept_by_default(json!({}), &[("kapp", Stays::Policy), ("antrea", Stays::Policy)])]
#[case::kept(json!({"onCancel": "Keep"}), &[("kapp", Stays::Policy), ("antrea", Stays::Policy)])]
#[case::one_kept(
    json!({"onCancel": "Rollback", "packages": [{"package": "antrea", "onCancel": "Keep"}]}),
    &[("antrea", Stays::Policy)]
)]
#[case::only_one(
    json!({"packages": [{"package": "antrea", "onCancel": "Rollback"}]}),
    &[("kapp", Stays::Policy)]
)]
fn the_policy_of_a_package_comes_first(#[case] given: Value, #[case] staying: &[(&str, Stays)]) {
    let restored = back(&spec(json!([]), "2"), &before(json!([])), &policy(given));
    let found: Vec<(&str, Stays)> = restored
        .staying
        .iter()
        .map(|(name, why)| (name.as_str(), *why))
        .collect();
    assert_eq!(found, staying);
    for (_, package) in packages(&restored.spec) {
        let stays = staying.iter().any(|(name, _)| package.ref_name.starts_with(name));
        assert_eq!(package.ref_name.ends_with(".2"), stays, "{}", package.ref_name);
    }
}

#[test]
fn a_package_that_never_goes_back_stays() {
    let mut catalogue = catalogue();
    catalogue.get_mut("antrea.x.2").unwrap().stays = true;
    // Only the higher version says so.
    catalogue.get_mut("kapp.x.1").unwrap().stays = true;
    let (merged, before, policy) = (spec(json!([]), "2"), before(json!([])), rollback());
    let restored = restored("one", &merged, &before, &catalogue, Some(&policy)).unwrap();
    assert_eq!(restored.staying, [("antrea".to_owned(), Stays::Package)]);
    assert_eq!(restored.spec.cni, merged.cni);
    assert_eq!(restored.spec.kapp.unwrap().ref_name, "kapp.x.1");
}

#[test]
fn an_added_package_stays_and_a_removed_one_is_not_restored() {
    let merged = spec(json!([{"refName": "metrics.x.2"}]), "2");
    let restored = back(&merged, &before(json!([{"refName": "own.x.1"}])), &rollback());
    assert_eq!(restored.staying, [("metrics".to_owned(), Stays::Added)]);
    assert_eq!(restored.spec, spec(json!([{"refName": "metrics.x.2"}]), "1"));
}

#[rstest]
#[case::clone_of_a_secret(None, json!({"secretRef": "one-metrics-package"}), false)]
#[case::clone_of_a_provider(None, json!({"providerRef": {"kind": "Metrics", "name": "one-metrics-package"}}), false)]
#[case::inline(None, json!({"inline": {"a": 1}}), true)]
#[case::secret_of_a_user(None, json!({"secretRef": "theirs"}), true)]
#[case::provider_of_a_user(None, json!({"providerRef": {"kind": "Metrics", "name": "theirs"}}), true)]
#[case::edited(Some(json!({"inline": {"a": 1}})), json!({"inline": {"a": 2}}), true)]
#[case::another_source(Some(json!({"inline": {"a": 1}})), json!({"secretRef": "one-metrics-package"}), true)]
fn values_that_a_merge_has_added_go(
    #[case] first: Option<Value>,
    #[case] now: Value,
    #[case] stays: bool,
    #[values("1", "2")] version: &str,
) {
    let old = first.map_or_else(
        || json!({"refName": "metrics.x.1"}),
        |from| json!({"refName": "metrics.x.1", "valuesFrom": from}),
    );
    let merged = json!([{"refName": format!("metrics.x.{version}"), "valuesFrom": now}]);
    let restored = back(&spec(merged, "2"), &before(json!([old])), &rollback());
    let package = &restored.spec.additional_packages[0];
    assert_eq!(package.ref_name, "metrics.x.1");
    assert_eq!(package.values_from.is_some(), stays);
}

#[rstest]
#[case::old_package_gone("kapp.x.1", "kapp.x.1")]
fn a_missing_package_is_named(#[case] removed: &str, #[case] named: &str) {
    let mut catalogue = catalogue();
    catalogue.remove(removed);
    let (merged, before, policy) = (spec(json!([]), "2"), before(json!([])), rollback());
    let hold = restored("one", &merged, &before, &catalogue, Some(&policy)).unwrap_err();
    assert_eq!(hold.reason, GateReason::PackageNotFound);
    assert!(hold.message.contains(named), "{hold}");
}

/// The Packages of a failed release are withdrawn, and one of an added package.
#[test]
fn packages_go_back_from_withdrawn_ones() {
    let mut withdrawn = catalogue();
    withdrawn.retain(|name, _| !name.ends_with(".2"));
    let (merged, before, policy) = (spec(json!([]), "2"), before(json!([])), rollback());
    let restored = restored("one", &merged, &before, &withdrawn, Some(&policy)).unwrap();
    assert_eq!(restored.spec, spec(json!([]), "1"));
    assert_eq!(restored.staying, []);
}

/// A merge needs only the Package that it names.
#[test]
fn a_package_that_was_missing_before_goes_back_too() {
    let mut incomplete = catalogue();
    incomplete.remove("kapp.x.1");
    let snapshot = Snapshot::of(VERSION, RELEASE, &spec(json!([]), "1"), &incomplete);
    let (merged, policy) = (spec(json!([]), "2"), rollback());
    let hold = restored("one", &merged, &snapshot, &incomplete, Some(&policy)).unwrap_err();
    assert_eq!(hold.reason, GateReason::PackageNotFound);
    assert_eq!(back(&merged, &snapshot, &policy).spec, spec(json!([]), "1"));
    assert_eq!(
        Snapshot::in_bootstrap(&annotated(&snapshot.to_json())),
        Ok(Some(snapshot))
    );
}

/// Values of an additional package, before an upgrade or in a template.
fn any_values() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!({"inline": {"a": 1}}),
        json!({"secretRef": "any"}),
        json!({"providerRef": {"kind": "Any", "name": "any"}}),
    ])
}

proptest! {
    /// A rollback undoes any merge, apart from packages and inline values that it has added: a user may have written those.
    #[test]
    fn a_rollback_undoes_a_merge(
        old in prop::sample::subsequence(vec!["metrics.x", "own.x"], 0..=2),
        new in prop::sample::subsequence(vec!["metrics.x", "own.x", "antrea-interworking.x"], 0..=3),
        values in prop::array::uniform3(any_values()),
        of_template in prop::array::uniform3(any_values()),
    ) {
        let list = |names: &[&str], version: &str, values: &[Value; 3]| -> Value {
            names.iter().zip(values).map(|(name, from)| match from {
                Value::Null => json!({"refName": format!("{name}.{version}")}),
                from => json!({"refName": format!("{name}.{version}"), "valuesFrom": from}),
            }).collect()
        };
        let current = spec(list(&old, "1", &values), "1");
        let template = spec(list(&new, "2", &of_template), "2");
        let listed: Vec<String> = catalogue().into_keys().filter(|name| name.ends_with(".2")).collect();
        let merged = merge(&Inputs {
            cluster: "one",
            current: &current,
            old: None,
            new: &template,
            release: Release { name: "v1.36.3---a.1", packages: &listed },
            catalogue: &catalogue(),
            unmanaged_cni: false,
            kept: &KeptVersions::default(),
        }).unwrap();
        let snapshot = Snapshot::of(VERSION, RELEASE, &current, &catalogue());
        let mut restored = back(&merged.spec, &snapshot, &rollback());
        prop_assert!(restored.staying.iter().all(|(_, why)| *why == Stays::Added));
        restored.spec.additional_packages.truncate(current.additional_packages.len());
        let packages = restored.spec.additional_packages.iter_mut().zip(&current.additional_packages);
        for (package, before) in packages.filter(|(_, before)| before.values_from.is_none()) {
            let is_inline = package.values_from.as_ref().is_some_and(|from| from.inline.is_some());
            package.values_from = package.values_from.take().filter(|_| !is_inline);
            prop_assert_eq!(&package.ref_name, &before.ref_name);
        }
        prop_assert_eq!(restored.spec, current);
    }
}
