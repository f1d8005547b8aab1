//! An upgrade whose chain of steps cannot end is held before its first write, with the reason that its plan shows.

use std::collections::HashSet;

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
    reasons::GateReason,
    upgrade_plan::tests::world::{ANTREA, FROM, KAPP, METRICS, RELEASES, TO, VERSIONS, World, blocking},
};

type Edit = fn(&mut World);

/// Package of the first step, and of no other.
const CNI: &str = "antrea.example.com.1.9.0";

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
    |world: &mut World| world.label_release(TO, label::LEGACY_TKR),
    2,
    GateReason::TKRLegacy
)]
#[case::later_release_legacy(
    |world: &mut World| world.label_release(3, label::LEGACY_TKR),
    3,
    GateReason::NoTKRForHop
)]
#[case::next_release_incompatible(
    |world: &mut World| world.label_release(2, label::INCOMPATIBLE),
    2,
    GateReason::TKRNotUsable
)]
#[case::later_release_deactivated(
    |world: &mut World| world.label_release(3, label::DEACTIVATED),
    3,
    GateReason::TKRNotUsable
)]
#[case::labelled_release_invalid(
    |world: &mut World| world.label_release(TO, label::INVALID),
    TO,
    GateReason::TKRNotUsable
)]
#[case::label_of_another_version(
    |world: &mut World| RELEASES[3].clone_into(&mut world.facts.label),
    TO,
    GateReason::NoTKRForHop
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
    |world: &mut World| world.edit_release(TO, |release| {
        let requires = "tkg-clusterclass.example.com>=0.31.0".to_owned();
        release.annotations_mut().insert(annotation::REQUIRES.to_owned(), requires);
    }),
    TO,
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
    for release in 0..RELEASES.len() {
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
#[case::merged(|world: &mut World| world.set_bootstrap(2))]
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
