//! Walks with a planted defect.

use std::panic::catch_unwind;

use rstest::rstest;

use crate::{
    addons::Helm,
    defect::Defect,
    named::{HELD, OPEN},
    users::Edit,
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// The image runs without the chart, and the leader reconciles.
const IMAGE_RUNS: [Step; 4] = [User(Edit::Image(1)), RollOut, Watch(0), Reconcile(0)];

/// Values for another Cluster stop CAAPH before it comes to this one.
const BLOCKED: [Step; 3] = [
    User(Edit::Values("broken for another Cluster")),
    User(Edit::Chart(1)),
    Chart,
];

/// The chart is delivered and runs, the leader plans to open, and a Pod fails before it confirms that.
const FAILS_MEANWHILE: [Step; 7] = [
    User(Edit::Chart(1)),
    Deliver,
    RollOut,
    Plan(0),
    Available(0, false),
    Count,
    Reconcile(0),
];

/// The chart is delivered and runs, the leader plans to open, and Helm fails and runs again before it confirms that.
const REPEATED_MEANWHILE: [Step; 9] = [
    User(Edit::Chart(1)),
    Deliver,
    RollOut,
    Plan(0),
    Step::Helm(Helm::Begin),
    Step::Helm(Helm::FailAgain),
    Step::Helm(Helm::Begin),
    Step::Helm(Helm::Pend),
    Reconcile(0),
];

/// The cache of the replica shows open gates, and they close since a Pod fails.
const CLOSES: [Step; 6] = [
    Replica,
    Available(0, false),
    Count,
    Watch(0),
    Reconcile(0),
    ClusterApi,
];

/// The Cluster gets the label and the target together, and the replica shows only the gate.
const LABELLED: [Step; 7] = [
    User(Edit::Label(false)),
    Watch(0),
    Reconcile(0),
    Replica,
    User(Edit::Target(1)),
    User(Edit::Label(true)),
    ClusterApi,
];

/// Each planted defect fails one walk by the name of its invariant, and that walk passes without it.
#[rstest]
#[case::not_delivered_yet(
    Defect::ChartTrusted,
    &[&HELD[..], &[User(Edit::Chart(1)), Chart], &IMAGE_RUNS].concat(),
    "early: "
)]
#[case::delivery_that_failed(
    Defect::ChartTrusted,
    &[
        &HELD[..],
        &[User(Edit::Chart(1)), Chart, Step::Helm(Helm::Begin), Step::Helm(Helm::NotRendered)],
        &IMAGE_RUNS,
    ]
    .concat(),
    "early: "
)]
#[case::blocked_by_another_cluster(Defect::ChartTrusted, &[&HELD[..], &BLOCKED, &IMAGE_RUNS].concat(), "early: ")]
#[case::ready_at_the_earlier_version(Defect::ReadyTrusted, &[&HELD[..], &BLOCKED, &IMAGE_RUNS].concat(), "early: ")]
#[case::paused(
    Defect::PauseUnseen,
    &[
        &HELD[..],
        &[User(Edit::PauseRelease(true)), User(Edit::Chart(1)), Chart, Step::Helm(Helm::Observe)],
        &IMAGE_RUNS,
    ]
    .concat(),
    "early: "
)]
#[case::installed_once(
    Defect::StrategyUnseen,
    &[
        &HELD[..],
        &[User(Edit::InstallOnce(true)), User(Edit::Chart(1)), Chart, Step::Helm(Helm::Begin)],
        &IMAGE_RUNS,
    ]
    .concat(),
    "early: "
)]
#[case::not_confirmed(Defect::NotConfirmed, &[&HELD[..], &FAILS_MEANWHILE].concat(), "early: ")]
#[case::unrecorded_latch(Defect::LatchUnrecorded, &[&HELD[..], &REPEATED_MEANWHILE].concat(), "early: ")]
#[case::release_not_confirmed(Defect::ReleaseNotConfirmed, &[&OPEN.concat()[..], &CLOSES].concat(), "stale: ")]
#[case::labels_of_the_request(Defect::LabelsUnread, &LABELLED, "unlisted: ")]
fn a_planted_defect_is_found(#[case] defect: Defect, #[case] steps: &[Step], #[case] invariant: &str) {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::new();
        walk.plant(defect);
        walk.take(steps);
        walk
    };
    let found = catch_unwind(|| {
        run(Some(defect));
    });
    let found = found.expect_err("the defect is not found");
    let found = found.downcast_ref::<String>().expect("a message");
    assert!(found.starts_with(invariant), "{found}");
    let mut walk = run(None);
    assert_eq!(walk.control_plane(), 0, "nothing is released");
    walk.finish();
}
