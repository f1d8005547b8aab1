//! Walks in which an upgrade is cancelled, and its packages go back to those from before it.

use rstest::rstest;
use sluice_crds::run::{Hook, Outcome, UpgradeRecord};

use crate::{
    capi::{brief, record, version_at},
    defect::Defect,
    fault::Fault,
    named::{CREATED, DEPLOYED, INSTALLED, MERGED, SEEN},
    objects::{
        HIGHER_RELEASE, PACKAGES, RELEASES, VERSIONS, bootstrap, control_plane, package_name, packages_of,
        worker,
    },
    planted::{OPEN, assert_is_found},
    random::number,
    replica::Reading,
    truth::named,
    users::{Edit, Edited},
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// The policy asks for rollbacks, and Cluster API has reported the Cluster once.
const ASKED: [Step; 2] = [User(Edit::OnCancel(true)), Round];

const CALL: [Step; 2] = [Replica, ClusterApi(Reading::AtOnce)];

/// A run of the CNI fails.
const FAILED: [Step; 3] = [Sync(1), Begin(1), End(1, false)];

/// The packages are merged.
const BEGUN: [&[Step]; 1] = [&MERGED];

/// The CNI does not deploy.
const FAILING: [&[Step]; 4] = [&MERGED, &INSTALLED, &FAILED, &SEEN];

/// All packages are deployed, and the leader has not observed it.
const PROVEN: [&[Step]; 3] = [&MERGED, &INSTALLED, &DEPLOYED];

/// Rounds of a fair schedule that complete one hop or a rollback.
const ROUNDS: usize = 40;

/// Names of the Packages, by package.
type Names = [Option<String>; PACKAGES.len()];

fn created(defect: Option<Defect>) -> Walk {
    let mut walk = Walk::new();
    walk.plant(defect);
    walk.take(&CREATED);
    walk.take(&ASKED);
    walk
}

/// Returns a walk with an upgrade after these steps.
fn upgrading(steps: &[&[Step]]) -> Walk {
    let mut walk = created(None);
    walk.take(&steps.concat());
    walk
}

fn recorded(walk: &Walk) -> UpgradeRecord {
    record(&walk.servers).expect("a record")
}

/// Returns the Packages in the ClusterBootstrap.
fn packages(walk: &Walk) -> Names {
    PACKAGES.map(|package| named(&walk.servers, &bootstrap(), package))
}

fn of_release(release: usize) -> Names {
    PACKAGES.map(|package| Some(package_name(package, packages_of(release))))
}

/// Every component acts until something is so.
fn until(walk: &mut Walk, what: &str, is_so: impl Fn(&Walk) -> bool) {
    for _ in 0..ROUNDS {
        if is_so(walk) {
            return;
        }
        walk.step(Round);
    }
    panic!(
        "{what} after {ROUNDS} rounds: {}",
        brief(record(&walk.servers).as_ref())
    );
}

/// Completes the rollback to the packages of a release.
fn rolled_back(walk: &mut Walk, release: usize) {
    let is_rolled_back = |walk: &Walk| recorded(walk).outcome == Some(Outcome::RolledBack);
    until(walk, "not rolled back", is_rolled_back);
    assert_eq!(packages(walk), of_release(release));
}

/// Asserts that the packages of the second version stay while every component acts.
fn assert_stay(walk: &mut Walk) {
    walk.take(&[Round; 6]);
    assert_eq!(
        packages(walk),
        of_release(1),
        "{}",
        brief(record(&walk.servers).as_ref())
    );
}

#[rstest]
#[case::after_the_merge(&BEGUN)]
#[case::before_the_last_proof(&PROVEN)]
#[case::after_a_failed_run(&FAILING)]
#[case::gates_are_open(&OPEN)]
fn packages_go_back_after_a_cancellation(
    #[case] steps: &[&[Step]],
    #[values(true, false)] is_asked_before: bool,
) {
    let mut walk = upgrading(steps);
    walk.take(&[User(Edit::OnCancel(is_asked_before)), User(Edit::Cancel)]);
    if !is_asked_before {
        assert_stay(&mut walk);
        assert_eq!(recorded(&walk).outcome, Some(Outcome::Cancelled));
        walk.step(User(Edit::OnCancel(true)));
    }
    rolled_back(&mut walk, 0);
    walk.calm();
    let writes = walk.servers.writes();
    walk.calm();
    assert_eq!(walk.servers.writes(), writes, "it is settled");
    walk.finish();
}

/// A move to another management cluster loses the record, and keeps the snapshot.
#[test]
fn packages_go_back_by_the_snapshot_without_a_record() {
    let mut walk = upgrading(&OPEN);
    walk.take(&[
        User(Edit::NoWayBack(1, 1)),
        User(Edit::Cancel),
        User(Edit::NoStatus),
    ]);
    let ([kapp, _, other], [_, cni, _]) = (of_release(0), of_release(1));
    let back = [kapp, cni, other];
    until(&mut walk, "not back", |walk| packages(walk) == back);
    walk.finish();
}

/// The way out of a release whose repair does not deploy either.
#[test]
fn packages_go_back_to_those_from_before_the_first_release() {
    let repaired = [User(Edit::OtherRelease), Watch(0), Reconcile(0), Deploy(0)];
    let mut walk = upgrading(&[
        &MERGED, &INSTALLED, &FAILED, &SEEN, &repaired, &SEEN, &FAILED, &SEEN,
    ]);
    walk.step(User(Edit::Cancel));
    rolled_back(&mut walk, 0);
    walk.finish();
}

#[rstest]
#[case::its_package_forbids_it(Edit::NoWayBack(1, 1))]
#[case::the_policy_keeps_it(Edit::Policy(1, "onCancel", "Keep"))]
fn a_package_stays(#[case] edit: Edit) {
    let mut walk = upgrading(&OPEN);
    walk.take(&[User(edit), User(Edit::Cancel)]);
    until(&mut walk, "not rolled back", |walk| {
        recorded(walk).outcome == Some(Outcome::RolledBack)
    });
    let [kapp, _, other] = of_release(0);
    let [_, cni, _] = of_release(1);
    assert_eq!(packages(&walk), [kapp, cni, other]);
    walk.finish();
}

/// The leader takes some steps between the edits.
#[rstest]
fn one_direction_at_a_time(#[values(0, 1, 3, 9, 27)] steps: usize, #[values(true, false)] is_called: bool) {
    let mut walk = upgrading(&OPEN);
    for edit in [
        Edit::Cancel,
        Edit::Target(1),
        Edit::Cancel,
        Edit::Target(1),
        Edit::Cancel,
    ] {
        walk.take(&[User(edit), Watch(0)]);
        walk.take(&vec![Lead(0, Fault::OneWrite); steps]);
        if is_called {
            walk.take(&CALL);
        }
    }
    // Packages that kapp-controller has not lowered yet may release the version again.
    if version_at(&walk.servers, &control_plane(), "spec") == 0 {
        rolled_back(&mut walk, 0);
    }
    walk.finish();
}

/// At every sixteenth step: `SEED` 0 to 15 together cover all.
#[rstest]
#[case::crashed(None)]
#[case::frozen(Some(Fault::Frozen))]
#[case::conflict(Some(Fault::Refused(409)))]
#[case::unanswered(Some(Fault::Unanswered))]
fn a_disturbed_leader_completes_a_rollback(#[case] fault: Option<Fault>) {
    for at in (number("SEED", 0_usize) % 16..160).step_by(16) {
        let mut walk = upgrading(&OPEN);
        walk.step(User(Edit::Cancel));
        walk.ends_at = Some((walk.led() + at, fault));
        rolled_back(&mut walk, 0);
        walk.finish();
    }
}

/// The second leader does not observe the cancellation, or what the first one has made of it.
#[rstest]
fn two_leaders_complete_a_rollback(#[values(true, false)] observes: bool, #[values(1, 4, 16)] steps: usize) {
    let mut walk = upgrading(&OPEN);
    walk.step(Watch(1));
    walk.step(User(Edit::Cancel));
    if observes {
        walk.step(Watch(1));
    }
    walk.take(&CALL);
    walk.step(Watch(0));
    for _ in 0..4 {
        walk.take(&vec![Lead(0, Fault::OneWrite); steps]);
        walk.take(&vec![Lead(1, Fault::OneWrite); steps]);
        walk.take(&[Deploy(0), Watch(0)]);
    }
    walk.step(Reconcile(1));
    rolled_back(&mut walk, 0);
    walk.finish();
}

#[rstest]
#[case::after_the_merge(&[])]
#[case::before_the_last_proof(&PROVEN[1..])]
fn packages_of_a_cancelled_swap_go_back(#[case] steps: &[&[Step]]) {
    let mut walk = Walk::with_images();
    walk.take(&CREATED);
    walk.take(&ASKED);
    walk.take(&[User(Edit::Label(HIGHER_RELEASE)), Watch(0), Reconcile(0)]);
    walk.take(&steps.concat());
    assert_eq!(packages(&walk), of_release(HIGHER_RELEASE));
    walk.step(User(Edit::Cancel));
    rolled_back(&mut walk, 0);
    assert!(walk.swaps.written.is_empty(), "no machine is replaced");
    walk.step(User(Edit::Label(HIGHER_RELEASE)));
    walk.finish_swap();
    assert_eq!(walk.swaps.written, [HIGHER_RELEASE]);
    walk.finish();
}

/// Returns a walk whose control plane has taken the first of two hops. The packages of the second one are merged, and the upgrade is
/// cancelled before Cluster API has called AfterControlPlaneUpgrade.
fn chained(defect: Option<Defect>) -> Walk {
    let mut walk = chained_to_the_cancellation(defect);
    walk.take(&[&CALL[..], &SEEN, &SEEN].concat());
    walk
}

fn chained_to_the_cancellation(defect: Option<Defect>) -> Walk {
    let mut walk = created(defect);
    walk.step(User(Edit::Target(2)));
    until(&mut walk, "not rolled out", |walk| {
        version_at(&walk.servers, &control_plane(), "status") == 1
    });
    for _ in 0..ROUNDS {
        if packages(&walk) == of_release(2) {
            break;
        }
        walk.take(&[Watch(0), Reconcile(0), Deploy(0), Deploy(1), Deploy(2)]);
    }
    assert_eq!(packages(&walk), of_release(2));
    walk.step(User(Edit::Cancel));
    walk
}

/// The leader may observe the cancellation before Cluster API, whose reconcile then calls the hooks of the running version.
#[rstest]
fn workers_wait_for_the_packages_of_the_running_version(#[values(true, false)] is_leader_first: bool) {
    let mut walk = chained_to_the_cancellation(None);
    if is_leader_first {
        walk.take(&SEEN);
    }
    walk.take(&[&CALL[..], &SEEN, &SEEN].concat());
    assert_eq!(version_at(&walk.servers, &worker(), "spec"), 0);
    assert_eq!(packages(&walk), of_release(1));
    let held = recorded(&walk);
    let gate = held
        .gates
        .iter()
        .find(|gate| gate.hook == Hook::AfterControlPlaneUpgrade && gate.version == VERSIONS[1]);
    let is_closed = gate.is_some_and(|gate| !gate.open);
    assert!(is_closed && held.rollback.is_some(), "{}", brief(Some(&held)));
    walk.take(&CALL);
    assert_eq!(version_at(&walk.servers, &worker(), "spec"), 0);
    rolled_back(&mut walk, 1);
    walk.finish();
}

/// Returns a walk in which Cluster API is about to write the version when the upgrade is cancelled.
fn in_flight(defect: Option<Defect>) -> Walk {
    let mut walk = created(defect);
    walk.take(&OPEN.concat());
    walk.step(BeginClusterApi(Reading::AtOnce));
    assert_eq!(walk.taking(), Some(1));
    walk.step(User(Edit::Cancel));
    walk.take(&[&SEEN[..], &SEEN].concat());
    walk
}

#[test]
fn packages_stay_after_the_control_plane_took_the_version() {
    let mut walk = in_flight(None);
    assert_stay(&mut walk);
    assert_eq!(version_at(&walk.servers, &control_plane(), "spec"), 1);
    walk.calm();
    walk.finish();
}

/// No condition tells of the write of a frozen process, so packages go up again.
#[test]
fn a_version_taken_during_a_rollback_gets_its_packages() {
    let mut walk = upgrading(&OPEN);
    walk.take(&[
        BeginClusterApi(Reading::AtOnce),
        FreezeClusterApi,
        User(Edit::Cancel),
    ]);
    until(&mut walk, "not lowered", |walk| packages(walk) == of_release(0));
    walk.step(Arrive);
    assert_eq!(version_at(&walk.servers, &control_plane(), "spec"), 1);
    walk.take(&[&CALL[..], &[Roll], &SEEN, &CALL].concat());
    walk.take(&[User(Edit::Target(1)), Watch(0), Reconcile(0)]);
    walk.take(&CALL);
    assert_eq!(version_at(&walk.servers, &worker(), "spec"), 0);
    until(&mut walk, "not raised", |walk| packages(walk) == of_release(1));
    walk.calm();
    walk.finish();
}

/// Returns a walk with a cancelled upgrade and without a Package from before it, which is restored later.
fn without_package(defect: Option<Defect>) -> Walk {
    let mut walk = created(defect);
    walk.take(&OPEN.concat());
    walk.take(&[User(Edit::NoPackage(1, 0)), User(Edit::Cancel)]);
    walk.take(&[Round; 4]);
    assert_eq!(packages(&walk), of_release(1), "none is lowered alone");
    walk.step(User(Edit::RestoreCatalogue));
    walk.take(&[Round; 12]);
    walk
}

#[test]
fn a_missing_package_holds_the_rollback() {
    let mut walk = without_package(None);
    rolled_back(&mut walk, 0);
    walk.finish();
}

/// The release that the packages go back to is deactivated.
#[test]
fn packages_go_back_to_a_deactivated_release() {
    let mut walk = upgrading(&OPEN);
    walk.take(&[User(Edit::Deactivate(0, true)), User(Edit::Cancel)]);
    rolled_back(&mut walk, 0);
    walk.finish();
}

#[rstest]
#[case::removed(Edited::Removed)]
#[case::malformed(Edited::Malformed)]
#[case::of_another_release(Edited::OtherRelease)]
#[case::of_unknown_packages(Edited::UnknownPackages)]
fn packages_stay_with_an_edited_snapshot(#[case] edited: Edited) {
    let mut walk = upgrading(&OPEN);
    walk.take(&[User(Edit::Snapshot(edited)), User(Edit::Cancel)]);
    assert_stay(&mut walk);
    let record = recorded(&walk);
    assert_eq!(
        record.outcome,
        Some(Outcome::Cancelled),
        "{}",
        brief(Some(&record))
    );
    walk.calm();
    walk.finish();
}

/// A label of another release is no cancellation that a snapshot is about.
#[test]
fn packages_stay_with_the_label_of_another_release() {
    let mut walk = upgrading(&OPEN);
    walk.take(&[User(Edit::UnsafeVersion(0)), User(Edit::UnsafeLabel(2))]);
    assert_stay(&mut walk);
    let record = recorded(&walk);
    assert_eq!(record.label, RELEASES[2]);
    assert_eq!(record.rollback, None, "{}", brief(Some(&record)));
    walk.finish();
}

/// Each planted defect fails one walk by the name of its invariant, and that walk passes without it.
#[rstest]
#[case::before_cluster_api_has_observed_it(Defect::ChangeOfTopologyUnseen, in_flight, "premature: ")]
#[case::packages_of_another_release(Defect::ReleaseOfPackagesUnseen, without_package, "unrestored: ")]
#[case::gates_of_the_cancelled_upgrade(Defect::GatesCarried, chained, "unproven: ")]
fn a_planted_defect_is_found(
    #[case] defect: Defect,
    #[case] walk: fn(Option<Defect>) -> Walk,
    #[case] invariant: &str,
) {
    assert_is_found(|| walk(Some(defect)), invariant);
    let mut walk = walk(None);
    walk.calm();
    walk.finish();
}
