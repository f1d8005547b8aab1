//! An annotation that holds the start of an upgrade.

use super::*;

#[rstest]
#[case::never_seen(None, true)]
#[case::held_from_the_start(Some((|s: &mut Scene| s.cluster.start_held = true) as Edit), true)]
#[case::paused_from_the_start(Some((|s: &mut Scene| { s.cluster.paused = true; s.judged = None; }) as Edit), true)]
#[case::begun(Some((|s: &mut Scene| s.judged = None) as Edit), false)]
fn an_annotation_holds_a_start_and_no_running_upgrade(#[case] before: Option<Edit>, #[case] holds: bool) {
    let before = before.map(|edit| {
        let mut scene = Scene::ready();
        edit(&mut scene);
        scene.advance(None)
    });
    let mut scene = Scene::ready();
    scene.cluster.start_held = true;
    let record = scene.advance(before.as_ref());
    let expected = if holds {
        held_by(GateReason::StartHeldByAnnotation)
    } else {
        Ok(())
    };
    assert_eq!(answer(&record, Hook::BeforeControlPlaneUpgrade, V36), expected);
}

#[test]
fn a_pause_keeps_the_begun_state() {
    let begun = Scene {
        judged: None,
        ..Scene::ready()
    }
    .advance(None);
    let mut paused = Scene::ready();
    paused.cluster.paused = true;
    let record = paused.advance(Some(&begun));
    assert_eq!(
        answer(&record, Hook::BeforeClusterUpgrade, V36),
        held_by(GateReason::ClusterPaused)
    );
    let mut scene = Scene::ready();
    scene.cluster.start_held = true;
    let record = scene.advance(Some(&record));
    assert_eq!(answer(&record, Hook::BeforeControlPlaneUpgrade, V36), Ok(()));
}

/// Leftovers of an earlier upgrade, or packages that this upgrade does not change, do not count as a start.
#[rstest]
#[case::packages_as_they_were(PackageState::Ready)]
#[case::a_package_that_is_worked_on_as_it_is(PackageState::Reconciling)]
#[case::a_package_that_failed_as_it_is(PackageState::Failed)]
fn an_annotation_holds_the_start_of_a_later_upgrade(#[case] state: PackageState) {
    let at_35 = Scene::ready().toward(V35, "35-1");
    let completed = at_35.advance(None);
    assert_eq!(completed.outcome, Some(Outcome::Completed));
    assert_eq!(answer(&completed, Hook::BeforeClusterUpgrade, V35), Ok(()));

    let mut scene = Scene::ready().with_package(1, state);
    scene.cluster.generation = at_35.cluster.generation + 1;
    scene.cluster.start_held = true;
    let held = held_by(GateReason::StartHeldByAnnotation);
    let record = scene.advance(Some(&completed));
    assert_eq!(answer(&record, Hook::BeforeControlPlaneUpgrade, V36), held);
    let record = scene.advance(Some(&record));
    assert_eq!(answer(&record, Hook::BeforeControlPlaneUpgrade, V36), held);
    let progress = crate::upgrade::hop::progress(
        Some(&scene.control_plane),
        &scene.workers,
        V36,
        &scene.plan,
        Some(&record),
    );
    let pause = pause(Some(&record), &progress, &scene.cluster, false);
    assert_eq!(
        pause.map(|hold| hold.reason),
        Some(GateReason::StartHeldByAnnotation),
        "nothing is written"
    );

    scene.cluster.start_held = false;
    let record = scene
        .clone()
        .with_package(1, PackageState::Ready)
        .advance(Some(&record));
    assert_eq!(answer(&record, Hook::BeforeControlPlaneUpgrade, V36), Ok(()));
}

#[test]
fn an_annotation_does_not_stop_a_control_plane_on_its_way() {
    let mut scene = Scene::ready().with_control_plane(V36, V36);
    scene.cluster.start_held = true;
    assert_eq!(
        answer(&scene.advance(None), Hook::AfterControlPlaneUpgrade, V36),
        Ok(())
    );
}
