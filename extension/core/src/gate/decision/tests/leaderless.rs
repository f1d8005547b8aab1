//! Calls while no replica leads.

use super::*;

#[test]
fn calls_that_need_no_reconcile_are_released_without_a_leader() {
    let released: Vec<Hook> = Hook::ALL
        .into_iter()
        .filter(|hook| {
            let scene = Scene {
                leaderless: true,
                ..Scene::released(*hook)
            };
            scene.decide_by(&CLAUSES) == Decision::Release
        })
        .collect();
    assert_eq!(
        released,
        [Hook::AfterControlPlaneInitialized, Hook::BeforeClusterDelete]
    );
}

#[test]
fn an_unmanaged_cluster_needs_no_leader() {
    let mut scene = Scene {
        leaderless: true,
        bootstrap_generation: None,
        record: None,
        ..Scene::released(Hook::BeforeClusterUpgrade)
    };
    scene.call.label = None;
    assert_eq!(scene.decide_by(&CLAUSES), Decision::Release);
}

#[test]
fn other_holds_keep_their_reason() {
    let mut scene = Scene {
        leaderless: true,
        ..Scene::released(Hook::BeforeControlPlaneUpgrade)
    };
    scene.record().gates.clear();
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        Some(HoldReason::Call(CallReason::VersionNotPlanned))
    );
}
