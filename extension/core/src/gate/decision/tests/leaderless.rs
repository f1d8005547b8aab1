//! Calls while no replica leads.

use super::*;

#[test]
fn what_rests_on_no_look_is_released_without_a_leader() {
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
fn a_cluster_of_others_needs_no_leader() {
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
fn what_is_held_anyway_keeps_its_reason() {
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
