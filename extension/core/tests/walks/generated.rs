//! Upgrades over several minor versions whose steps hook GenerateUpgradePlan of Sluice returns, with versions of Cluster API that show
//! these steps and with earlier ones.

use rstest::rstest;
use sluice_crds::run::Hook;

use crate::{
    capi::{record, version_at},
    defect::Defect,
    machines::pinned,
    named::CREATED,
    objects::{LATER, LATER_RELEASE, PlannedBy, VERSIONS, control_plane},
    planted::assert_is_found,
    replica::Reading,
    users::Edit,
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// The release of a later patch version of the second minor version appears.
const PUBLISHED: Step = User(Edit::LaterRelease);

const TARGET: Step = User(Edit::Target(2));

/// Cluster API gets the steps to the target, and caches them.
const PLANNED: [Step; 3] = [TARGET, Replica, ClusterApi(Reading::AtOnce)];

/// The record has the first hop.
const RECORDED: [Step; 4] = [Watch(0), Reconcile(0), Watch(0), Reconcile(0)];

/// Rounds after which the first gate is open. The cached steps are still valid.
const OPENED: [Step; 10] = [Round; 10];

/// Rounds that complete a hop.
const HOP: usize = 40;

/// Creates the Cluster in a walk with a planted defect, if any.
fn created(mut walk: Walk, shown: bool, defect: Option<Defect>) -> Walk {
    walk.plant(defect);
    walk.step(User(Edit::Steps(PlannedBy::Sluice { shown })));
    walk.take(&CREATED);
    walk
}

/// Takes rounds until a condition is met.
fn take_until(walk: &mut Walk, is_met: impl Fn(&Walk) -> bool) {
    let mut rounds = 0..HOP;
    while !is_met(walk) {
        rounds.next().expect("the condition is met within a hop");
        walk.step(Round);
    }
}

/// Asserts that the control plane passes this version on its way to the target, and that workers take the target alone.
fn assert_passes(mut walk: Walk, between: usize) {
    walk.complete(2);
    let [of_control_plane, of_workers] = walk.taken();
    assert_eq!(of_control_plane, [VERSIONS[0], VERSIONS[between], VERSIONS[2]]);
    assert_eq!(of_workers, [VERSIONS[0], VERSIONS[2]]);
    walk.finish();
}

#[rstest]
#[case::usable(&[PUBLISHED, TARGET], LATER)]
#[case::without_template(&[PUBLISHED, User(Edit::NoTemplate(LATER_RELEASE)), TARGET], 1)]
#[case::deactivated(&[PUBLISHED, User(Edit::Deactivate(LATER_RELEASE, true)), TARGET], 1)]
#[case::published_during_the_first_hold(&[&PLANNED[..], &RECORDED, &[PUBLISHED]].concat(), 1)]
#[case::leader_restarts(&[&PLANNED[..], &RECORDED, &[PUBLISHED, Crash(0)]].concat(), 1)]
#[case::another_replica(&[&PLANNED[..], &RECORDED, &[PUBLISHED, OtherReplica, Wait(2_000)]].concat(), 1)]
#[case::caches_not_filled(
    &[&[TARGET, OtherReplica, ClusterApi(Reading::AtOnce)][..], &RECORDED, &[PUBLISHED]].concat(),
    1
)]
#[case::releases_not_listed(&[TARGET, OtherReplica, ClusterApi(Reading::Fails), ClusterApi(Reading::Late)], 1)]
fn an_upgrade_passes_the_newest_usable_version_of_its_beginning(
    #[case] steps: &[Step],
    #[case] between: usize,
    #[values(true, false)] shown: bool,
) {
    let mut walk = created(Walk::new(), shown, None);
    walk.take(steps);
    assert_passes(walk, between);
}

#[rstest]
fn a_release_between_two_hops_changes_no_step(#[values(true, false)] shown: bool) {
    let mut walk = created(Walk::new(), shown, None);
    walk.take(&PLANNED);
    take_until(&mut walk, |walk| {
        version_at(&walk.servers, &control_plane(), "spec") > 0
    });
    walk.take(&[PUBLISHED, Crash(0)]);
    assert_passes(walk, 1);
}

/// Cluster API has other steps than the record, which it does not show.
#[test]
fn an_older_answer_holds_until_it_expires() {
    let mut walk = created(Walk::new(), false, None);
    walk.take(&PLANNED);
    walk.step(PUBLISHED);
    walk.take(&OPENED);
    let held = record(&walk.servers).expect("a record");
    let mut gates = held.gates.iter();
    let is_open = gates
        .any(|gate| gate.open && gate.hook == Hook::BeforeClusterUpgrade && gate.version == VERSIONS[LATER]);
    let at = version_at(&walk.servers, &control_plane(), "spec");
    assert_eq!((is_open, at), (true, 0), "only the version holds");
    assert_passes(walk, LATER);
}

/// Sluice returns a failure, so Cluster API takes no step.
#[rstest]
#[case::of_the_beginning(Edit::RestoreCatalogue, 1)]
#[case::later(Edit::LaterRelease, LATER)]
fn a_minor_version_without_a_release_holds_until_one_appears(
    #[case] edit: Edit,
    #[case] between: usize,
    #[values(true, false)] shown: bool,
) {
    let mut walk = created(Walk::new(), shown, None);
    walk.bump(&[Edit::NoRelease(1)], 2);
    walk.assert_held(2, "NoTKRForHop");
    walk.step(User(edit));
    assert_passes(walk, between);
}

/// The record with the hop is lost, and the entry of the machines of the hop is left.
#[rstest]
fn an_entry_of_machines_pins_its_version(#[values(true, false)] shown: bool) {
    let mut walk = created(Walk::with_images(), shown, None);
    walk.take(&PLANNED);
    take_until(&mut walk, |walk| pinned(&walk.servers, 1).is_some());
    walk.take(&[PUBLISHED, User(Edit::NoStatus)]);
    assert_passes(walk, 1);
}

/// A release appears between plan and record.
#[rstest]
#[case::shown_steps(Defect::ShownStepsUnseen, true, "unplanned: ", 1)]
#[case::gate_of_another_step(Defect::StepOfGateUnseen, false, "stale: ", LATER)]
fn a_planted_defect_is_found(
    #[case] defect: Defect,
    #[case] shown: bool,
    #[case] invariant: &str,
    #[case] between: usize,
) {
    let run = |defect: Option<Defect>| {
        let mut walk = created(Walk::new(), shown, defect);
        walk.take(&PLANNED);
        walk.step(PUBLISHED);
        walk.take(&OPENED);
        walk
    };
    assert_is_found(|| run(Some(defect)), invariant);
    assert_passes(run(None), between);
}
