//! An upgrade whose chain of steps cannot end is held before its first write, with the reason that its plan shows.

use std::{collections::HashSet, sync::Arc};

use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::json;
use sluice_crds::{
    labels::{annotation, label},
    run::{ClusterBootstrapStatus, SCHEMA, UpgradeRecord},
};

use super::super::{
    Read,
    validate::{Validated, next_hop, validate},
};
use crate::{
    reasons::{GateReason, Hold},
    upgrade_plan::{
        Effect,
        tests::world::{
            ANTREA, FROM, KAPP, METRICS, OTHER_RELEASE, RELEASES, TO, VERSIONS, World, blocking, no_release,
            typed,
        },
    },
};

type Edit = fn(&mut World);

/// Package of the first step, and of no other.
const CNI: &str = "antrea.example.com.1.9.0";
/// Package of the management cluster.
const REQUIRED: &str = "tkg-clusterclass.example.com";

fn validated(world: &World) -> Validated {
    let (validated, _) = world.evaluate(validate);
    validated.unwrap()
}

fn held(world: &World) -> Option<GateReason> {
    validated(world).problem.map(|hold| hold.reason)
}

#[rstest]
#[case::next_release_missing(|world: &mut World| world.remove_release(2), 2, GateReason::NoTKRForHop)]
#[case::later_release_missing(|world: &mut World| world.remove_release(3), 3, GateReason::NoTKRForHop)]
#[case::labelled_release_missing(|world: &mut World| world.remove_release(TO), 2, GateReason::TKRNotFound)]
#[case::several_releases(
    |world: &mut World| world.add_release("v1.36.3---test.2", 3),
    3,
    GateReason::NoTKRForHop
)]
#[case::labelled_release_legacy(
    |world: &mut World| world.label_release(RELEASES[TO], label::LEGACY_TKR),
    2,
    GateReason::TKRLegacy
)]
#[case::later_release_legacy(
    |world: &mut World| world.label_release(RELEASES[3], label::LEGACY_TKR),
    3,
    GateReason::NoTKRForHop
)]
#[case::next_release_incompatible(
    |world: &mut World| world.label_release(RELEASES[2], label::INCOMPATIBLE),
    2,
    GateReason::TKRNotUsable
)]
#[case::later_release_deactivated(
    |world: &mut World| world.label_release(RELEASES[3], label::DEACTIVATED),
    3,
    GateReason::TKRNotUsable
)]
#[case::labelled_release_invalid(
    |world: &mut World| world.label_release(RELEASES[TO], label::INVALID),
    TO,
    GateReason::TKRNotUsable
)]
#[case::label_of_another_version(
    |world: &mut World| RELEASES[3].clone_into(&mut world.facts.label),
    TO,
    GateReason::NoTKRForHop
)]
#[case::next_release_deactivated_without_template(
    |world: &mut World| {
        world.remove_template(2);
        world.label_release(RELEASES[2], label::DEACTIVATED);
    },
    2,
    GateReason::TKRNotUsable
)]
#[case::next_template_missing(|world: &mut World| world.remove_template(2), 2, GateReason::TemplateNotFound)]
#[case::later_template_missing(|world: &mut World| world.remove_template(TO), TO, GateReason::TemplateNotFound)]
#[case::later_template_missing_with_entries(
    |world: &mut World| {
        world.require_entries();
        world.remove_template(TO);
    },
    TO,
    GateReason::TemplateNotFound
)]
#[case::next_package_missing(|world: &mut World| world.remove_package(CNI), 2, GateReason::PackageNotFound)]
#[case::later_package_missing(
    |world: &mut World| world.remove_package(&format!("{METRICS}.1.1.0")),
    TO,
    GateReason::PackageNotFound
)]
#[case::management_package(
    |world: &mut World| world.require(2, &format!("{REQUIRED}>=0.31.0")),
    2,
    GateReason::ManagementPackageNotReady
)]
#[case::later_image_missing(
    |world: &mut World| {
        world.require_entries();
        world.remove_image(3);
    },
    3,
    GateReason::MachinesNotResolved
)]
#[case::version_excluded(
    |world: &mut World| world.constrain(&format!("{ANTREA}.2.0.0"), "<1.36.0"),
    3,
    GateReason::PackageExcludesKubernetes
)]
#[case::version_excluded_with_entries(
    |world: &mut World| {
        world.require_entries();
        world.constrain(&format!("{ANTREA}.2.0.0"), "<1.36.0");
    },
    3,
    GateReason::PackageExcludesKubernetes
)]
#[case::version_before_excluded(
    |world: &mut World| world.constrain(&format!("{ANTREA}.2.0.0"), ">=1.36.0"),
    3,
    GateReason::PackageExcludesKubernetes
)]
#[case::added_package_excluded_later(
    |world: &mut World| world.constrain(&format!("{METRICS}.1.0.0"), "<1.36.0"),
    3,
    GateReason::PackageExcludesKubernetes
)]
#[case::every_version_excluded(
    |world: &mut World| world.constrain(CNI, ">=1.35.0 <1.35.0"),
    2,
    GateReason::PackageExcludesKubernetes
)]
#[case::range_not_readable(
    |world: &mut World| world.constrain(&format!("{ANTREA}.2.1.0"), "up to 1.36"),
    TO,
    GateReason::PackageExcludesKubernetes
)]
fn a_step_that_cannot_end_holds_the_first(
    #[case] edit: Edit,
    #[case] hop: usize,
    #[case] reason: GateReason,
) {
    let mut world = World::new();
    edit(&mut world);
    let plan = world.plan();
    assert_eq!(
        blocking(&plan).first(),
        Some(&(VERSIONS[hop], reason.as_str())),
        "{:?}",
        plan.findings
    );
    let found = validated(&world);
    assert_eq!(found.problem.as_ref().map(|hold| hold.reason), Some(reason));
    assert_eq!(
        (found.change.as_ref(), found.entry.is_some()),
        (None, false),
        "nothing is written"
    );
}

#[rstest]
fn a_chain_that_can_end_holds_nothing(#[values(false, true)] has_entries: bool) {
    let mut world = World::new();
    if has_entries {
        world.require_entries();
    }
    assert!(blocking(&world.plan()).is_empty());
    let found = validated(&world);
    // The entry is the first write.
    let expected = has_entries.then_some(GateReason::EntryNotWritten);
    assert_eq!(found.problem.map(|hold| hold.reason), expected);
    assert_eq!(
        (found.change.is_some(), found.entry.is_some()),
        (!has_entries, has_entries)
    );
}

/// No release is usable, and no Package permits any version.
fn break_the_catalogue(world: &mut World) {
    for release in RELEASES {
        world.label_release(release, label::DEACTIVATED);
    }
    let names: Vec<String> = world.facts.catalogue.keys().cloned().collect();
    for name in names {
        world.constrain(&name, "<1.0.0");
    }
}

#[rstest]
#[case::settled(|world: &mut World| world.set_target(FROM))]
#[case::creating(|world: &mut World| world.facts.control_plane = None)]
#[case::taken(|world: &mut World| {
    world.set_bootstrap(2);
    world.set_control_plane(2, FROM);
})]
#[case::downgrade(|world: &mut World| world.set_target(0))]
#[case::cancelled(|world: &mut World| {
    world.set_target(FROM);
    world.set_bootstrap(2);
    world.edit_bootstrap(|bootstrap| {
        let record = UpgradeRecord {
            schema: SCHEMA,
            cluster_uid: "uid".to_owned(),
            hop: Some(VERSIONS[2].to_owned()),
            ..UpgradeRecord::default()
        };
        bootstrap.status = Some(ClusterBootstrapStatus {
            upgrade: Some(record),
            ..ClusterBootstrapStatus::default()
        });
    });
})]
fn a_cluster_without_a_step_ahead_is_validated_as_before(#[case] edit: Edit) {
    let mut world = World::new();
    edit(&mut world);
    break_the_catalogue(&mut world);
    let (found, reads) = world.evaluate(validate);
    let (next, needed) = world.evaluate(next_hop);
    let (found, next) = (found.unwrap(), next.unwrap());
    assert_eq!(found.problem, None);
    assert_eq!(found.change, next.change);
    let [reads, needed] = [reads, needed].map(HashSet::<Read>::from_iter);
    assert_eq!(reads, needed);
}

/// Labels hold nothing once the packages of a release are merged. Ranges hold until the control plane has the version.
#[rstest]
#[case::release_deactivated(|world: &mut World| world.label_release(RELEASES[2], label::DEACTIVATED), false)]
#[case::later_release_deactivated(|world: &mut World| world.label_release(RELEASES[3], label::DEACTIVATED), false)]
#[case::package_narrowed(|world: &mut World| world.constrain(CNI, "<1.35.0"), true)]
#[case::kapp_controller_narrowed(|world: &mut World| world.constrain(&format!("{KAPP}.0.52.0"), "<1.35.0"), true)]
#[case::later_package_narrowed(|world: &mut World| world.constrain(&format!("{ANTREA}.2.0.0"), "<1.36.0"), false)]
#[case::package_added(
    |world: &mut World| {
        world.constrain("extra.example.com.1.0.0", "<1.35.0");
        let extra = typed(json!({"refName": "extra.example.com.1.0.0"}));
        world.edit_bootstrap(|bootstrap| bootstrap.spec.additional_packages.push(extra));
    },
    true
)]
fn merged_packages_hold_only_by_their_ranges(#[case] edit: Edit, #[case] is_held: bool) {
    let mut world = World::new();
    world.set_bootstrap(2);
    edit(&mut world);
    let excluded = GateReason::PackageExcludesKubernetes;
    assert_eq!(held(&world), is_held.then_some(excluded));
    let is_blocked = blocking(&world.plan()).contains(&(VERSIONS[2], excluded.as_str()));
    assert_eq!(is_blocked, is_held);
    world.set_control_plane(2, FROM);
    assert_eq!(held(&world), None, "the control plane takes the version");
}

/// Another client installs kapp-controller of a management cluster.
#[test]
fn kapp_controller_of_another_client_holds_nothing() {
    let mut world = World::new();
    for version in ["0.52.0", "0.53.1"] {
        world.constrain(&format!("{KAPP}.{version}"), "<1.0.0");
    }
    assert_eq!(held(&world), Some(GateReason::PackageExcludesKubernetes));
    let cluster = Arc::make_mut(&mut world.facts.cluster);
    let labels = cluster.labels_mut();
    labels.insert(label::MANAGEMENT_CLUSTER.to_owned(), String::new());
    assert_eq!(held(&world), None);
    assert!(blocking(&world.plan()).is_empty());
}

#[test]
fn packages_of_one_name_are_not_merged() {
    let mut world = World::new();
    world.edit_bootstrap(|bootstrap| {
        let cni = bootstrap.spec.cni.clone();
        bootstrap.spec.additional_packages.extend(cni);
    });
    assert_eq!(held(&world), Some(GateReason::PackageDuplicated));
}

/// The leader labels such a release as invalid, and an apply may contain the Package.
#[test]
fn a_missing_package_is_named_and_not_the_label_that_it_causes() {
    let mut world = World::new();
    world.remove_package(&format!("{ANTREA}.2.0.0"));
    world.label_release(RELEASES[3], label::INVALID);
    let not_found = GateReason::PackageNotFound;
    assert_eq!(blocking(&world.plan()), [(VERSIONS[3], not_found.as_str())]);
    assert_eq!(held(&world), Some(not_found));
    world.label_release(RELEASES[3], label::DEACTIVATED);
    assert_eq!(held(&world), Some(GateReason::TKRNotUsable));
}

/// It has one version at a time, so two steps may need different ones.
#[test]
fn a_management_package_holds_only_its_own_step() {
    let mut world = World::new();
    world.require(2, &format!("{REQUIRED}=1.0.0"));
    world.require(3, &format!("{REQUIRED}=2.0.0"));
    // As long as a release waits for the package, it is incompatible.
    world.label_release(RELEASES[3], label::INCOMPATIBLE);
    world.prove(REQUIRED, "1.0.0");
    let not_ready = GateReason::ManagementPackageNotReady;
    let plan = world.plan();
    let found: Vec<(Option<&str>, &str, Effect)> = plan
        .findings
        .iter()
        .map(|found| (found.hop.as_deref(), found.reason.as_str(), found.effect))
        .collect();
    assert_eq!(found, [(Some(VERSIONS[3]), not_ready.as_str(), Effect::Warns)]);
    let first = validated(&world);
    assert_eq!(first.problem, None);
    assert!(first.change.is_some(), "the packages are merged");

    world.set_bootstrap(2);
    world.set_control_plane(2, 2);
    assert_eq!(blocking(&world.plan()), [(VERSIONS[3], not_ready.as_str())]);
    assert_eq!(held(&world), Some(not_ready));
    world.prove(REQUIRED, "2.0.0");
    assert_eq!(
        held(&world),
        Some(GateReason::TKRNotUsable),
        "the label lags behind"
    );
    world.edit_release(RELEASES[3], |release| {
        release
            .metadata
            .labels
            .get_or_insert_default()
            .remove(label::INCOMPATIBLE);
    });
    assert_eq!(held(&world), None);
}

#[rstest]
#[case::usable(|_: &mut World| {}, None)]
#[case::deactivated(
    |world: &mut World| world.label_release(OTHER_RELEASE, label::DEACTIVATED),
    Some(GateReason::TKRNotUsable)
)]
#[case::excluded(
    |world: &mut World| world.constrain(CNI, ">=1.35.0"),
    Some(GateReason::PackageExcludesKubernetes)
)]
fn another_release_of_the_version_is_checked(#[case] edit: Edit, #[case] reason: Option<GateReason>) {
    let mut world = World::new();
    world.swap();
    edit(&mut world);
    let plan = world.plan();
    let expected = reason.map(|reason| (VERSIONS[FROM], reason.as_str()));
    assert_eq!(blocking(&plan).first().copied(), expected, "{:?}", plan.findings);
    let found = validated(&world);
    assert_eq!(found.problem.as_ref().map(|hold| hold.reason), reason);
    assert_eq!(found.change.is_some(), reason.is_none());
}

/// Its packages are of some release, which nothing states.
#[test]
fn a_cluster_that_is_taken_over_is_not_checked() {
    let mut world = World::new();
    world.set_target(FROM);
    world.edit_bootstrap(|bootstrap| bootstrap.metadata.annotations = None);
    break_the_catalogue(&mut world);
    let found = validated(&world);
    assert_eq!(found.problem, None);
    let written = found.change.map(|draft| draft.spec);
    let current = world
        .facts
        .bootstrap
        .as_ref()
        .map(|bootstrap| bootstrap.spec.clone());
    assert_eq!(written, current, "only the release is stated");
    assert!(blocking(&world.plan()).is_empty());
}

/// The packages of the other release stay, and the machines are of the one that the label names again.
#[test]
fn a_label_that_moves_back_holds_nothing() {
    let mut world = World::new();
    world.swap();
    world.set_machines(RELEASES[FROM]);
    world.set_bootstrap(2);
    world.edit_bootstrap(|bootstrap| {
        let stated = (annotation::RESOLVED_TKR.to_owned(), OTHER_RELEASE.to_owned());
        bootstrap.annotations_mut().extend([stated]);
    });
    world.set_target(FROM);
    break_the_catalogue(&mut world);
    let found = validated(&world);
    assert_eq!((found.problem, found.change), (None, None));
    assert!(blocking(&world.plan()).is_empty());
}

#[rstest]
#[case::package_downgraded(|world: &mut World| world.add_release(RELEASES[2], 0), "PackageDowngraded")]
#[case::version_check_disabled(
    |world: &mut World| {
        let cluster = Arc::make_mut(&mut world.facts.cluster);
        let disabled = (annotation::DISABLE_VERSION_CHECK.to_owned(), String::new());
        cluster.annotations_mut().extend([disabled]);
    },
    "VersionCheckDisabled"
)]
fn a_warning_holds_nothing(#[case] edit: Edit, #[case] reason: &str) {
    let mut world = World::new();
    edit(&mut world);
    let plan = world.plan();
    let is_found = plan.findings.iter().any(|found| found.reason.as_str() == reason);
    assert!(is_found && !plan.is_blocked(), "{:?}", plan.findings);
    let found = validated(&world);
    assert_eq!(found.problem, None);
    assert!(found.change.is_some(), "the packages are merged");
}

/// kapp-controller resyncs a package on both versions, unless the package is installed after the control plane.
#[rstest]
#[case::hop("BeforeControlPlane", "<1.35.0", true)]
#[case::hop_of_a_later_phase("AfterControlPlane", "<1.35.0", true)]
#[case::version_before("BeforeControlPlane", ">=1.35.0", true)]
#[case::version_before_of_a_later_phase("AfterControlPlane", ">=1.35.0", false)]
#[case::neither("BeforeControlPlane", ">=1.34.0 <1.36.0", false)]
#[case::either("BeforeControlPlane", "<1.34.0 || >=1.34.4 <1.35.0 || >=1.35.4", false)]
fn a_package_permits_the_versions_of_its_phase(
    #[case] phase: &str,
    #[case] constraints: &str,
    #[case] is_held: bool,
) {
    let mut world = World::new();
    world.set_phase("antrea", phase);
    world.constrain(CNI, constraints);
    let expected = is_held.then_some(GateReason::PackageExcludesKubernetes);
    assert_eq!(held(&world), expected);
    assert_eq!(!blocking(&world.plan()).is_empty(), is_held);
}

#[rstest]
#[case::workload("antrea", ANTREA, "1.9.0")]
#[case::management("kapp-controller", KAPP, "0.52.0")]
fn an_install_may_ignore_the_selection(#[case] package: &str, #[case] ref_name: &str, #[case] version: &str) {
    let given = || {
        let mut world = World::new();
        world.constrain(&format!("{ref_name}.{version}"), "<1.35.0");
        world
    };
    let excluded = Some(GateReason::PackageExcludesKubernetes);
    assert_eq!(held(&given()), excluded, "no response");
    let mut world = given();
    world.install("metrics", &json!({}));
    assert_eq!(held(&world), excluded, "no PackageInstall");
    let mut world = given();
    world.install(package, &json!({"packaging.carvel.dev/downgradable": ""}));
    assert_eq!(held(&world), excluded, "another annotation");
    let mut world = given();
    world.install(
        package,
        &json!({"packaging.carvel.dev/ignore-kubernetes-version-selection": ""}),
    );
    assert_eq!(held(&world), None);
}

#[test]
fn a_wider_package_releases_the_upgrade() {
    let mut world = World::new();
    world.constrain(CNI, "<1.35.0");
    assert_eq!(held(&world), Some(GateReason::PackageExcludesKubernetes));
    world.constrain(CNI, "<1.36.0");
    let found = validated(&world);
    assert_eq!(found.problem, None);
    assert!(found.change.is_some(), "the packages are merged");
}

/// Nothing but cached templates is read for the chain.
#[test]
fn a_chain_is_checked_from_the_cache() {
    let (found, reads) = World::new().evaluate(validate);
    assert!(found.is_ok_and(|found| found.problem.is_none()));
    let reads: HashSet<String> = reads.iter().map(|read| format!("{read:?}")).collect();
    let templates = RELEASES[FROM..].iter().map(|name| format!("Template({name:?})"));
    assert_eq!(reads, templates.collect());
}

/// Hook GenerateUpgradePlan returns the same error, so Cluster API takes no step either.
#[test]
fn a_minor_version_without_a_release_holds_with_the_error_of_the_hook() {
    let mut world = World::new();
    world.plan_steps(Ok(&VERSIONS[FROM + 1..]));
    assert_eq!(held(&world), Some(GateReason::UpgradePlanUnknown));
    world.plan_steps(Err(no_release()));
    let found = validated(&world);
    assert!(
        found.change.is_none() && found.entry.is_none(),
        "nothing is written"
    );
    let hold = found.problem.unwrap();
    assert_eq!(hold, Hold::from(&no_release()));
    assert_eq!(hold.reason, GateReason::NoTKRForHop);
}
