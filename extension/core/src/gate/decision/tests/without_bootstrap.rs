//! Releases without a ClusterBootstrap.

use super::*;

#[test]
fn a_deletion_without_bootstrap_has_nothing_to_wait_for() {
    let mut scene = Scene::released(Hook::BeforeClusterDelete);
    scene.record = None;
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        Some(HoldReason::Call(CallReason::RecordNotFound))
    );
    scene.bootstrap_generation = None;
    assert_eq!(scene.decide_by(&CLAUSES), Decision::Release);
}

#[test]
fn a_bootstrap_that_cannot_be_decoded_is_one() {
    let mut scene = Scene::released(Hook::BeforeClusterDelete);
    scene.record = None;
    scene.bootstrap_generation = None;
    scene.bootstrap_undecodable = true;
    scene.undecodable = Some(Hold::new(
        GateReason::ObjectUndecodable,
        "ClusterBootstrap team-a/one",
    ));
    let held = Some(HoldReason::Gate(GateReason::ObjectUndecodable));
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        held,
        "its packages may be installed"
    );
    scene.call.label = None;
    assert_eq!(reason(&scene.decide_by(&CLAUSES)), held, "the Cluster stays ours");
    scene.call.hook = Hook::BeforeClusterUpgrade;
    assert_eq!(reason(&scene.decide_by(&CLAUSES)), held);
}

#[test]
fn a_custom_cluster_is_created_before_its_user_made_the_bootstrap() {
    let mut scene = Scene::released(Hook::BeforeClusterCreate);
    scene.record = None;
    scene.bootstrap_generation = None;
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        Some(HoldReason::Call(CallReason::RecordNotFound))
    );
    scene.custom = true;
    assert_eq!(scene.decide_by(&CLAUSES), Decision::Release);
    scene.call.hook = Hook::BeforeClusterUpgrade;
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        Some(HoldReason::Call(CallReason::RecordNotFound))
    );
}
