//! Upgrades that do what their plans say.

use std::cell::Cell;

use proptest::prelude::*;
use rstest::rstest;

use crate::{
    defect::Defect,
    objects::{PlannedBy, RANGES},
    planted::assert_is_found,
    random::{WALKS, number, planned, random},
    users::Edit,
    walk::{
        Step::{Reconcile, User, Watch},
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
        1 => version().prop_map(Edit::NoTemplate),
        1 => (package(), version()).prop_map(|(which, version)| Edit::NoPackage(which, version)),
        1 => version().prop_map(|version| Edit::Deactivate(version, true)),
        6 => (package(), version(), 0..RANGES.len()).prop_map(|(which, version, range)| Edit::Constrain(which, version, range)),
        2 => (1..3_usize).prop_map(|which| Edit::Policy(which, "phase", "AfterControlPlane")),
    ]
}

#[test]
fn an_upgrade_does_what_its_plan_says() {
    let [held, ready] = [Cell::new(0_u32), Cell::new(0_u32)];
    let gaps = prop::collection::vec(gaps(), 0..4);
    let walks = number("WALKS", WALKS).div_ceil(4);
    random(walks, &(planned(), gaps, 1..3_usize), |(planned, gaps, to)| {
        // Cluster API refuses to skip a minor version.
        let to = if planned == PlannedBy::Nobody { 1 } else { to };
        let mut walk = Walk::new();
        walk.step(User(Edit::Steps(planned)));
        walk.bump(&gaps, to);
        let is_held = walk.assert_planned(None);
        let count = if is_held { &held } else { &ready };
        count.set(count.get() + 1);
        if is_held {
            walk.finish();
        }
    });
    assert!(
        held.get() > 0 && ready.get() > 0,
        "{} are held, and {} are not",
        held.get(),
        ready.get()
    );
}

/// The record, or else a maker of plans, does not observe what a check depends on.
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
    let run = |of_record: Option<Defect>, of_plan: Option<Defect>| {
        let mut walk = Walk::new();
        walk.plant(of_record);
        walk.bump(&[edit], 2);
        walk.assert_planned(of_plan);
        walk
    };
    assert_is_found(|| run(Some(defect), None), &format!("record: {reason} "));
    assert_is_found(|| run(None, Some(defect)), &format!("plan: {reason} "));
    run(None, None).finish();
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
        walk.assert_planned(None);
        walk
    };
    assert_is_found(|| run(Some(Defect::VerdictTaken)), &format!("record: {reason} "));
    run(None).finish();
}

#[test]
fn a_release_that_is_deactivated_after_the_merge_strands_no_upgrade() {
    let mut walk = Walk::new();
    walk.bump(&[], 1);
    walk.take(&[Watch(0), Reconcile(0), User(Edit::Deactivate(1, true))]);
    walk.complete(1);
}

/// kapp-controller installs the package, whatever its Package permits.
#[rstest]
fn an_install_that_ignores_its_selection_releases_the_upgrade(#[values(0, 1, 2)] package: usize) {
    let mut walk = Walk::new();
    walk.bump(&[Edit::Constrain(package, 1, WITHOUT_SECOND)], 1);
    assert!(walk.assert_planned(None), "it is held");
    walk.step(User(Edit::IgnoreSelection(package)));
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
    assert_eq!(walk.assert_planned(None), is_held);
}
