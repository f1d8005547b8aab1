use std::{cell::RefCell, cmp::Ordering};

use proptest::prelude::*;
use rstest::rstest;
use semver::Version;
use serde_json::{Value, json};
use sluice_crds::{
    labels::label,
    lifecycle::{GATE_SCHEMA, GateRecord},
    run::{Gate, Hook, SCHEMA, UpgradeRecord},
};

use super::*;
use crate::{
    cache::stores::tests::{Given, object},
    gate::{
        decision::{CachedCluster, Decision, Knowledge, decide},
        hook_call::HookCall,
        retry::RetryPolicy,
    },
    reasons::{CallReason, HoldReason},
    upgrade::hop::{ControlPlaneFacts, progress},
};

const FROM: &str = "v1.34.4";
const OLDER: &str = "v1.35.4";
const NEWER: &str = "v1.35.5";
const TO: &str = "v1.36.3";

fn owned(versions: &[&str]) -> Vec<String> {
    versions.iter().map(|version| (*version).to_owned()).collect()
}

fn release(name: &str, version: &str) -> Arc<TanzuKubernetesRelease> {
    let spec = json!({"version": version, "kubernetes": {"version": version}});
    object(None, name, &Value::Null, &json!({"spec": spec}))
}

/// Returns a release of each Kubernetes version, named by its position.
fn released<Text: AsRef<str>>(versions: &[Text]) -> Releases {
    let versions = versions.iter().enumerate();
    let named = versions.map(|(index, version)| {
        let name = format!("release-{index}");
        let release = release(&name, version.as_ref());
        (name, release)
    });
    named.collect()
}

#[rstest]
#[case::equal(TO, TO, &[])]
#[case::equal_but_for_a_v("1.36.3", TO, &[])]
#[case::patch("v1.36.1", TO, &[TO])]
#[case::unordered_builds("v1.36.3+a", "v1.36.3+b", &["v1.36.3+b"])]
#[case::one_minor("v1.35.4", TO, &[TO])]
#[case::two_minors(FROM, TO, &["v1.35.10", TO])]
#[case::four_minors(FROM, "v1.38.1", &["v1.35.10", "v1.36.9", "v1.37.0-rc.1", "v1.38.1"])]
#[case::other_major(FROM, "v2.36.0", &["v2.36.0"])]
#[case::lower("v1.36.3", FROM, &[FROM])]
#[case::unparsable_target(FROM, "latest", &["latest"])]
#[case::unparsable_version("latest", TO, &[TO])]
fn the_last_step_is_the_target(#[case] from: &str, #[case] to: &str, #[case] expected: &[&str]) {
    let known = [
        "v1.34.9",
        "v1.35.4",
        "v1.35.10",
        "v1.36.9",
        "v1.37.0-rc.1",
        "v2.35.7",
        "latest",
    ];
    let releases = released(&known);
    let inputs = StepsInputs {
        from,
        to,
        pinned: &[],
        recorded: &[],
        releases: &releases,
    };
    assert_eq!(steps(inputs, &|_, _| true), Ok(owned(expected)));
}

const KNOWN: [&str; 4] = ["v1.35.10", "v1.35.1", "v1.35.3", "v1.35.2"];

#[rstest]
#[case::pinned(&["v1.35.1"], &["v1.35.2"], &[], "v1.35.1")]
#[case::newest_pin(&["v1.35.3", "v1.35.10", "v1.35.1"], &[], &["v1.35.10"], "v1.35.10")]
#[case::pin_without_a_release(&["v1.35.77"], &["v1.35.2"], &[], "v1.35.77")]
#[case::pins_of_other_minors(&["v1.34.9", "v1.36.3", "v2.35.1", "latest"], &["v1.35.2"], &[], "v1.35.2")]
#[case::recorded(&[], &["v1.35.2"], &["v1.35.2"], "v1.35.2")]
#[case::record_of_another_minor(&[], &["v1.36.3"], &["v1.35.10"], "v1.35.3")]
#[case::newest_usable(&[], &[], &["v1.35.10"], "v1.35.3")]
#[case::newest(&[], &[], &[], "v1.35.10")]
#[case::newest_known(&[], &[], &KNOWN, "v1.35.10")]
fn a_step_is_the_pin_or_the_recorded_hop_or_a_release(
    #[case] pinned: &[&str],
    #[case] recorded: &[&str],
    #[case] unusable: &[&str],
    #[case] expected: &str,
) {
    let (pinned, recorded, releases) = (owned(pinned), owned(recorded), released(&KNOWN));
    let inputs = StepsInputs {
        from: FROM,
        to: TO,
        pinned: &pinned,
        recorded: &recorded,
        releases: &releases,
    };
    let is_usable = |version: &str, _: &Releases| !unusable.contains(&version);
    assert_eq!(steps(inputs, &is_usable), Ok(owned(&[expected, TO])));
}

#[rstest]
#[case::first(&["v1.35.4", "v1.36.3"], 34)]
#[case::last(&["v1.34.4", "v1.35.4", "v1.37.1"], 36)]
#[case::all(&[], 34)]
#[case::of_another_major(&["v2.34.4", "v2.35.4", "v2.36.3"], 34)]
fn a_minor_version_without_a_release_is_named(#[case] known: &[&str], #[case] minor: u64) {
    let releases = released(known);
    let inputs = StepsInputs {
        from: "v1.33.9",
        to: "v1.37.1",
        pinned: &[],
        recorded: &[],
        releases: &releases,
    };
    let missing = steps(inputs, &|_, _| true).unwrap_err();
    assert_eq!((missing.major, missing.minor), (1, minor));
    let hold = Hold::from(&NoPlan::from(missing));
    assert_eq!(hold.reason, GateReason::NoTKRForHop);
    assert!(hold.message.contains(&format!("1.{minor},")), "{hold}");
}

/// Any tenant writes pins and versions.
#[test]
fn work_ends_with_the_last_pin() {
    let to = format!("v1.{}.0", u64::MAX);
    let pinned: Vec<String> = (1..=100_000).map(|minor| format!("v1.{minor}.0")).collect();
    let releases = Releases::new();
    let inputs = StepsInputs {
        from: "v1.0.0",
        to: &to,
        pinned: &pinned,
        recorded: &[],
        releases: &releases,
    };
    let missing = steps(inputs, &|_, _| true).unwrap_err();
    assert_eq!(missing.minor, 100_001);
}

#[test]
fn the_newest_versions_are_checked_once_with_their_releases() {
    let versions: Vec<String> = (0..50).map(|patch| format!("v1.35.{patch}")).collect();
    let releases = released(&[versions.clone(), versions.clone(), owned(&["v1.37.1"])].concat());
    let asked = RefCell::new(Vec::new());
    let is_usable = |version: &str, releases: &Releases| {
        let mut of_version = releases.values().map(|release| &release.spec.kubernetes.version);
        assert!(
            releases.len() == 2 && of_version.all(|of| of == version),
            "{version}"
        );
        asked.borrow_mut().push(version.to_owned());
        false
    };
    let inputs = StepsInputs {
        from: FROM,
        to: TO,
        pinned: &[],
        recorded: &[],
        releases: &releases,
    };
    assert_eq!(steps(inputs, &is_usable), Ok(owned(&["v1.35.49", TO])));
    let newest_first: Vec<String> = versions.into_iter().rev().take(CHECKED).collect();
    assert_eq!(asked.take(), newest_first);
}

fn parsed(text: &str) -> Version {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).unwrap()
}

/// Compares versions with their builds as Cluster API does (`util/version/version.go`); `None` for builds without an order.
fn compare(one: &Version, other: &Version) -> Option<Ordering> {
    let precedence = one.cmp_precedence(other);
    if precedence != Ordering::Equal {
        return Some(precedence);
    }
    let identifiers = |version: &Version| -> Vec<String> {
        let build = version.build.as_str();
        let parts = build.split('.').filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let (one, other) = (identifiers(one), identifiers(other));
    for (one, other) in one.iter().zip(&other) {
        match (one.parse::<u64>(), other.parse::<u64>()) {
            (Ok(one), Ok(other)) if one != other => return Some(one.cmp(&other)),
            (Ok(_), Err(_)) => return Some(Ordering::Less),
            (Err(_), Ok(_)) => return Some(Ordering::Greater),
            (Err(_), Err(_)) if one != other => return None,
            _ => {}
        }
    }
    Some(one.len().cmp(&other.len()))
}

/// Validates the steps of a control plane as Cluster API does (`DefaultAndValidateUpgradePlans` in
/// `exp/topology/desiredstate/upgrade_plan.go`).
fn validate(from: &str, to: &str, steps: &[String]) -> Result<(), String> {
    let (mut current, target) = (parsed(from), parsed(to));
    if compare(&current, &target) == Some(Ordering::Equal) {
        let is_empty = steps.is_empty();
        return is_empty
            .then_some(())
            .ok_or_else(|| "already at the target".to_owned());
    }
    for step in steps {
        let next = parsed(step);
        if matches!(compare(&next, &current), Some(Ordering::Less | Ordering::Equal)) {
            return Err(format!("{step} is not greater than {current}"));
        }
        if next.minor != current.minor && next.minor != current.minor + 1 {
            return Err(format!("{step} skips a minor version after {current}"));
        }
        current = next;
    }
    let is_last = compare(&current, &target) == Some(Ordering::Equal);
    is_last
        .then_some(())
        .ok_or_else(|| format!("ends with {current}"))
}

#[rstest]
#[case::valid(&[OLDER, TO], true)]
#[case::skipped(&[TO], false)]
#[case::incomplete(&[OLDER], false)]
#[case::descending(&[NEWER, OLDER, TO], false)]
#[case::repeated(&[OLDER, OLDER, TO], false)]
#[case::unordered_builds(&["v1.35.4+a", "v1.35.4+b", TO], true)]
#[case::empty(&[], false)]
fn the_validation_of_cluster_api_refuses_other_steps(#[case] steps: &[&str], #[case] is_valid: bool) {
    assert_eq!(validate(FROM, TO, &owned(steps)).is_ok(), is_valid);
    assert_eq!(validate(TO, TO, &owned(steps)).is_ok(), steps.is_empty());
}

const VERSION: &str = "v?1\\.3[3-8]\\.[0-9](-rc\\.[0-2])?(\\+(a|b|vmware\\.[1-9]))?";

/// Versions, some of which cannot be parsed.
fn versions(count: usize) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof![4 => VERSION, 1 => ".{0,8}"], 0..=count)
}

proptest! {
    /// Its webhook refuses lower targets, and an error of the hook stops the reconcile of the Cluster.
    #[test]
    fn cluster_api_accepts_every_answer(
        one in VERSION,
        other in VERSION,
        known in versions(16),
        pinned in versions(4),
        recorded in versions(1),
        usable in any::<u64>(),
    ) {
        let is_lower = compare(&parsed(&other), &parsed(&one)) == Some(Ordering::Less);
        let (from, to) = if is_lower { (other, one) } else { (one, other) };
        let releases = released(&known);
        let inputs = StepsInputs {
            from: &from, to: &to, pinned: &pinned, recorded: &recorded, releases: &releases,
        };
        match steps(inputs, &|version, _| (usable >> (version.len() % 64)) & 1 == 1) {
            Ok(steps) => {
                prop_assert_eq!(validate(&from, &to, &steps), Ok(()), "{:?}", steps);
            }
            Err(missing) => {
                let minor = missing.minor;
                prop_assert!(parsed(&from).minor < minor && minor < parsed(&to).minor);
                let mut given = known.iter().chain(&pinned).chain(&recorded);
                prop_assert!(given.all(|text| Ordered::of(text).is_none_or(|version| version.minor() != (1, minor))));
            }
        }
    }

    /// Replicas have listed their caches in another order.
    #[test]
    fn the_order_of_releases_and_pins_changes_nothing(
        known in versions(16),
        pinned in versions(6),
        usable in any::<u64>(),
    ) {
        let is_usable = |version: &str, _: &Releases| (usable >> (version.len() % 64)) & 1 == 1;
        let answer = |known: &[String], pinned: &[String]| {
            let releases = released(known);
            let inputs = StepsInputs {
                from: FROM, to: "v1.38.0", pinned, recorded: &[], releases: &releases,
            };
            steps(inputs, &is_usable)
        };
        let reversed = |versions: &[String]| -> Vec<String> { versions.iter().rev().cloned().collect() };
        prop_assert_eq!(answer(&known, &pinned), answer(&reversed(&known), &reversed(&pinned)));
    }
}

/// Returns the name of the release of a version.
fn named(version: &str) -> String {
    format!("{version}---test.1")
}

fn cluster() -> Arc<Cluster> {
    let topology = json!({"classRef": {"name": "class"}, "version": TO});
    object(
        Some("team-a"),
        "one",
        &Value::Null,
        &json!({"spec": {"topology": topology}}),
    )
}

fn class(spec: &Value) -> Arc<ClusterClass> {
    object(Some("team-a"), "class", &Value::Null, &json!({"spec": spec}))
}

/// Returns a Cluster with its class, and releases of two patches of the minor version between, each with its template and Package.
fn given() -> Given {
    let versions = [OLDER, NEWER, TO];
    let package = |version: &str| format!("antrea.example.com.{version}");
    let templates = versions.iter().map(|version| {
        let spec = json!({"cni": {"refName": package(version)}});
        let template = json!({"spec": spec});
        object(Some("system"), &named(version), &Value::Null, &template)
    });
    let packages = versions.iter().map(|version| {
        let spec = json!({"spec": {"refName": "antrea.example.com", "version": version}});
        object(Some("system"), &package(version), &Value::Null, &spec)
    });
    Given {
        clusters: vec![cluster()],
        classes: vec![class(&json!({}))],
        releases: versions
            .iter()
            .map(|version| release(&named(version), version))
            .collect(),
        templates: templates.collect(),
        packages: packages.collect(),
        ..Given::default()
    }
}

fn call() -> PlanCall {
    PlanCall {
        namespace: "team-a".to_owned(),
        name: "one".to_owned(),
        uid: "uid".to_owned(),
        from: FROM.to_owned(),
        to: TO.to_owned(),
        pinned: Vec::new(),
    }
}

fn edit_release(given: &mut Given, version: &str, edit: impl FnOnce(&mut TanzuKubernetesRelease)) {
    let mut releases = given.releases.iter_mut();
    let release = releases.find(|release| release.spec.version == version);
    edit(Arc::make_mut(release.unwrap()));
}

fn label_release(given: &mut Given, version: &str, label: &str) {
    edit_release(given, version, |release| {
        release.labels_mut().insert(label.to_owned(), String::new());
    });
}

/// The Cluster requests releases with label `stable`, which only the older patch has.
fn select_stable(given: &mut Given) {
    label_release(given, OLDER, "stable");
    let cluster = Arc::make_mut(&mut given.clusters[0]);
    let annotations = cluster.annotations_mut();
    annotations.insert(annotation::RESOLVE_TKR.to_owned(), "stable".to_owned());
}

/// The newer patch has two releases.
fn second_release(given: &mut Given) {
    let name = format!("{NEWER}---test.2");
    let mut template = ClusterBootstrapTemplate::clone(&given.templates[1]);
    template.metadata.name = Some(name.clone());
    given.templates.push(Arc::new(template));
    given.releases.push(release(&name, NEWER));
}

/// Machines are made of images, which only the older patch has.
fn require_images(given: &mut Given) {
    given.classes = vec![class(&json!({"variables": [{"name": name::TKR_DATA}]}))];
    edit_release(given, OLDER, |release| {
        release.spec.os_images = serde_json::from_value(json!([{"name": "image"}])).unwrap();
    });
    let spec = json!({
        "kubernetesVersion": OLDER,
        "os": {"type": "linux", "name": "ubuntu", "version": "5", "arch": "amd64"},
        "image": {"type": "ova", "ref": {"name": "image"}},
    });
    given.images = vec![object(None, "image", &Value::Null, &json!({"spec": spec}))];
}

fn bootstrap(uid: &str, to: &str, hop: &str) -> Arc<ClusterBootstrap> {
    let record = UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: uid.to_owned(),
        to: to.to_owned(),
        hop: Some(hop.to_owned()),
        ..UpgradeRecord::default()
    };
    let rest = json!({"spec": {}, "status": {"upgrade": record}});
    object(Some("team-a"), "one", &Value::Null, &rest)
}

fn upgrade(uid: &str, to: &str, hop: &str) -> Arc<ClusterUpgrade> {
    let record = GateRecord {
        schema: GATE_SCHEMA,
        cluster_uid: uid.to_owned(),
        to: to.to_owned(),
        hop: Some(hop.to_owned()),
        ..GateRecord::default()
    };
    let rest = json!({"spec": {}, "status": {"upgrade": record}});
    object(Some("team-a"), "one", &Value::Null, &rest)
}

#[rstest]
#[case::newest(|_: &mut Given| {}, NEWER)]
#[case::deactivated(|given: &mut Given| label_release(given, NEWER, label::DEACTIVATED), OLDER)]
#[case::invalid(|given: &mut Given| label_release(given, NEWER, label::INVALID), OLDER)]
#[case::incompatible(|given: &mut Given| label_release(given, NEWER, label::INCOMPATIBLE), OLDER)]
#[case::legacy(|given: &mut Given| label_release(given, NEWER, label::LEGACY_TKR), OLDER)]
#[case::being_deleted(
    |given: &mut Given| edit_release(given, NEWER, |release| {
        let now = json!("1970-01-01T00:00:00Z");
        release.metadata.deletion_timestamp = serde_json::from_value(now).unwrap();
    }),
    OLDER
)]
#[case::template_missing(
    |given: &mut Given| given.templates.retain(|template| template.name_any() != named(NEWER)),
    OLDER
)]
#[case::package_missing(
    |given: &mut Given| given.packages.retain(|package| package.spec.version != NEWER),
    OLDER
)]
#[case::all_templates_missing(
    |given: &mut Given| {
        given.templates.clear();
        label_release(given, NEWER, label::DEACTIVATED);
    },
    NEWER
)]
#[case::templates_not_listed(
    |given: &mut Given| {
        given.templates.clear();
        given.unlisted = vec![StoredKind::ClusterBootstrapTemplate];
        label_release(given, NEWER, label::DEACTIVATED);
    },
    OLDER
)]
#[case::packages_not_listed(
    |given: &mut Given| {
        given.packages.clear();
        given.unlisted = vec![StoredKind::Package];
        label_release(given, NEWER, label::DEACTIVATED);
    },
    OLDER
)]
#[case::not_selected(select_stable, OLDER)]
#[case::not_selected_by_the_class(
    |given: &mut Given| {
        label_release(given, OLDER, "stable");
        let class = Arc::make_mut(&mut given.classes[0]);
        class.annotations_mut().insert(annotation::RESOLVE_TKR.to_owned(), "stable".to_owned());
    },
    OLDER
)]
#[case::class_missing(
    |given: &mut Given| {
        select_stable(given);
        given.classes.clear();
    },
    NEWER
)]
#[case::another_cluster_of_the_name(
    |given: &mut Given| {
        select_stable(given);
        Arc::make_mut(&mut given.clusters[0]).metadata.uid = Some("other".to_owned());
    },
    NEWER
)]
#[case::image_missing(require_images, OLDER)]
#[case::two_releases_without_a_resolution(second_release, OLDER)]
#[case::two_releases_and_a_resolution(
    |given: &mut Given| {
        second_release(given);
        let class = Arc::make_mut(&mut given.classes[0]);
        class.annotations_mut().insert(annotation::RESOLVE_TKR.to_owned(), String::new());
    },
    NEWER
)]
#[case::two_releases_and_images(
    |given: &mut Given| {
        second_release(given);
        require_images(given);
    },
    OLDER
)]
#[case::recorded_by_packages(|given: &mut Given| given.bootstraps = vec![bootstrap("uid", TO, OLDER)], OLDER)]
#[case::recorded_by_gates(|given: &mut Given| given.upgrades = vec![upgrade("uid", TO, OLDER)], OLDER)]
#[case::recorded_by_both(
    |given: &mut Given| {
        given.bootstraps = vec![bootstrap("uid", TO, OLDER)];
        given.upgrades = vec![upgrade("uid", TO, NEWER)];
    },
    OLDER
)]
#[case::recorded_for_another_target(
    |given: &mut Given| {
        given.bootstraps = vec![bootstrap("uid", "v1.35.9", OLDER)];
        given.upgrades = vec![upgrade("uid", "v1.35.9", OLDER)];
    },
    NEWER
)]
#[case::recorded_for_another_cluster(
    |given: &mut Given| {
        given.bootstraps = vec![bootstrap("other", TO, OLDER)];
        given.upgrades = vec![upgrade("other", TO, OLDER)];
    },
    NEWER
)]
#[case::recorded_and_deactivated(
    |given: &mut Given| {
        given.bootstraps = vec![bootstrap("uid", TO, OLDER)];
        label_release(given, OLDER, label::DEACTIVATED);
    },
    NEWER
)]
#[case::recorded_merged_and_deactivated(
    |given: &mut Given| {
        let mut merged = ClusterBootstrap::clone(&bootstrap("uid", TO, OLDER));
        merged.annotations_mut().insert(annotation::RESOLVED_TKR.to_owned(), named(OLDER));
        given.bootstraps = vec![Arc::new(merged)];
        label_release(given, OLDER, label::DEACTIVATED);
    },
    OLDER
)]
fn a_step_is_usable_by_the_cached_objects(#[case] edit: fn(&mut Given), #[case] expected: &str) {
    let mut given = given();
    edit(&mut given);
    assert_eq!(steps_of(&call(), &given, "system"), Ok(owned(&[expected, TO])));
    let pinned = PlanCall {
        pinned: owned(&["v1.35.1"]),
        ..call()
    };
    assert_eq!(
        steps_of(&pinned, &given, "system"),
        Ok(owned(&["v1.35.1", TO])),
        "a pin wins"
    );
}

#[rstest]
#[case::newest(None, &[], NEWER)]
#[case::usable(None, &[NEWER], OLDER)]
#[case::newest_known(None, &[OLDER, NEWER], NEWER)]
#[case::recorded(Some(bootstrap("uid", TO, OLDER)), &[], OLDER)]
#[case::recorded_and_deactivated(Some(bootstrap("uid", TO, OLDER)), &[OLDER], NEWER)]
#[case::recorded_for_another_target(Some(bootstrap("uid", "v1.35.9", OLDER)), &[], NEWER)]
fn releases_that_were_read_are_planned_like_cached_ones(
    #[case] record: Option<Arc<ClusterBootstrap>>,
    #[case] deactivated: &[&str],
    #[case] expected: &str,
) {
    let mut given = given();
    for version in deactivated {
        label_release(&mut given, version, label::DEACTIVATED);
    }
    let steps = steps_by(&call(), &given.releases(), record.as_deref());
    assert_eq!(steps, Ok(owned(&[expected, TO])));
}

/// Cluster API keeps an answer for ten minutes.
#[test]
fn no_step_is_chosen_before_needed_images_are_listed() {
    let mut given = given();
    require_images(&mut given);
    given.without_images = true;
    assert_eq!(steps_of(&call(), &given, "system"), Err(NoPlan::NotListed));
    let one_minor = PlanCall {
        from: OLDER.to_owned(),
        ..call()
    };
    assert_eq!(steps_of(&one_minor, &given, "system"), Ok(owned(&[TO])));
}

/// Sluice pins the hop, and a user may name another version of it.
#[rstest]
#[case::only_the_hop(&[NEWER], NEWER)]
#[case::another_lower_one(&[OLDER, NEWER], OLDER)]
fn a_pin_of_a_user_wins_over_that_of_the_hop(#[case] pinned: &[&str], #[case] expected: &str) {
    let mut given = given();
    given.bootstraps = vec![bootstrap("uid", TO, NEWER)];
    let call = PlanCall {
        pinned: owned(pinned),
        ..call()
    };
    assert_eq!(steps_of(&call, &given, "system"), Ok(owned(&[expected, TO])));
}

#[rstest]
#[case::all(&[], true)]
#[case::without_packages(&[StoredKind::Package, StoredKind::ClusterBootstrapTemplate, StoredKind::App], true)]
#[case::without_releases(&[StoredKind::TanzuKubernetesRelease], false)]
#[case::without_records(&[StoredKind::ClusterBootstrap], false)]
#[case::without_classes(&[StoredKind::ClusterClass], false)]
fn steps_depend_on_four_kinds(#[case] unlisted: &[StoredKind], #[case] expected: bool) {
    let given = Given {
        unlisted: unlisted.to_vec(),
        ..given()
    };
    assert_eq!(knows_steps(&given), expected);
}

/// The system namespace, and the names of the ExtensionConfigs: any.
const OF_SLUICE: (&str, &[String]) = ("system", &[]);

/// Reference to the handler of this extension in a class.
const OWN: &str = "generate-upgrade-plan.sluice";

fn extended(handler: &str) -> Arc<ClusterClass> {
    let external = json!({"generateUpgradePlanExtension": handler});
    class(&json!({"upgrade": {"external": external}}))
}

fn shown(steps: &[&str]) -> Plan {
    Plan::Given {
        control_plane: owned(steps),
        workers: Vec::new(),
    }
}

fn listed() -> Plan {
    Plan::Listed(owned(&[NEWER, TO]))
}

/// Returns the plan of a Cluster of this class with an annotation about its step, and with steps in its status.
fn plan_by(handler: &str, step: Option<&str>, status: &[&str]) -> ClusterPlan {
    let mut cluster = cluster();
    let cluster = Arc::make_mut(&mut cluster);
    if let Some(step) = step {
        let annotations = cluster.annotations_mut();
        annotations.insert(annotation::UPGRADE_STEP.to_owned(), step.to_owned());
    }
    let steps: Vec<Value> = status.iter().map(|step| json!({"version": step})).collect();
    cluster.status = serde_json::from_value(json!({"controlPlane": {"upgradePlan": steps}})).unwrap();
    ClusterPlan::of(cluster, Some(&extended(handler)), Some(FROM), &given(), OF_SLUICE)
}

#[rstest]
#[case::since_1_14_not_planned_yet(None, &[], shown(&[]))]
#[case::since_1_14_of_an_earlier_target(None, &[FROM], shown(&[FROM]))]
#[case::since_1_14_planned(None, &[OLDER, TO], shown(&[OLDER, TO]))]
#[case::since_1_14_under_way(Some(FROM), &[OLDER, TO], shown(&[OLDER, TO]))]
#[case::before_1_14(Some(""), &[], listed())]
#[case::before_1_14_under_way(Some(FROM), &[], listed())]
fn steps_are_those_of_cluster_api_if_it_shows_them(
    #[case] step: Option<&str>,
    #[case] status: &[&str],
    #[case] expected: Plan,
) {
    let found = plan_by(OWN, step, status);
    // They are needed only where none are shown.
    let own = (!found.plan.leads_to(TO) || expected == listed()).then(|| Ok(owned(&[NEWER, TO])));
    assert_eq!((found.plan, found.own_steps), (expected, own));
}

/// Cluster API 1.12.0 to 1.12.3 removes the annotation between upgrades.
#[rstest]
#[case::observed(Some(7), listed())]
#[case::not_observed(Some(6), shown(&[]))]
#[case::unknown(None, shown(&[]))]
fn steps_that_a_reconcile_has_not_shown_are_not_shown_later(
    #[case] observed: Option<i64>,
    #[case] expected: Plan,
) {
    let mut cluster = Cluster::clone(&cluster());
    cluster.metadata.generation = Some(7);
    let condition = json!({"type": "TopologyReconciled", "status": "False", "observedGeneration": observed});
    cluster.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    let found = ClusterPlan::of(&cluster, Some(&extended(OWN)), Some(FROM), &given(), OF_SLUICE);
    assert_eq!(found.plan, expected);
}

#[rstest]
#[case::of_sluice(&["sluice"], true)]
#[case::one_of_several(&["other", "sluice"], true)]
#[case::of_another_extension(&["other"], false)]
fn the_handler_is_that_of_an_extension_config_of_sluice(#[case] configs: &[&str], #[case] expected: bool) {
    assert_eq!(is_planned_by_sluice(&extended(OWN), &owned(configs)), expected);
}

#[rstest]
#[case::other_handler("plan.sluice")]
#[case::longer_name("generate-upgrade-plan-audit.sluice")]
#[case::without_extension("generate-upgrade-plan")]
#[case::empty("")]
fn steps_of_another_handler_are_not_known(#[case] handler: &str) {
    let found = plan_by(handler, Some(""), &[]);
    assert_eq!((found.plan, found.own_steps), (shown(&[]), None));
}

#[test]
fn without_a_control_plane_or_a_release_no_step_is_known() {
    let (mut cluster, class) = (cluster(), extended(OWN));
    let annotations = Arc::make_mut(&mut cluster).annotations_mut();
    annotations.insert(annotation::UPGRADE_STEP.to_owned(), String::new());
    let of = |control_plane: Option<&str>, given: &Given| {
        ClusterPlan::of(&cluster, Some(&class), control_plane, given, OF_SLUICE)
    };
    let creating = of(None, &given());
    assert_eq!((creating.plan, creating.own_steps), (shown(&[]), None));
    let missing = of(Some(FROM), &Given::default());
    assert_eq!(missing.plan, shown(&[]));
    assert!(
        missing.own_steps.as_ref().is_some_and(Result::is_err),
        "{missing:?}"
    );
}

/// Admission plans a Cluster before it is stored.
#[test]
fn releases_are_those_that_the_given_cluster_requests() {
    let mut stored = given();
    let mut written = given();
    select_stable(&mut written);
    label_release(&mut stored, OLDER, "stable");
    let class = extended(OWN);
    let found = ClusterPlan::of(&written.clusters[0], Some(&class), Some(FROM), &stored, OF_SLUICE);
    assert_eq!(found.own_steps, Some(Ok(owned(&[OLDER, TO]))));
}

/// Cluster API before 1.14 does not show its answer, and keeps it for ten minutes. Meanwhile a release may be published.
#[rstest]
#[case::of_an_older_answer(OLDER, Some(HoldReason::Call(CallReason::VersionNotPlanned)))]
#[case::of_the_next_answer(NEWER, None)]
fn a_step_that_is_not_the_recorded_hop_is_held(
    #[case] first_step: &str,
    #[case] expected: Option<HoldReason>,
) {
    let ClusterPlan { plan, .. } = plan_by(OWN, Some(""), &[]);
    let settled = ControlPlaneFacts {
        spec_version: Some(FROM.to_owned()),
        status_version: Some(FROM.to_owned()),
    };
    let hop = progress(Some(&settled), &[], TO, &plan, None).hop;
    let gate = Gate {
        hook: Hook::BeforeClusterUpgrade,
        version: hop.clone(),
        open: true,
        reason: String::new(),
        message: String::new(),
        overridden_by: None,
    };
    let record = UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        observed_cluster_generation: 1,
        observed_bootstrap_generation: 1,
        label: named(TO),
        to: TO.to_owned(),
        hop: Some(hop),
        gates: vec![gate],
        ..UpgradeRecord::default()
    };
    let label = named(TO);
    let call = HookCall {
        hook: Hook::BeforeClusterUpgrade,
        namespace: "team-a",
        name: "one",
        uid: "uid",
        generation: 1,
        label: Some(&label),
        labels: None,
        version: TO,
        first_step: Some(first_step),
        deleted_at: None,
        now: None,
        clock: None,
    };
    let cached = CachedCluster {
        record: Some(&record),
        bootstrap_generation: Some(1),
        ..CachedCluster::default()
    };
    let knowledge = Knowledge::synced(call.label, cached);
    let reason = match decide(&call, &knowledge, &RetryPolicy::with_held(1)) {
        Decision::Release => None,
        Decision::Hold { reason, .. } => Some(reason),
    };
    assert_eq!(reason, expected);
}
