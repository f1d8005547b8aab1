//! Rollback of the packages of a cancelled upgrade.

use super::courses::gates;
use super::*;

pub(super) const OLD: &str = "35-1";

fn to_old() -> Rollback {
    Rollback {
        hop: V36.to_owned(),
        release: OLD.to_owned(),
    }
}

impl Scene {
    /// The upgrade to v1.36.3 moved back to v1.35.4, whose packages are not restored yet.
    fn cancelled() -> Self {
        let mut scene = Self::ready();
        scene.cluster.generation = 8;
        (scene.cluster.topology_version, scene.cluster.label) = (V35, OLD);
        scene
    }

    /// The same while its packages go back. The ClusterBootstrap has those of the snapshot.
    pub(super) fn rolling_back() -> Self {
        let mut scene = Self::cancelled();
        scene.bootstrap.generation = 13;
        (scene.tkr, scene.bootstrap.resolved_tkr) = (Ok(OLD.into()), Some(OLD));
        scene.rollback = Some(to_old());
        scene
    }

    /// The same before the ClusterBootstrap is written.
    pub(super) fn recording() -> Self {
        let mut scene = Self::rolling_back();
        scene.bootstrap = Self::cancelled().bootstrap;
        scene.problem = Some(rollback::not_recorded());
        scene
    }
}

/// The record of an upgrade that began at v1.35.4, whose gates are open.
fn begun() -> UpgradeRecord {
    let before = Scene::ready().toward(V35, OLD).advance(None);
    assert_eq!(before.outcome, Some(Outcome::Completed));
    let mut scene = Scene::ready();
    scene.cluster.generation = 8;
    scene.now = at(NOW + 10);
    scene.advance(Some(&before))
}

pub(super) fn cancelled() -> UpgradeRecord {
    let record = Scene::cancelled().advance(Some(&begun()));
    assert_eq!(
        (record.outcome, gates(&record, V35).as_str()),
        (Some(Outcome::Cancelled), "oooooo")
    );
    record
}

fn recorded() -> UpgradeRecord {
    Scene::recording().advance(Some(&cancelled()))
}

fn reasons(record: &UpgradeRecord) -> Vec<&str> {
    let closed = record.gates.iter().filter(|gate| !gate.open);
    let mut reasons: Vec<&str> = closed.map(|gate| gate.reason.as_str()).collect();
    reasons.dedup();
    reasons
}

/// Workers may lag behind the control plane, as in an upgrade over several versions.
#[test]
fn workers_wait_until_cluster_api_has_reconciled_the_cancellation() {
    let mut scene = Scene::cancelled();
    scene.awaits_rollback = true;
    let waiting = scene.advance(Some(&begun()));
    assert_eq!(
        (waiting.outcome, gates(&waiting, V35).as_str()),
        (Some(Outcome::Cancelled), "ooxxoo")
    );
    assert_eq!(reasons(&waiting), ["RollbackInProgress"]);
    assert_eq!(scene.advance(Some(&waiting)), waiting, "while it waits");
    let recorded = Scene::recording().advance(Some(&waiting));
    assert_eq!(gates(&recorded, V35), "ooxxxx");
    // The policy has changed to Keep.
    let kept = Scene::cancelled().advance(Some(&waiting));
    assert_eq!(gates(&kept, V35), "oooooo");
}

#[test]
fn packages_go_back_and_are_proven_before_the_gates_of_the_version_open_again() {
    let cancelled = cancelled();
    let mut scene = Scene::recording();
    scene.now = at(NOW + 20);
    let record = scene.advance(Some(&cancelled));
    assert_eq!(gates(&record, V35), "ooxxxx", "before any package changes");
    assert_eq!(reasons(&record), ["RollbackInProgress"]);
    assert_eq!(gates(&record, V36), "------");
    assert_eq!((record.outcome, &record.rollback), (None, &Some(to_old())));
    assert_eq!(
        (
            record.from.as_deref(),
            record.to.as_str(),
            record.hop.as_deref(),
            record.tkr.as_deref()
        ),
        (Some(V35), V35, Some(V35), Some(OLD))
    );
    assert_eq!(record.started_at, cancelled.started_at, "both are one upgrade");
    assert_eq!(record.completed_at, None);
    assert_eq!(scene.advance(Some(&record)), record);

    let deploying = Scene::rolling_back().with_package(1, PackageState::Reconciling);
    let record = deploying.advance(Some(&record));
    assert_eq!((record.outcome, gates(&record, V35).as_str()), (None, "ooxxxx"));
    assert_eq!(reasons(&record), ["RollbackInProgress"]);

    let failed = Scene::rolling_back().with_package(1, PackageState::Failed);
    let record = failed.advance(Some(&record));
    assert_eq!(reasons(&record), ["PackageFailed"]);

    let record = Scene::rolling_back().advance(Some(&record));
    assert_eq!(
        (record.outcome, gates(&record, V35).as_str()),
        (Some(Outcome::RolledBack), "oooooo")
    );
    assert_eq!(record.rollback, Some(to_old()));
    assert_eq!(record.started_at, cancelled.started_at);
    assert!(record.completed_at.is_some());

    // The decision ends with the record.
    let mut at_rest = Scene::rolling_back();
    at_rest.rollback = None;
    assert_eq!(at_rest.advance(Some(&record)), record);
}

/// The cancellation is observed by Cluster API before a reconcile has closed the record.
#[test]
fn a_rollback_begins_from_an_open_record_as_well() {
    let record = Scene::recording().advance(Some(&begun()));
    let expected = recorded();
    assert_eq!(record.gates, expected.gates);
    assert_eq!((record.outcome, record.rollback), (None, expected.rollback));
    assert_eq!(record.started_at, begun().started_at);
}

#[rstest]
#[case::judged_for_the_hop(|s: &mut Scene| s.judged_for.1 = Some(V36), "PackagesUnknown")]
#[case::judged_for_the_cancelled_release(|s: &mut Scene| s.judged_for.0 = Some("36-1"), "PackagesUnknown")]
#[case::kept_from_the_addons_manager(|s: &mut Scene| s.judged.as_mut().unwrap()[1].kept = true, "PackagesUnknown")]
#[case::not_judged(|s: &mut Scene| s.judged = None, "PackagesUnknown")]
#[case::not_restored(|s: &mut Scene| s.bootstrap.resolved_tkr = Some("36-1"), "BootstrapNotMerged")]
#[case::old_release_gone(|s: &mut Scene| s.tkr = Err(hold(GateReason::TKRNotFound)), "TKRNotFound")]
#[case::old_package_gone(|s: &mut Scene| s.problem = Some(hold(GateReason::PackageNotFound)), "PackageNotFound")]
#[case::paused(|s: &mut Scene| s.cluster.paused = true, "ClusterPaused")]
#[case::workload_silent(|s: &mut Scene| s.workload = silent_for(1), "WorkloadUnreachable")]
#[case::first_not_ready(|s: &mut Scene| *s = s.clone().with_package(0, PackageState::Pending), "RollbackInProgress")]
#[case::later_phase_not_ready(
    |s: &mut Scene| {
        *s = s.clone().with_package(1, PackageState::Applied);
        s.judged.as_mut().unwrap()[1].phase = Phase::AfterControlPlane;
    },
    "RollbackInProgress"
)]
fn an_unproven_package_set_opens_no_gate_of_the_version(#[case] edit: Edit, #[case] reason: &str) {
    let mut scene = Scene::rolling_back();
    edit(&mut scene);
    for previous in [cancelled(), begun(), recorded()] {
        let record = scene.advance(Some(&previous));
        assert_eq!((record.outcome, gates(&record, V35).as_str()), (None, "ooxxxx"));
        assert_eq!(reasons(&record), [reason]);
    }
}

/// An annotation that holds starts holds no rollback: the control plane has the version.
#[test]
fn a_held_start_holds_no_rollback() {
    let mut scene = Scene::rolling_back();
    scene.cluster.start_held = true;
    assert_eq!(
        scene.advance(Some(&recorded())).outcome,
        Some(Outcome::RolledBack)
    );
}

/// A chain was cancelled after its first step, with workers at the version before it.
#[test]
fn workers_that_lag_behind_wait_for_the_packages_that_go_back() {
    let mut scene = Scene::recording().with_workers(V34);
    let record = scene.advance(Some(&cancelled()));
    assert_eq!(gates(&record, V35), "ooxxxx");
    scene = Scene::rolling_back().with_workers(V34);
    let held = scene
        .clone()
        .with_package(1, PackageState::Applied)
        .advance(Some(&record));
    assert_eq!(gates(&held, V35), "ooxxxx");
    let record = scene.advance(Some(&held));
    assert_eq!((record.outcome, gates(&record, V35).as_str()), (None, "ooooxx"));
    assert_eq!(reasons(&record), ["WorkersUpgrading"]);
    // A package fails before they move.
    let failed = scene.with_package(1, PackageState::Failed).advance(Some(&record));
    assert_eq!(gates(&failed, V35), "oooxxx");
    let mut rolls = Scene::rolling_back();
    rolls.workers[0].rolling = true;
    let record = rolls.advance(Some(&record));
    assert_eq!((record.outcome, gates(&record, V35).as_str()), (None, "oooooo"));
    let record = Scene::rolling_back().advance(Some(&record));
    assert_eq!(record.outcome, Some(Outcome::RolledBack));
}

#[test]
fn an_upgrade_that_begins_again_drops_the_rollback() {
    let again = |scene: Scene| {
        let mut scene = scene;
        scene.cluster.generation = 9;
        scene.bootstrap.generation = 13;
        scene
    };
    for previous in [
        recorded(),
        Scene::rolling_back()
            .with_package(0, PackageState::Pending)
            .advance(Some(&recorded())),
    ] {
        let record = again(Scene::ready().with_package(1, PackageState::Pending)).advance(Some(&previous));
        assert_eq!((&record.rollback, record.outcome), (&None, None));
        assert_eq!(
            (record.from.as_deref(), record.hop.as_deref()),
            (Some(V35), Some(V36))
        );
        assert_eq!(
            (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
            ("ooxxx-", "xxxxxx")
        );
        assert_eq!(record.started_at, previous.started_at);
        let record = again(Scene::ready()).advance(Some(&record));
        assert_eq!(
            (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
            ("ooooo-", "ooxxxx")
        );
    }
    let rolled_back = Scene::rolling_back().advance(Some(&recorded()));
    let mut scene = again(Scene::ready());
    scene.now = at(NOW + 99);
    let record = scene.advance(Some(&rolled_back));
    assert_eq!(record.started_at, Some(Time(at(NOW + 99))), "another upgrade");
    assert_eq!(
        (&record.rollback, gates(&record, V36).as_str()),
        (&None, "ooxxxx")
    );
}

/// Cancelled, bumped and cancelled again: packages on their way back open no gate, whatever the record is called.
#[test]
fn a_second_cancellation_does_not_open_what_the_first_has_closed() {
    let mut bumped = Scene::ready();
    (bumped.cluster.generation, bumped.bootstrap.generation) = (9, 13);
    bumped.tkr = Err(hold(GateReason::NoTKRForHop));
    bumped.bootstrap.resolved_tkr = Some(OLD);
    bumped.judged = None;
    let record = bumped.advance(Some(&recorded()));
    assert_eq!(gates(&record, V35), "ooxxx-");
    let mut scene = Scene::rolling_back().with_package(1, PackageState::Applied);
    scene.cluster.generation = 10;
    scene.rollback = None;
    let record = scene.advance(Some(&record));
    assert_eq!(
        (record.outcome, gates(&record, V35).as_str()),
        (Some(Outcome::Cancelled), "ooxxxx")
    );
    scene.judged = Scene::ready().judged;
    assert_eq!(gates(&scene.advance(Some(&record)), V35), "oooooo");
}

/// A reconcile of Cluster API that began before the cancellation writes the hop after it.
#[test]
fn a_hop_that_is_taken_all_the_same_holds_until_its_packages_are_proven() {
    let mut scene = Scene::cancelled().with_control_plane(V36, V35);
    scene.bootstrap.generation = 13;
    let record = scene
        .with_package(1, PackageState::Pending)
        .advance(Some(&recorded()));
    assert_eq!((&record.rollback, record.outcome), (&None, None));
    assert_eq!(record.hop.as_deref(), Some(V36));
    assert_eq!(
        answer(&record, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::ControlPlaneUpgrading)
    );
    let mut there = Scene::cancelled().with_control_plane(V36, V36);
    there.bootstrap.generation = 14;
    let record = there.advance(Some(&record));
    assert_eq!(
        answer(&record, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::DowngradeNotSupported)
    );
    assert_eq!(record.outcome, None);
    there.cluster.topology_version = V36;
    let unproven = there
        .clone()
        .with_package(1, PackageState::Applied)
        .advance(Some(&record));
    assert_eq!(
        answer(&unproven, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::PackagesNotReady)
    );
    let record = there.advance(Some(&unproven));
    assert_eq!(answer(&record, Hook::AfterControlPlaneUpgrade, V36), Ok(()));
}

#[test]
fn a_missing_status_of_the_control_plane_ends_no_rollback() {
    let mut scene = Scene::rolling_back().with_control_plane(V35, "");
    scene.rollback = None;
    let unknown = scene.advance(Some(&recorded()));
    assert_eq!((&unknown.rollback, unknown.outcome), (&Some(to_old()), None));
    assert_eq!(gates(&unknown, V35), "ooxxxx");
    let record = Scene::rolling_back().advance(Some(&unknown));
    assert_eq!(record.outcome, Some(Outcome::RolledBack));
    scene.cluster.label = "35-2";
    assert_eq!(
        scene.advance(Some(&recorded())).rollback,
        None,
        "another release is requested"
    );
}

/// A record is never about an earlier state, also not one of a leader that stopped.
#[test]
fn a_leader_with_an_outdated_cache_changes_nothing() {
    let record = recorded();
    assert_eq!(
        Scene::ready().advance(Some(&record)),
        record,
        "from before the cancellation"
    );
    let going = Scene::rolling_back()
        .with_package(1, PackageState::Applied)
        .advance(Some(&record));
    assert_eq!(
        Scene::recording().advance(Some(&going)),
        going,
        "from before the write"
    );
}

/// Without a record nothing is known of a cancellation, and every gate needs a proof.
#[test]
fn a_lost_record_opens_no_gate() {
    let mut scene = Scene::rolling_back().with_package(1, PackageState::Applied);
    scene.rollback = None;
    let record = scene.advance(None);
    assert_eq!(
        (&record.rollback, gates(&record, V35).as_str()),
        (&None, "ooxxxx")
    );
    assert_eq!(reasons(&record), ["PackagesNotReady"]);
}

#[test]
fn a_cancelled_swap_goes_back() {
    let swapped = |to: &'static str| {
        let mut scene = Scene::ready().toward(V35, to);
        scene.cluster.label = to;
        scene.swap.made_of = Some(OLD.to_owned());
        scene
    };
    let before = swapped(OLD).advance(None);
    let mut requested = swapped("35-2");
    requested.swap.request = Some(crate::upgrade::swap::SwapRequest {
        version: V35.to_owned(),
        from: OLD.to_owned(),
        to: "35-2".to_owned(),
        kept: None,
    });
    let held = requested
        .with_package(1, PackageState::Failed)
        .advance(Some(&before));
    let mut moved_back = swapped("35-2");
    moved_back.cluster.label = OLD;
    let cancelled = moved_back.advance(Some(&held));
    assert!(is_cancelled_swap(&cancelled), "{cancelled:?}");
    let mut scene = swapped(OLD).with_package(1, PackageState::Applied);
    scene.rollback = Some(Rollback {
        hop: V35.to_owned(),
        release: OLD.to_owned(),
    });
    let record = scene.advance(Some(&cancelled));
    assert_eq!((record.outcome, gates(&record, V35).as_str()), (None, "ooxxxx"));
    assert_eq!((&record.swap, &record.started_at), (&None, &cancelled.started_at));
    scene.judged = Scene::ready().judged;
    let record = scene.advance(Some(&record));
    assert_eq!(record.outcome, Some(Outcome::RolledBack));
    scene.rollback = None;
    assert_eq!(scene.advance(Some(&record)), record);
}

#[test]
fn no_package_install_of_the_addons_manager_is_kept_during_or_after_a_rollback() {
    let scene = Scene::rolling_back();
    let keeps = |record: &UpgradeRecord| {
        may_keep(
            Some(record),
            &rollback::progress(V35),
            &scene.cluster,
            &scene.workers,
            &scene.swap,
        )
    };
    let record = recorded();
    assert!(!keeps(&record));
    assert!(!keeps(&scene.advance(Some(&record))));
    let other = UpgradeRecord {
        rollback: None,
        ..record
    };
    assert!(keeps(&other), "no rollback has led there");
}

#[test]
fn a_cluster_that_cannot_be_observed_stays_in_its_rollback() {
    let open = Scene::rolling_back().with_workers(V34).advance(Some(&recorded()));
    assert_eq!(gates(&open, V35), "ooooxx");
    let closed = held_for(&open, &hold(GateReason::ControlPlaneKindUnreadable));
    assert_eq!(closed.rollback, Some(to_old()));
    assert_eq!(gates(&closed, V35), "xxoxxx");
}

/// A version that the control plane took before the cancellation, or in spite of it, was released by none of these gates.
#[test]
fn versions_at_the_end_of_a_rollback_were_released() {
    let rolled_back = Scene::rolling_back().advance(Some(&recorded()));
    for record in [recorded(), rolled_back] {
        assert_eq!(ungated(Some(&record), &[], &Scene::rolling_back().observed()), []);
        let taken = Scene::rolling_back().with_control_plane(V36, V35);
        assert_eq!(ungated(Some(&record), &[], &taken.observed()).len(), 1);
    }
}

proptest! {
    /// Whatever happens to its packages, a rollback opens AfterControlPlaneUpgrade and BeforeWorkersUpgrade only with all of them proven.
    #[test]
    fn no_gate_of_the_version_opens_before_the_proof(
        scenes in prop::collection::vec(
            (
                prop::array::uniform2(prop::sample::select(vec![
                    PackageState::Pending, PackageState::Applied, PackageState::Reconciling, PackageState::Failed,
                    PackageState::Ready,
                ])),
                prop::sample::select(vec![Some("35-1"), Some("36-1"), None]),
                prop::sample::select(vec!["35-1", "36-1"]),
                prop::sample::select(vec![V34, V35]),
            ),
            1..6,
        ),
    ) {
        let mut record = cancelled();
        let mut was_proven = false;
        for (states, merged, judged_for, workers) in scenes {
            let mut scene = Scene::rolling_back().with_workers(workers);
            scene = scene.with_package(0, states[0]).with_package(1, states[1]);
            scene.bootstrap.resolved_tkr = merged;
            scene.judged_for.0 = Some(judged_for);
            let is_proven = states == [PackageState::Ready; 2] && merged == Some(OLD) && judged_for == OLD;
            record = scene.advance(Some(&record));
            was_proven |= is_proven;
            for hook in [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade] {
                prop_assert!(was_proven || answer(&record, hook, V35).is_err(), "{record:?}");
            }
            prop_assert!(was_proven || record.outcome.is_none());
        }
    }
}
