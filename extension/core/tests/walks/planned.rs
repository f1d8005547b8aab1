//! Upgrades that do what their plans say.

use std::cell::Cell;

use proptest::prelude::*;
use rstest::rstest;
use sluice_core::upgrade_plan::Effect;

use crate::{
    defect::Defect,
    objects::{PlannedBy, RANGES, of_package},
    planted::assert_is_found,
    random::{WALKS, number, planned, random},
    servers::{Place, place_of},
    users::Edit,
    walk::{
        Step::{Reconcile, Round, User, Watch},
        Walk,
    },
};

/// Index of the range without the second version.
const WITHOUT_SECOND: usize = 0;
/// Index of the range without the third version.
const WITHOUT_THIRD: usize = 2;

/// Edits of the catalogue, each of which may keep a step from ending.
fn gaps() -> impl Strategy<Value = Edit> {
    let package = || 0..3_usize;
    let version = || 1..3_usize;
    prop_oneof![
        1 => version().prop_map(Edit::NoRelease),
        1 => Just(Edit::LaterRelease),
        1 => version().prop_map(Edit::NoTemplate),
        1 => (package(), version()).prop_map(|(which, version)| Edit::NoPackage(which, version)),
        1 => version().prop_map(|version| Edit::Deactivate(version, true)),
        6 => (package(), version(), 0..RANGES.len()).prop_map(|(which, version, range)| Edit::Constrain(which, version, range)),
        2 => (1..3_usize).prop_map(|which| Edit::Policy(which, "phase", "AfterControlPlane")),
    ]
}

#[test]
fn an_upgrade_does_what_its_plan_says() {
    let [held, ready, warned] = [Cell::new(0_u32), Cell::new(0_u32), Cell::new(0_u32)];
    let gaps = prop::collection::vec(gaps(), 0..4);
    let fails = prop::option::weighted(0.5, 0..3_usize);
    let walks = number("WALKS", WALKS).div_ceil(4);
    let values = (planned(), gaps, fails, 1..3_usize);
    random(walks, &values, |(planned, gaps, fails, to)| {
        // Cluster API refuses to skip a minor version.
        let to = if planned == PlannedBy::Nobody { 1 } else { to };
        let mut walk = Walk::new();
        walk.step(User(Edit::Steps(planned)));
        walk.create(&gaps);
        if let Some(package) = fails {
            walk.fail(package);
        }
        walk.set_target(to);
        let plan = walk.plan(None);
        let is_held = walk.assert_planned();
        let warns = plan
            .findings
            .iter()
            .any(|finding| finding.effect == Effect::Warns);
        let count = match (is_held, warns) {
            (true, _) => &held,
            (false, true) => &warned,
            (false, false) => &ready,
        };
        count.set(count.get() + 1);
        if is_held {
            walk.finish();
        }
    });
    let counts = [held, ready, warned].map(Cell::into_inner);
    assert!(
        !counts.contains(&0),
        "held, completed, and completed with warnings: {counts:?}"
    );
}

/// The record, or else a maker of plans or of verdicts, does not observe what a check depends on.
#[rstest]
#[case::release(Defect::AbsenceUnseen, Edit::NoRelease(2), "TKRNotFound")]
#[case::template(Defect::AbsenceUnseen, Edit::NoTemplate(2), "TemplateNotFound")]
#[case::package(Defect::AbsenceUnseen, Edit::NoPackage(1, 2), "PackageNotFound")]
#[case::deactivated(Defect::DeactivationUnseen, Edit::Deactivate(2, true), "TKRNotUsable")]
#[case::selection(
    Defect::SelectionUnseen,
    Edit::Constrain(1, 2, WITHOUT_THIRD),
    "PackageExcludesKubernetes"
)]
fn a_removed_check_is_found_by_name(#[case] defect: Defect, #[case] edit: Edit, #[case] reason: &str) {
    let run = |of_record: Option<Defect>, of_others: [Option<Defect>; 2]| {
        let mut walk = Walk::new();
        walk.plant(of_record);
        walk.bump(&[edit], 2);
        walk.assert_planned_by(of_others);
        walk
    };
    let planted = Some(defect);
    assert_is_found(|| run(planted, [None, None]), &format!("record: {reason} "));
    assert_is_found(|| run(None, [planted, None]), &format!("plan: {reason} "));
    assert_is_found(|| run(None, [None, planted]), &format!("admission: {reason} "));
    run(None, [None, None]).finish();
}

/// The target is admitted, and the catalogue changes before the packages are merged.
#[rstest]
#[case::deactivated(Edit::Deactivate(2, true), "TKRNotUsable")]
#[case::excluded(Edit::Constrain(2, 1, WITHOUT_SECOND), "PackageExcludesKubernetes")]
#[case::removed(Edit::NoTemplate(2), "TemplateNotFound")]
fn a_verdict_of_admission_is_no_evidence(#[case] edit: Edit, #[case] reason: &str) {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::new();
        walk.plant(defect);
        walk.bump(&[], 2);
        assert!(!walk.plan(None).is_blocked(), "the target is admitted");
        walk.take(&[Watch(0), User(edit), Watch(0)]);
        walk.assert_planned();
        walk
    };
    assert_is_found(|| run(Some(Defect::VerdictTaken)), &format!("record: {reason} "));
    run(None).finish();
}

/// A release that may not be used is named before the objects that it lacks.
#[rstest]
#[case::template(Edit::NoTemplate(1))]
#[case::package(Edit::NoPackage(1, 1))]
fn a_deactivated_release_is_named_first(#[case] lacks: Edit) {
    let mut walk = Walk::new();
    walk.bump(&[Edit::Deactivate(1, true), lacks], 1);
    walk.assert_planned();
    walk.finish();
}

#[test]
fn a_release_that_is_deactivated_after_the_merge_strands_no_upgrade() {
    let mut walk = Walk::new();
    walk.bump(&[], 1);
    walk.take(&[Watch(0), Reconcile(0), User(Edit::Deactivate(1, true))]);
    walk.complete(1);
}

/// kapp-controller does not install a package that is merged, or that a user chooses then, on a version that its Package excludes.
#[rstest]
#[case::kapp_controller(&[Edit::Constrain(0, 1, WITHOUT_SECOND)])]
#[case::cni(&[Edit::Constrain(1, 1, WITHOUT_SECOND)])]
#[case::additional(&[Edit::Constrain(2, 1, WITHOUT_SECOND)])]
#[case::chosen(&[Edit::Constrain(2, 3, WITHOUT_SECOND), Edit::Choose(2, 3)])]
fn a_package_that_is_narrowed_after_the_merge_holds(#[case] edits: &[Edit]) {
    let mut walk = Walk::new();
    walk.bump(&[], 1);
    walk.take(&[Watch(0), Reconcile(0)]);
    for edit in edits {
        walk.step(User(*edit));
    }
    walk.assert_held(1, "PackageExcludesKubernetes");
    walk.finish();
}

/// Its packages are those of the release already.
#[test]
fn a_cancelled_upgrade_is_checked_when_it_is_tried_again() {
    let mut walk = Walk::new();
    walk.bump(&[], 1);
    walk.take(&[Watch(0), Reconcile(0), User(Edit::Target(0))]);
    walk.take(&[Round; 6]);
    walk.step(User(Edit::Constrain(1, 1, WITHOUT_SECOND)));
    walk.take(&[Round; 2]);
    walk.set_target(1);
    walk.assert_held(1, "PackageExcludesKubernetes");
    walk.finish();
}

/// No user requests the release, and its packages stay.
#[rstest]
#[case::without_a_statement(&[Edit::NoMark, Edit::NoStatus])]
#[case::of_the_addons_manager(&[Edit::OfAddonsManager])]
fn a_cluster_of_a_deactivated_release_is_taken_over(#[case] edits: &[Edit]) {
    let mut walk = Walk::new();
    walk.create(&[Edit::Deactivate(0, true)]);
    for edit in edits {
        walk.step(User(*edit));
    }
    walk.complete(0);
}

/// Sluice does not install it.
#[test]
fn kapp_controller_of_another_client_excludes_nothing() {
    let mut walk = Walk::new();
    walk.take(&[User(Edit::OfManagement), User(Edit::ManagementLabel(true))]);
    walk.bump(&[Edit::Constrain(0, 1, WITHOUT_SECOND)], 1);
    assert!(!walk.assert_planned(), "it completes");
}

#[test]
fn a_failing_package_only_warns() {
    let mut walk = Walk::new();
    walk.create(&[]);
    walk.fail(1);
    walk.set_target(1);
    let plan = walk.plan(None);
    let mut reasons = plan.findings.iter().map(|finding| finding.reason.as_str());
    assert!(reasons.any(|reason| reason == "PackageFailing"), "{plan:?}");
    assert!(!walk.assert_planned(), "it completes");
}

/// kapp-controller installs the package, whatever its Package permits. A plan from caches does not know, and names the PackageInstall.
#[rstest]
fn an_install_that_ignores_its_selection_releases_the_upgrade(#[values(0, 1, 2)] package: usize) {
    let mut walk = Walk::new();
    walk.bump(&[Edit::Constrain(package, 1, WITHOUT_SECOND)], 1);
    assert!(walk.assert_planned(), "it is held");
    walk.step(User(Edit::IgnoreSelection(package)));
    let plan = walk.plan(None);
    let excluded = plan.findings.iter().filter(|finding| {
        finding.effect == Effect::Blocks && finding.reason.as_str() == "PackageExcludesKubernetes"
    });
    let named: Vec<Option<Place>> = excluded
        .map(|finding| finding.install.as_ref().map(place_of))
        .collect();
    assert_eq!(named, [Some(of_package(package, "packageinstalls"))], "{plan:?}");
    walk.complete(1);
}

/// Packages of a later phase are not resynced before the control plane has the version.
#[rstest]
#[case::before_control_plane("BeforeControlPlane", true)]
#[case::after_control_plane("AfterControlPlane", false)]
fn a_package_for_the_next_version_only_needs_a_later_phase(
    #[case] phase: &'static str,
    #[case] is_held: bool,
) {
    let mut walk = Walk::new();
    // The range of the second and third version.
    let edits = [Edit::Policy(1, "phase", phase), Edit::Constrain(1, 1, 1)];
    walk.bump(&edits, 1);
    assert_eq!(walk.assert_planned(), is_held);
}
