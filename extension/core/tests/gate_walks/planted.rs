//! Walks with a planted defect.

use std::panic::catch_unwind;

use rstest::rstest;

use crate::{
    addons::Delivery,
    defect::Defect,
    named::{HELD, OPEN},
    objects::{Setup, System},
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
    Step::Delivery(Delivery::Begin),
    Step::Delivery(Delivery::FailAgain),
    Step::Delivery(Delivery::Begin),
    Step::Delivery(Delivery::Pend),
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
        &[User(Edit::Chart(1)), Chart, Step::Delivery(Delivery::Begin), Step::Delivery(Delivery::NotRendered)],
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
        &[User(Edit::PauseRelease(true)), User(Edit::Chart(1)), Chart, Step::Delivery(Delivery::Observe)],
        &IMAGE_RUNS,
    ]
    .concat(),
    "early: "
)]
#[case::installed_once(
    Defect::StrategyUnseen,
    &[
        &HELD[..],
        &[User(Edit::InstallOnce(true)), User(Edit::Chart(1)), Chart, Step::Delivery(Delivery::Begin)],
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
    is_found(Setup::default(), defect, steps, invariant);
}

/// The same for judges of HelmReleases and Kustomizations.
#[rstest]
#[case::helm_release_not_reconciled(System::HelmRelease, Defect::ReadyTrusted, &[User(Edit::Chart(1))])]
#[case::helm_release_wanted(System::HelmRelease, Defect::ChartTrusted, &[User(Edit::Chart(1)), Delivery(Delivery::Begin)])]
#[case::helm_release_suspended(System::HelmRelease, Defect::PauseUnseen, &[User(Edit::SuspendAt(1)), Delivery(Delivery::Observe)])]
#[case::helm_release_rolled_back(
    System::HelmRelease,
    Defect::RollbackTrusted,
    &[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::RollBack)]
)]
#[case::helm_release_requested(
    System::HelmRelease,
    Defect::RequestTrusted,
    &[User(Edit::Chart(1)), User(Edit::Request), Delivery(Delivery::Begin)]
)]
#[case::helm_release_elsewhere(
    System::HelmRelease,
    Defect::BelongingUnseen,
    &[User(Edit::Elsewhere(true)), User(Edit::Chart(1)), Deliver]
)]
#[case::kustomization_not_fetched(System::Kustomization, Defect::ReadyTrusted, &[User(Edit::Chart(1))])]
#[case::kustomization_suspended(
    System::Kustomization,
    Defect::PauseUnseen,
    &[User(Edit::SuspendAt(1)), Chart, Delivery(Delivery::Observe)]
)]
#[case::kustomization_without_source(
    System::Kustomization,
    Defect::SourceUnseen,
    &[User(Edit::Chart(1)), Deliver, User(Edit::Commit), Chart]
)]
#[case::kustomization_elsewhere(
    System::Kustomization,
    Defect::BelongingUnseen,
    &[User(Edit::Elsewhere(true)), User(Edit::Chart(1)), Deliver]
)]
fn a_planted_judge_of_flux_is_found(#[case] system: System, #[case] defect: Defect, #[case] steps: &[Step]) {
    let setup = Setup {
        system,
        ..Setup::default()
    };
    is_found(
        setup,
        defect,
        &[&HELD[..], steps, &IMAGE_RUNS].concat(),
        "early: ",
    );
}

/// The same for a definition, and for an expression.
#[rstest]
#[case::definition(Defect::DefinitionTrusted, &[User(Edit::Backend(1)), Report])]
#[case::expression(Defect::ExpressionTrusted, &[User(Edit::Definition(1)), User(Edit::Backend(1))])]
fn a_planted_judge_of_other_objects_is_found(#[case] defect: Defect, #[case] steps: &[Step]) {
    let setup = Setup {
        has_extras: true,
        ..Setup::default()
    };
    let delivered = [User(Edit::Chart(1)), Deliver];
    let steps = [&HELD[..], &delivered, steps, &IMAGE_RUNS].concat();
    is_found(setup, defect, &steps, "early: ");
}

/// Takes the steps with the defect, which fails, and without it.
fn is_found(setup: Setup, defect: Defect, steps: &[Step], invariant: &str) {
    let run = |defect: Option<Defect>| {
        let mut walk = Walk::of(setup);
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
