//! Retry delay of a Cluster without progress.

use super::*;

/// Delay of a Cluster that has made no progress for ten hours.
fn wait_after_hours(prepare: impl FnOnce(&mut Scene)) -> u32 {
    let mut scene = Scene::released(Hook::BeforeControlPlaneUpgrade);
    scene.still = Duration::from_hours(10);
    prepare(&mut scene);
    match scene.decide_by(&CLAUSES) {
        Decision::Hold { retry_after, .. } => retry_after.seconds(),
        Decision::Release => panic!("released"),
    }
}

#[rstest]
#[case::waits_for_a_package("PackagesNotReady", true)]
#[case::package_fails("PackageFailed", true)]
#[case::workload_away("WorkloadUnreachable", true)]
#[case::no_release("NoTKRForHop", true)]
#[case::newer_reason("SomethingNewer", true)]
#[case::was_not_asked_while_paused("ClusterPaused", false)]
#[case::was_not_asked_while_held("StartHeldByAnnotation", false)]
#[case::was_not_asked_while_the_control_plane_rolled("ControlPlaneUpgrading", false)]
#[case::was_not_asked_while_workers_rolled("WorkersUpgrading", false)]
#[case::was_not_asked_while_workers_were_deferred("WorkersDeferred", false)]
fn a_stuck_cluster_is_asked_rarely_unless_the_reason_is_about_to_pass(
    #[case] reason: &str,
    #[case] rarely: bool,
) {
    let seconds = wait_after_hours(|scene| {
        let mut closed = gate(Hook::BeforeControlPlaneUpgrade, "v1.35.4", false);
        closed.reason = reason.into();
        scene.record().gates = vec![closed];
    });
    assert_eq!(seconds > 1, rarely, "{seconds} s");
}

#[rstest]
#[case::cluster(|scene: &mut Scene| scene.call.generation = 8)]
#[case::bootstrap(|scene: &mut Scene| scene.bootstrap_generation = Some(13))]
#[case::label(|scene: &mut Scene| scene.record().label = "another".into())]
#[case::hop(|scene: &mut Scene| scene.record().gates.clear())]
#[case::no_record(|scene: &mut Scene| scene.record = None)]
fn an_edit_of_a_stuck_cluster_is_asked_about_soon(#[case] edit: fn(&mut Scene)) {
    assert_eq!(wait_after_hours(edit), 1);
}

#[test]
fn a_cluster_without_its_release_may_be_stuck() {
    let seconds = wait_after_hours(|scene| {
        scene.record = None;
        scene.missing = Some(Hold::new(GateReason::TKRNotFound, "no release"));
    });
    assert!((225..=300).contains(&seconds), "{seconds} s");
}
