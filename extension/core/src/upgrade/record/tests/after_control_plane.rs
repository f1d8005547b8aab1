//! Holds of workers and of the end of an upgrade once the control plane is at the hop.

use super::courses::gates;
use super::*;

#[test]
fn gates_after_the_control_plane_stay_open() {
    let record = Scene::ready().with_control_plane(V36, V36).advance(None);
    let mut scene = Scene::ready()
        .with_control_plane(V36, V36)
        .with_package(1, PackageState::Failed);
    assert_eq!(
        gates(&scene.advance(Some(&record)), V36),
        "oooxxx",
        "but workers wait for a package that failed"
    );
    scene = Scene::ready()
        .with_control_plane(V36, V36)
        .with_package(1, PackageState::Reconciling);
    assert_eq!(
        gates(&scene.advance(Some(&record)), V36),
        "oooxxx",
        "and for one whose proof is gone"
    );
    scene = Scene::ready()
        .with_control_plane(V36, V36)
        .with_package(1, PackageState::Failed);
    scene.judged.as_mut().unwrap()[1].phase = Phase::AfterControlPlane;
    assert_eq!(
        gates(&scene.advance(Some(&record)), V36),
        "oooxxx",
        "of either phase"
    );
    scene = Scene::ready().with_control_plane(V36, V36);
    scene.cluster.paused = true;
    assert_eq!(gates(&scene.advance(Some(&record)), V36), "oooxxx");
}

#[rstest]
#[case::new_values((|s: &mut Scene| *s = s.clone().with_package(1, PackageState::Pending)) as fn(&mut Scene), GateReason::PackagesNotReady)]
#[case::paused_by_hand((|s: &mut Scene| *s = s.clone().with_package(1, PackageState::Applied)) as fn(&mut Scene), GateReason::PackagesNotReady)]
#[case::values_gone((|s: &mut Scene| { s.judged.as_mut().unwrap().pop(); s.problem = Some(hold(GateReason::ValuesNotFound)); }) as fn(&mut Scene), GateReason::ValuesNotFound)]
#[case::another_release_not_merged((|s: &mut Scene| s.tkr = Ok("36-2".into())) as fn(&mut Scene), GateReason::BootstrapNotMerged)]
#[case::not_looked_at((|s: &mut Scene| s.judged = None) as fn(&mut Scene), GateReason::PackagesUnknown)]
#[case::not_confirmed((|s: &mut Scene| s.workload = Workload::NotYet(hold(GateReason::WorkloadUnreachable))) as fn(&mut Scene), GateReason::WorkloadUnreachable)]
fn a_package_that_failed_holds_workers_until_it_is_proven(
    #[case] then: fn(&mut Scene),
    #[case] reason: GateReason,
) {
    let at_hop = || Scene::ready().with_control_plane(V36, V36);
    let record = at_hop().advance(None);
    let record = at_hop()
        .with_package(1, PackageState::Failed)
        .advance(Some(&record));
    assert_eq!(
        answer(&record, Hook::BeforeWorkersUpgrade, V36),
        held_by(GateReason::PackageFailed)
    );
    let mut scene = at_hop();
    then(&mut scene);
    let record = scene.advance(Some(&record));
    assert_eq!(answer(&record, Hook::BeforeWorkersUpgrade, V36), held_by(reason));
    let record = at_hop().advance(Some(&record));
    assert_eq!(answer(&record, Hook::BeforeWorkersUpgrade, V36), Ok(()));
}

#[rstest]
fn packages_that_are_replaced_once_the_control_plane_is_proven_hold_its_workers(
    #[values(
        GateReason::PackageBelowRelease,
        GateReason::PackageMissing,
        GateReason::TemplateNotFound,
        GateReason::KeptVersionsInvalid
    )]
    reason: GateReason,
) {
    let record = Scene::ready().with_control_plane(V36, V36).advance(None);
    let mut scene = Scene::ready().with_control_plane(V36, V36);
    scene.problem = Some(hold(reason));
    assert_eq!(gates(&scene.advance(Some(&record)), V36), "oooxxx");
}

#[test]
fn a_package_that_fails_while_workers_roll_holds_the_end() {
    let record = Scene::ready().with_control_plane(V36, V36).advance(None);
    let scene = Scene::ready()
        .with_control_plane(V36, V36)
        .with_workers(V36)
        .with_package(1, PackageState::Failed);
    let record = scene.advance(Some(&record));
    assert_eq!(gates(&record, V36), "oooxxx");
    assert_eq!(
        answer(&record, Hook::AfterWorkersUpgrade, V36),
        held_by(GateReason::PackageFailed)
    );
    assert_eq!(record.outcome, None);
}

#[rstest]
#[case::not_yet(1799, false)]
#[case::long_enough(1800, true)]
fn packages_that_only_applied_hold_the_end_for_half_an_hour(#[case] seconds: i64, #[case] released: bool) {
    let mut scene = Scene::ready().with_control_plane(V36, V36).with_workers(V36);
    scene.judged.as_mut().unwrap()[1].settled = false;
    let record = scene.advance(None);
    assert_eq!(
        answer(&record, Hook::AfterClusterUpgrade, V36),
        held_by(GateReason::PackagesNotSettled)
    );
    assert_eq!(answer(&record, Hook::AfterWorkersUpgrade, V36), Ok(()));
    scene.now = at(NOW + seconds);
    let record = scene.advance(Some(&record));
    assert_eq!(answer(&record, Hook::AfterClusterUpgrade, V36).is_ok(), released);
}

#[test]
fn a_run_that_fails_does_not_begin_the_half_hour_again() {
    let mut settling = Scene::ready().with_control_plane(V36, V36).with_workers(V36);
    settling.judged.as_mut().unwrap()[1].settled = false;
    let record = settling.advance(None);
    let mut failed = settling.clone().with_package(1, PackageState::Failed);
    failed.now = at(NOW + 1000);
    let record = failed.advance(Some(&record));
    assert_eq!(record.ready_at, None);
    settling.now = at(NOW + 1100);
    let record = settling.advance(Some(&record));
    assert_eq!(
        answer(&record, Hook::AfterClusterUpgrade, V36),
        held_by(GateReason::PackagesNotSettled)
    );
    settling.now = at(NOW + 1800);
    let record = settling.advance(Some(&record));
    assert_eq!(answer(&record, Hook::AfterClusterUpgrade, V36), Ok(()));
    assert_eq!(
        record.settling_since, None,
        "a completed record keeps nothing of it"
    );
}

#[test]
fn a_new_target_has_its_own_half_hour() {
    let mut settling = Scene::ready().toward(V35, "35-1");
    settling.judged.as_mut().unwrap()[1].settled = false;
    let record = settling.advance(None);
    assert_eq!(record.settling_since, Some(Time(at(NOW))));
    let mut moved = Scene::ready();
    moved.cluster.generation = 9;
    assert_eq!(moved.advance(Some(&record)).settling_since, None);
}

#[test]
fn a_reached_version_needs_the_packages_for_after_the_control_plane_too() {
    let mut scene = Scene::ready();
    scene.plan = Plan::Listed([V34, V35, V36].map(str::to_owned).to_vec());
    scene = scene.with_package(1, PackageState::Reconciling);
    scene.judged.as_mut().unwrap()[1].phase = Phase::AfterControlPlane;
    let record = scene.advance(None);
    assert_eq!(gates(&record, V36), "ooxxxx");
    assert_eq!(
        answer(&record, Hook::AfterControlPlaneUpgrade, V35),
        held_by(GateReason::PackagesNotReady)
    );
}

/// A workload cluster that does not respond neither closes nor opens the gate of its workers.
#[test]
fn workers_that_were_held_stay_so_while_the_workload_is_silent() {
    let taken = Scene::ready().with_control_plane(V36, V35).advance(None);
    let scene = Scene::ready().with_control_plane(V36, V36);
    let proven = scene.advance(Some(&taken));
    let failed = scene
        .clone()
        .with_package(1, PackageState::Failed)
        .advance(Some(&proven));
    let workers = |record: &UpgradeRecord| answer(record, Hook::BeforeWorkersUpgrade, V36);
    assert_eq!(workers(&proven), Ok(()));
    assert_eq!(workers(&failed), held_by(GateReason::PackageFailed));
    let mut silent = scene;
    silent.workload = silent_for(1);
    assert_eq!(workers(&silent.advance(Some(&proven))), Ok(()));
    assert_eq!(
        workers(&silent.advance(Some(&failed))),
        held_by(GateReason::WorkloadUnreachable)
    );
}

/// Only versions with a released control plane count, and the running version.
#[rstest]
#[case::proven(Hook::AfterControlPlaneUpgrade, true, true)]
#[case::held(Hook::AfterControlPlaneUpgrade, false, false)]
#[case::another_gate(Hook::BeforeControlPlaneUpgrade, true, false)]
fn versions_that_the_control_plane_has_reached(#[case] hook: Hook, #[case] open: bool, #[case] passed: bool) {
    let lists = |record: &UpgradeRecord, version: &str| {
        let mut gates = record.gates.iter();
        gates.any(|gate| gate.hook == Hook::AfterWorkersUpgrade && gate.version == version)
    };
    let mut before = Scene::ready().with_control_plane(V35, V35).advance(None);
    before.gates.push(Gate {
        hook,
        version: V34.into(),
        open,
        reason: String::new(),
        message: String::new(),
        overridden_by: None,
    });
    let record = Scene::ready().with_control_plane(V35, V35).advance(Some(&before));
    assert!(lists(&record, V35), "it runs");
    assert_eq!(lists(&record, V34), passed);
}
