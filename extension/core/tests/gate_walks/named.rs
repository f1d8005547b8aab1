//! Walks of known dangers. Each one ends with a complete upgrade to the last version.

use rstest::rstest;
use sluice_crds::run::{Hook, Outcome};

use crate::{
    addons::Delivery,
    leader::{CACHES, Fault},
    objects::{Setup, System, VERSIONS, record},
    users::{Edit, Rows},
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// The Cluster has a record, and its upgrade to the second version is held.
pub(crate) const HELD: [Step; 6] = [
    Reconcile(0),
    Watch(0),
    User(Edit::Target(1)),
    Watch(0),
    Reconcile(0),
    Watch(0),
];

/// The add-on of the second version is delivered, and it runs.
const DELIVERED: [Step; 3] = [User(Edit::Chart(1)), Deliver, RollOut];

/// The gates before the control plane are open.
pub(crate) const OPEN: [&[Step]; 3] = [&HELD, &DELIVERED, &[Reconcile(0), Watch(0)]];

/// Every process knows what the API servers have, and Cluster API calls.
const CALL: [Step; 4] = [Watch(0), Reconcile(0), Replica, ClusterApi];

/// What the gate also checks is at the second version.
const EXTRAS: [Step; 3] = [User(Edit::Definition(1)), User(Edit::Backend(1)), Report];

fn after(steps: &[&[Step]]) -> Walk {
    after_in(Setup::default(), steps)
}

/// Returns a walk in a variant after these steps.
fn after_in(setup: Setup, steps: &[&[Step]]) -> Walk {
    let mut walk = Walk::of(setup);
    walk.take(&steps.concat());
    walk
}

/// Returns a walk with this system after these steps.
fn after_with(system: System, steps: &[&[Step]]) -> Walk {
    let setup = Setup {
        system,
        ..Setup::default()
    };
    after_in(setup, steps)
}

/// Returns a walk whose gate also checks a definition, and an object by an expression.
fn after_with_extras(steps: &[&[Step]]) -> Walk {
    let setup = Setup {
        has_extras: true,
        ..Setup::default()
    };
    after_in(setup, steps)
}

/// Whether the gate before the second version of the control plane is open.
fn is_open(walk: &Walk) -> bool {
    let gates = record(&walk.servers)
        .map(|record| record.gates)
        .unwrap_or_default();
    gates
        .iter()
        .any(|gate| gate.open && gate.hook == Hook::BeforeControlPlaneUpgrade && gate.version == VERSIONS[1])
}

/// Cluster API takes the version once the add-on is delivered and runs, and not before.
#[rstest]
fn a_satisfied_gate_releases_the_control_plane(
    #[values(System::Caaph, System::HelmRelease, System::Kustomization)] system: System,
) {
    let mut walk = after_with(system, &[&HELD]);
    assert!(!is_open(&walk));
    walk.take(&CALL);
    assert_eq!(walk.control_plane(), 0);
    walk.take(&DELIVERED);
    walk.take(&CALL);
    assert!(is_open(&walk));
    assert_eq!(walk.control_plane(), 1);
    walk.finish();
}

/// The chart is delivered before the target is raised.
#[test]
fn a_chart_that_is_early_releases_at_once() {
    let mut walk = after(&[
        &[Reconcile(0), Watch(0)],
        &DELIVERED,
        &[User(Edit::Target(1))],
        &CALL,
    ]);
    assert_eq!(walk.control_plane(), 1);
    walk.finish();
}

/// Whatever the status of the delivery says, nothing opens before the version is deployed and runs.
#[rstest]
#[case::not_reconciled(&[User(Edit::Chart(1))])]
#[case::not_begun(&[User(Edit::Chart(1)), Chart])]
#[case::in_progress(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Pend)])]
#[case::not_rendered(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::NotRendered)])]
#[case::failed(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Fail)])]
#[case::blocked(&[User(Edit::Values("broken for another Cluster")), User(Edit::Chart(1)), Deliver])]
#[case::paused_proxy(&[User(Edit::PauseChart(true)), User(Edit::Chart(1)), Deliver])]
#[case::paused_release(&[User(Edit::PauseRelease(true)), User(Edit::Chart(1)), Deliver, Delivery(Delivery::Observe)])]
#[case::installed_once(&[User(Edit::InstallOnce(true)), User(Edit::Chart(1)), Deliver])]
#[case::edited_during_the_run(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), User(Edit::Chart(2)), Chart, Delivery(Delivery::Succeed)])]
#[case::created_again(&[User(Edit::NoChart), User(Edit::Chart(1)), Chart])]
fn a_delivery_that_is_not_complete_holds(#[case] steps: &[Step]) {
    let mut walk = after(&[&HELD, steps, &[User(Edit::Image(1)), RollOut], &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// The same for a HelmRelease. helm-controller observes generations that it did not deliver, and shows Ready for an earlier version.
#[rstest]
#[case::not_reconciled(&[User(Edit::Chart(1))])]
#[case::not_fetched(&[User(Edit::Chart(1)), Delivery(Delivery::Begin)])]
#[case::begun(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin)])]
#[case::in_progress(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Pend)])]
#[case::killed(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Pend), Delivery(Delivery::Kill)])]
#[case::behind_its_source(&[User(Edit::Chart(1)), Delivery(Delivery::BeginBehind), Delivery(Delivery::Succeed)])]
#[case::not_rendered(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::NotRendered)])]
#[case::failed(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Fail)])]
#[case::rolled_back(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::RollBack)])]
#[case::reverted(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::RollBack), User(Edit::Chart(0)), Deliver])]
#[case::suspended_with_the_version(&[User(Edit::SuspendAt(1)), Delivery(Delivery::Observe)])]
#[case::suspended_before(&[User(Edit::PauseRelease(true)), User(Edit::Chart(1)), Deliver, Delivery(Delivery::Observe)])]
#[case::suspended_afterwards(&[User(Edit::Chart(1)), Deliver, User(Edit::PauseRelease(true)), Delivery(Delivery::Observe)])]
#[case::resumed(&[User(Edit::SuspendAt(1)), Delivery(Delivery::Observe), User(Edit::PauseRelease(false))])]
#[case::requested(&[User(Edit::Chart(1)), User(Edit::Request), Delivery(Delivery::Begin)])]
#[case::values_edited(&[User(Edit::Chart(1)), Deliver, User(Edit::Values("other"))])]
#[case::values_in_progress(&[User(Edit::Chart(1)), Deliver, User(Edit::Values("other")), Delivery(Delivery::Begin), Delivery(Delivery::Pend)])]
#[case::values_broken(&[User(Edit::Values("broken")), User(Edit::Chart(1)), Deliver])]
#[case::edited_during_the_run(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), User(Edit::Chart(2)), Chart, Delivery(Delivery::Succeed)])]
#[case::of_another_cluster(&[User(Edit::Elsewhere(true)), User(Edit::Chart(1)), Deliver])]
#[case::deleted(&[User(Edit::Chart(1)), Deliver, User(Edit::NoRelease)])]
#[case::created_again(&[User(Edit::Chart(1)), Deliver, User(Edit::NoRelease), User(Edit::Chart(1))])]
fn a_helm_release_that_is_not_complete_holds(#[case] steps: &[Step]) {
    let image = [User(Edit::Image(1)), RollOut];
    let mut walk = after_with(System::HelmRelease, &[&HELD, steps, &image, &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// The same for a Kustomization, whose generation no new commit changes.
#[rstest]
#[case::not_fetched(&[User(Edit::Chart(1))])]
#[case::not_applied(&[User(Edit::Chart(1)), Chart])]
#[case::begun(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin)])]
#[case::in_progress(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Pend)])]
#[case::killed(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Pend), Delivery(Delivery::Kill)])]
#[case::behind_its_source(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::BeginBehind), Delivery(Delivery::Succeed)])]
#[case::not_built(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::NotRendered)])]
#[case::not_healthy(&[User(Edit::Chart(1)), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Fail)])]
#[case::new_commit(&[User(Edit::Chart(1)), Deliver, User(Edit::Commit), Chart])]
#[case::source_suspended(&[User(Edit::PauseChart(true)), User(Edit::Chart(1)), Deliver])]
#[case::suspended_with_another_path(&[User(Edit::SuspendAt(1)), Chart, Delivery(Delivery::Observe)])]
#[case::suspended_before(&[User(Edit::PauseRelease(true)), User(Edit::Chart(1)), Deliver, Delivery(Delivery::Observe)])]
#[case::suspended_afterwards(&[User(Edit::Chart(1)), Deliver, User(Edit::PauseRelease(true)), Delivery(Delivery::Observe)])]
#[case::requested(&[User(Edit::Chart(1)), User(Edit::Request), User(Edit::SuspendAt(1)), Delivery(Delivery::Observe)])]
#[case::path_edited(&[User(Edit::Chart(1)), Deliver, User(Edit::Values("other"))])]
#[case::path_broken(&[User(Edit::Values("broken")), User(Edit::Chart(1)), Deliver])]
#[case::of_another_cluster(&[User(Edit::Elsewhere(true)), User(Edit::Chart(1)), Deliver])]
#[case::source_deleted(&[User(Edit::Chart(1)), Deliver, User(Edit::NoChart)])]
#[case::created_again(&[User(Edit::Chart(1)), Deliver, User(Edit::NoRelease), User(Edit::Chart(1))])]
fn a_kustomization_that_is_not_complete_holds(#[case] steps: &[Step]) {
    let image = [User(Edit::Image(1)), RollOut];
    let mut walk = after_with(System::Kustomization, &[&HELD, steps, &image, &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// Flux reconciles at each interval, and shows that before it reads the source. A proof stands meanwhile, if it is recorded.
#[rstest]
fn a_reconcile_of_a_delivered_version_closes_no_gate(
    #[values(System::HelmRelease, System::Kustomization)] system: System,
) {
    let mut walk = after_with(system, &[&OPEN.concat(), &[Delivery(Delivery::Begin)], &CALL]);
    assert!(is_open(&walk));
    assert_eq!(walk.control_plane(), 1);
    walk.finish();
}

/// Without a record, the same reconcile proves nothing.
#[rstest]
fn a_reconcile_of_a_delivered_version_opens_no_gate(
    #[values(System::HelmRelease, System::Kustomization)] system: System,
) {
    let mut walk = after_with(system, &[&HELD, &DELIVERED, &[Delivery(Delivery::Begin)], &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// A definition that Helm does not upgrade, or an object for which the expression is false or fails, holds.
#[rstest]
#[case::definition_of_the_earlier_chart(&[User(Edit::Backend(1)), Report])]
#[case::definition_not_established(&[User(Edit::Definition(1)), User(Edit::Established(false)), User(Edit::Backend(1)), Report])]
#[case::definition_deleted(&[User(Edit::NoDefinition), User(Edit::Backend(1)), Report])]
#[case::not_reported(&[User(Edit::Definition(1)), User(Edit::Backend(1))])]
#[case::reported_at_the_earlier_version(&[User(Edit::Definition(1)), Report])]
#[case::no_status(&[User(Edit::Definition(1)), User(Edit::Backend(1)), User(Edit::NoStatus)])]
fn a_definition_or_an_expression_that_is_not_true_holds(#[case] steps: &[Step]) {
    let mut walk = after_with_extras(&[&HELD, &DELIVERED, steps, &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.take(&EXTRAS);
    walk.take(&[User(Edit::Established(true))]);
    walk.take(&CALL);
    assert_eq!(walk.control_plane(), 1);
    walk.finish();
}

/// An Audit gate whose checks are never proven holds nothing, beside a gate that does and without one.
#[rstest]
#[case::alone(&[User(Edit::NoGate)], &[Watch(0)], 1)]
#[case::beside_a_proven_gate(&[Watch(0)], &DELIVERED, 1)]
#[case::beside_a_waiting_gate(&[Watch(0)], &[Watch(0)], 0)]
fn an_audit_gate_holds_nothing(
    #[case] before: &[Step],
    #[case] delivered: &[Step],
    #[case] control_plane: usize,
) {
    let mut walk = after(&[
        &[User(Edit::AuditGate(true))],
        before,
        &[Watch(0)],
        &HELD,
        delivered,
        &CALL,
    ]);
    assert_eq!(walk.control_plane(), control_plane);
    walk.finish();
}

/// The same for the DaemonSet of a delivered chart.
#[rstest]
#[case::not_counted(&[Pod(0), Pod(1), Pod(2)])]
#[case::one_pod_left(&[Pod(0), Pod(1), Available(0, true), Available(1, true), Count])]
#[case::one_pod_fails(&[RollOut, Available(2, false), Count])]
#[case::deleted(&[RollOut, User(Edit::NoAgent)])]
#[case::created_again(&[RollOut, User(Edit::NoAgent), User(Edit::Image(1))])]
#[case::replaced_by_hand(&[RollOut, User(Edit::Image(0))])]
#[case::never_replaced(&[User(Edit::OnDelete(true)), RollOut])]
fn an_agent_that_does_not_run_holds(#[case] steps: &[Step]) {
    let mut walk = after(&[&HELD, &[User(Edit::Chart(1)), Deliver], steps, &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// Users who change the gate, or what it selects, pass it only by the ways out of the design.
#[rstest]
#[case::label_removed(&[User(Edit::Label(false))], 0)]
#[case::selector_changed(&[User(Edit::Selector("calico"))], 0)]
#[case::old_manifest(&[User(Edit::Rows(Rows::Old)), User(Edit::Chart(1)), Deliver, RollOut], 0)]
#[case::alternative_row(&[User(Edit::Rows(Rows::Alternative)), User(Edit::Chart(2)), Deliver, RollOut], 1)]
#[case::rows_mixed(&[User(Edit::Rows(Rows::Alternative)), User(Edit::Chart(2)), Deliver, User(Edit::Image(1)), RollOut], 0)]
#[case::audit(&[User(Edit::Mode("Audit"))], 1)]
#[case::audit_reverted(&[User(Edit::Mode("Audit")), User(Edit::Manifest)], 0)]
#[case::before_workers(&[User(Edit::Before("Workers"))], 1)]
#[case::gate_deleted(&[User(Edit::NoGate)], 1)]
#[case::record_deleted(&[User(Edit::NoRecord)], 0)]
#[case::paused(&[User(Edit::Chart(1)), Deliver, RollOut, User(Edit::PauseCluster(true))], 0)]
#[case::moved_back(&[User(Edit::Chart(1)), Deliver, RollOut, User(Edit::Back)], 0)]
#[case::silent(&[User(Edit::Chart(1)), Deliver, RollOut, User(Edit::Silent(true))], 0)]
#[case::cluster_created_again(&[User(Edit::Again), User(Edit::Target(1)), Chart, Collect], 0)]
fn a_gate_is_passed_only_by_its_ways_out(#[case] steps: &[Step], #[case] control_plane: usize) {
    let mut walk = after(&[&HELD, steps, &CALL, &CALL]);
    assert_eq!(walk.control_plane(), control_plane);
    walk.finish();
}

/// A hold that would last forever has a way out.
#[rstest]
#[case::no_row(
    System::Caaph,
    &[User(Edit::Rows(Rows::Old)), User(Edit::Chart(1)), Deliver, RollOut],
    &[User(Edit::Rows(Rows::All))]
)]
#[case::above_the_row(System::Caaph, &[User(Edit::Chart(2)), Deliver, RollOut], &[User(Edit::Rows(Rows::Alternative))])]
#[case::never_at_rest(
    System::HelmRelease,
    &[User(Edit::Chart(1)), Deliver, RollOut, Delivery(Delivery::Begin), Delivery(Delivery::Kill)],
    &[User(Edit::Mode("Audit"))]
)]
#[case::blocked_by_another_cluster(
    System::Caaph,
    &[User(Edit::Values("broken for another Cluster")), User(Edit::Chart(1)), Deliver, User(Edit::Image(1)), RollOut],
    &[User(Edit::Values("fine")), Deliver, RollOut]
)]
#[case::pods_never_replaced(
    System::Caaph,
    &[User(Edit::Chart(1)), Deliver, User(Edit::OnDelete(true)), RollOut],
    &[User(Edit::OnDelete(false)), RollOut]
)]
#[case::suspended(
    System::Kustomization,
    &[User(Edit::SuspendAt(1)), Deliver, User(Edit::Image(1)), RollOut],
    &[User(Edit::PauseRelease(false)), Deliver, RollOut]
)]
fn a_hold_ends_by_its_way_out(#[case] system: System, #[case] held: &[Step], #[case] way_out: &[Step]) {
    let mut walk = after_with(system, &[&HELD, held, &CALL, &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.take(&[way_out, &CALL, &CALL].concat());
    assert_eq!(walk.control_plane(), 1);
    walk.finish();
}

/// An open gate closes before Cluster API calls.
#[rstest]
#[case::pod_fails(&[Available(1, false), Count])]
#[case::chart_moves_on(&[User(Edit::Chart(2)), Deliver])]
#[case::target_moves_back(&[User(Edit::Back)])]
#[case::row_removed(&[User(Edit::Rows(Rows::Old))])]
#[case::label_removed(&[User(Edit::Label(false))])]
#[case::release_deleted(&[User(Edit::NoRelease)])]
fn an_open_gate_closes_again(#[case] steps: &[Step]) {
    let mut walk = after(&[&OPEN.concat(), steps, &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// The same with Flux.
#[rstest]
#[case::suspended(System::HelmRelease, &[User(Edit::PauseRelease(true)), Delivery(Delivery::Observe)])]
#[case::moves_on(System::HelmRelease, &[User(Edit::Chart(2)), Deliver])]
#[case::moves_on_behind(System::HelmRelease, &[User(Edit::Chart(2)), Delivery(Delivery::BeginBehind), Delivery(Delivery::Pend)])]
#[case::deleted(System::HelmRelease, &[User(Edit::NoRelease)])]
#[case::new_commit(System::Kustomization, &[User(Edit::Commit), Chart])]
#[case::new_commit_in_progress(System::Kustomization, &[User(Edit::Commit), Chart, Delivery(Delivery::Begin), Delivery(Delivery::Pend)])]
#[case::suspended_kustomization(System::Kustomization, &[User(Edit::PauseRelease(true)), Delivery(Delivery::Observe)])]
#[case::source_moves_on(System::Kustomization, &[User(Edit::Chart(2))])]
#[case::source_deleted(System::Kustomization, &[User(Edit::NoChart)])]
fn an_open_gate_closes_again_with_flux(#[case] system: System, #[case] steps: &[Step]) {
    let mut walk = after_with(system, &[&OPEN.concat(), steps, &CALL]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// The proof of the old API server does not release the workers.
#[test]
fn workers_wait_for_a_proof_of_the_new_api_server() {
    let mut walk = after(&[
        &OPEN.concat(),
        &[Replica, ClusterApi, Roll, Available(0, false), Count],
        &CALL,
        &CALL,
    ]);
    assert_eq!(walk.control_plane(), 1);
    assert!(!walk.is_complete());
    walk.complete();
    walk.finish();
}

/// A gate before the workers holds them, and not the control plane.
#[test]
fn a_gate_before_workers_holds_the_workers() {
    let mut walk = after(&[
        &[User(Edit::NoGate), User(Edit::WorkersGate(true)), Watch(0)],
        &HELD,
        &CALL,
    ]);
    assert_eq!(walk.control_plane(), 1);
    walk.take(&[Roll]);
    walk.take(&CALL);
    walk.take(&CALL);
    assert!(!walk.is_complete());
    walk.finish();
}

/// Another process continues wherever the leader has ended, and whether or not its last request took effect.
#[test]
fn a_crash_at_any_request_changes_nothing() {
    for requests in 0..12 {
        for fault in [Fault::None, Fault::Alone, Fault::Unanswered, Fault::Refused(500)] {
            let mut walk = after(&[&HELD, &DELIVERED]);
            for _ in 0..requests {
                walk.step(Lead(0, Fault::None));
            }
            walk.take(&[Lead(0, fault), Crash(0)]);
            walk.take(&CALL);
            assert_eq!(walk.control_plane(), 1, "after {requests} requests");
            walk.finish();
        }
    }
}

/// A former leader with an old cache opens nothing that the current one has closed.
#[test]
fn a_former_leader_opens_nothing() {
    let mut walk = after(&[
        &HELD,
        &DELIVERED,
        &[Watch(1), Plan(1), Available(0, false), Count],
        &CALL,
    ]);
    assert!(!is_open(&walk));
    walk.take(&[Reconcile(1), Replica, ClusterApi]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// Each cache alone may be behind when the gate would open.
#[rstest]
#[case::cluster("clusters", &[User(Edit::Back)])]
#[case::labels("clusters", &[User(Edit::Label(false))])]
#[case::gate("upgradegates", &[User(Edit::Rows(Rows::Old))])]
#[case::record("clusterupgrades", &[User(Edit::NoRecord)])]
fn a_cache_that_is_behind_opens_nothing(#[case] kind: &str, #[case] steps: &[Step]) {
    let mut walk = after(&[&HELD, &DELIVERED, steps]);
    for other in CACHES {
        if other != kind {
            walk.step(WatchKind(0, other));
        }
    }
    walk.take(&[Reconcile(0), Replica, ClusterApi]);
    assert!(!is_open(&walk));
    assert_eq!(walk.control_plane(), 0);
    walk.finish();
}

/// Both hops need their own row, and the record of the upgrade is complete at the end.
#[rstest]
fn two_hops_need_a_row_each(
    #[values(System::Caaph, System::HelmRelease, System::Kustomization)] system: System,
    #[values(false, true)] has_extras: bool,
) {
    let mut walk = Walk::of(Setup { system, has_extras });
    walk.take(&[User(Edit::Target(2)), Watch(0), Reconcile(0), Watch(0)]);
    walk.complete();
    let record = record(&walk.servers).expect("a record");
    assert_eq!(
        (record.outcome, record.to.as_str()),
        (Some(Outcome::Completed), VERSIONS[2])
    );
    walk.finish();
}
