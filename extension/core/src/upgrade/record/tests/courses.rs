//! Whole upgrades, step by step.

use super::*;

/// Formats the gates of one version: BeforeClusterUpgrade, BeforeControlPlaneUpgrade, AfterControlPlaneUpgrade,
/// BeforeWorkersUpgrade, AfterWorkersUpgrade, AfterClusterUpgrade; `o` is open, `x` is held, `-` is not listed.
pub(super) fn gates(record: &UpgradeRecord, version: &str) -> String {
    [
        Hook::BeforeClusterUpgrade,
        Hook::BeforeControlPlaneUpgrade,
        Hook::AfterControlPlaneUpgrade,
        Hook::BeforeWorkersUpgrade,
        Hook::AfterWorkersUpgrade,
        Hook::AfterClusterUpgrade,
    ]
    .map(|hook| match answer(record, hook, version) {
        Ok(()) => 'o',
        Err(reason) if reason == "not listed" => '-',
        Err(_) => 'x',
    })
    .iter()
    .collect()
}

fn completed_at_35() -> UpgradeRecord {
    let record = Scene::ready().toward(V35, "35-1").advance(None);
    assert_eq!(record.outcome, Some(Outcome::Completed));
    record
}

#[test]
fn one_minor_from_bump_to_completion() {
    let waiting = Scene::ready().with_package(1, PackageState::Reconciling);
    let record = waiting.advance(None);
    assert_eq!(gates(&record, V36), "xxxxxx");

    let record = Scene::ready().advance(Some(&record));
    assert_eq!(gates(&record, V36), "ooxxxx");

    let rolling = Scene::ready().with_control_plane(V36, V35);
    let record = rolling.advance(Some(&record));
    assert_eq!(gates(&record, V36), "ooxxxx");
    assert!(record.released_at.is_some());

    let reproving = Scene::ready()
        .with_control_plane(V36, V36)
        .with_package(0, PackageState::Reconciling);
    let record = reproving.advance(Some(&record));
    assert_eq!(gates(&record, V36), "ooxxxx");
    assert_eq!(
        answer(&record, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::PackagesNotReady)
    );

    let reproven = Scene::ready().with_control_plane(V36, V36);
    let record = reproven.advance(Some(&record));
    assert_eq!(gates(&record, V36), "ooooxx");
    assert_eq!(
        answer(&record, Hook::AfterWorkersUpgrade, V36),
        held_by(GateReason::WorkersUpgrading)
    );

    let mut rolled = Scene::ready().with_control_plane(V36, V36).with_workers(V36);
    rolled.workers[0].rolling = true;
    let record = rolled.advance(Some(&record));
    assert_eq!((gates(&record, V36).as_str(), record.outcome), ("oooooo", None));

    rolled.workers[0].rolling = false;
    let record = rolled.advance(Some(&record));
    assert_eq!(
        (gates(&record, V36).as_str(), record.outcome),
        ("oooooo", Some(Outcome::Completed))
    );
    assert!(record.completed_at.is_some());
}

#[test]
fn pools_that_are_deferred_are_named_once_no_other_is_left() {
    let pool = |name: &str, version: &str, deferred| WorkerFacts {
        pool: name.to_owned(),
        deferred,
        ..worker(version)
    };
    let says = |workers: &[WorkerFacts]| {
        let proven = Scene {
            workers: workers.to_vec(),
            ..Scene::ready().with_control_plane(V36, V36)
        };
        let record = proven.advance(Some(&Scene::ready().advance(None)));
        assert_eq!(record.outcome, None);
        let mut gates = record.gates.into_iter();
        let gate = gates.find(|gate| gate.hook == Hook::AfterWorkersUpgrade && gate.version == V36);
        gate.map(|gate| (gate.reason, gate.message)).unwrap()
    };
    let (reason, _) = says(&[pool("a", V35, false), pool("b", V35, true)]);
    assert_eq!(reason, "WorkersUpgrading");
    let others = [pool("a", V36, false), pool("b", V35, true), pool("c", V35, true)];
    assert_eq!(says(&others), ("WorkersDeferred".to_owned(), "b, c".to_owned()));
    let many: Vec<WorkerFacts> = (0..13).map(|each| pool(&format!("p{each}"), V35, true)).collect();
    let (_, pools) = says(&many);
    assert!(
        pools.starts_with("p0, p1, ") && pools.ends_with(", p11 and more"),
        "{pools}"
    );
}

#[test]
fn two_minors_one_after_the_other() {
    let plan = Plan::Listed([V34, V35, V36].map(str::to_owned).to_vec());
    let scene = || {
        let mut scene = Scene::ready().with_control_plane(V34, V34).with_workers(V34);
        scene.plan.clone_from(&plan);
        scene.tkr = Ok("35-1".into());
        scene.bootstrap.resolved_tkr = Some("35-1");
        scene
    };
    let record = scene().advance(None);
    assert_eq!((record.hop.as_deref(), record.to.as_str()), (Some(V35), V36));
    assert_eq!(
        (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
        ("ooxxx-", "------")
    );

    let record = scene().with_control_plane(V35, V34).advance(Some(&record));
    let record = scene()
        .with_control_plane(V35, V35)
        .with_package(0, PackageState::Applied)
        .advance(Some(&record));
    assert_eq!(
        (record.hop.as_deref(), gates(&record, V35).as_str()),
        (Some(V35), "ooxxx-")
    );

    // Proven on the first hop: next is the second hop, whose packages are not known yet.
    let record = scene().with_control_plane(V35, V35).advance(Some(&record));
    assert_eq!(
        (record.hop.as_deref(), gates(&record, V35).as_str()),
        (Some(V36), "ooooo-")
    );
    assert_eq!(
        answer(&record, Hook::BeforeControlPlaneUpgrade, V36),
        held_by(GateReason::PackagesUnknown)
    );

    let second = |spec: &str, status: &str| {
        let mut second = scene().with_control_plane(spec, status);
        second.tkr = Ok("36-1".into());
        second.bootstrap.resolved_tkr = Some("36-1");
        second
    };
    let record = second(V35, V35)
        .with_package(0, PackageState::Applied)
        .advance(Some(&record));
    assert_eq!(
        (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
        ("ooooo-", "xxxxxx")
    );
    let record = second(V35, V35).advance(Some(&record));
    let record = second(V36, V35).advance(Some(&record));
    let record = second(V36, V36).advance(Some(&record));
    assert_eq!(
        (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
        ("ooooo-", "ooooxx")
    );

    let record = second(V36, V36).with_workers(V36).advance(Some(&record));
    assert_eq!(record.outcome, Some(Outcome::Completed));
    assert_eq!(
        (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
        ("------", "oooooo")
    );
    assert_eq!(record.from.as_deref(), Some(V34));
}

#[test]
fn a_first_installation() {
    let mut scene = Scene::ready().with_control_plane("", "");
    scene.judged = None;
    scene.workers = vec![];
    scene.workload = Workload::NotYet(Hold::new(GateReason::KubeconfigNotFound, ""));
    scene.problem = Some(Hold::new(GateReason::ValuesNotFound, ""));
    let record = scene.advance(None);
    assert_eq!(
        answer(&record, Hook::BeforeClusterCreate, V36),
        held_by(GateReason::ValuesNotFound)
    );
    assert_eq!(
        (record.from.as_deref(), gates(&record, V36).as_str()),
        (None, "--xxxx")
    );
    scene.problem = Some(Hold::new(GateReason::ValuesNotReady, ""));
    let record = scene.advance(Some(&record));
    assert_eq!(
        answer(&record, Hook::BeforeClusterCreate, V36),
        Ok(()),
        "values may need infrastructure that is not there before"
    );

    scene.control_plane = versions(V36, "");
    scene.problem = Some(Hold::new(GateReason::ValuesNotFound, ""));
    let record = scene.advance(Some(&record));
    assert_eq!(
        answer(&record, Hook::BeforeClusterCreate, V36),
        Ok(()),
        "what is created is created"
    );

    let installing = Scene::ready()
        .with_control_plane(V36, V36)
        .with_package(1, PackageState::Reconciling);
    let record = installing.advance(Some(&record));
    assert_eq!((record.outcome, gates(&record, V36).as_str()), (None, "--xxxx"));
    let record = Scene::ready()
        .with_control_plane(V36, V36)
        .with_workers(V36)
        .advance(Some(&record));
    assert_eq!(
        (record.outcome, record.from.as_deref()),
        (Some(Outcome::Completed), None)
    );
}

#[test]
fn a_target_that_moves_before_the_first_is_installed() {
    let installing = Scene::ready()
        .toward(V35, "35-1")
        .with_control_plane("", "")
        .advance(None);
    let settled = Scene::ready()
        .toward(V35, "35-1")
        .with_package(1, PackageState::Failed)
        .advance(Some(&installing));
    assert_eq!((settled.from.as_deref(), settled.outcome), (None, None));
    let mut moved = Scene::ready();
    moved.cluster.generation = 9;
    let record = moved.advance(Some(&settled));
    assert_eq!(
        (record.from.as_deref(), record.hop.as_deref()),
        (Some(V35), Some(V36))
    );
    assert_eq!(gates(&record, V36), "ooxxxx");
    assert_eq!(
        gates(&record, V35),
        "--ooo-",
        "proven on the running version by the packages of the next"
    );
}

#[test]
fn a_bump_of_a_completed_cluster_begins_a_new_record() {
    let before = completed_at_35();
    let mut scene = Scene::ready().with_package(0, PackageState::Pending);
    scene.cluster.generation = 9;
    scene.now = at(NOW + 500);
    let record = scene.advance(Some(&before));
    assert_eq!(
        (
            record.from.as_deref(),
            record.outcome,
            record.completed_at.clone()
        ),
        (Some(V35), None, None)
    );
    assert_eq!(record.started_at, Some(Time(at(NOW + 500))));
    assert_eq!(gates(&record, V36), "xxxxxx");
    assert_eq!(
        gates(&record, V35),
        "ooooo-",
        "a hook of the running version may still be pending"
    );
}

#[test]
fn a_target_moved_back_closes_the_record_and_keeps_the_packages() {
    let begun = Scene::ready()
        .with_package(1, PackageState::Reconciling)
        .advance(None);
    let mut scene = Scene::ready();
    scene.cluster.topology_version = V35;
    scene.cluster.generation = 8;
    scene.cluster.label = "35-1";
    scene.tkr = Err(Hold::new(GateReason::NoTKRForHop, ""));
    scene = scene.with_package(1, PackageState::Reconciling);
    let record = scene.advance(Some(&begun));
    assert_eq!(record.outcome, Some(Outcome::Cancelled));
    assert_eq!(
        (record.to.as_str(), record.hop.as_deref(), record.tkr.as_deref()),
        (V35, Some(V36), Some("36-1"))
    );
    assert_eq!(
        gates(&record, V36),
        "------",
        "nothing of the cancelled version is released"
    );
    assert_eq!(gates(&record, V35), "--xxxx");

    scene.judged = Scene::ready().judged;
    let record = scene.advance(Some(&record));
    assert_eq!(
        (record.outcome, gates(&record, V35).as_str()),
        (Some(Outcome::Cancelled), "--oooo")
    );

    let mut again = Scene::ready().with_package(0, PackageState::Pending);
    again.cluster.generation = 9;
    let record = again.advance(Some(&record));
    assert_eq!(
        (record.outcome, record.to.as_str(), gates(&record, V36).as_str()),
        (None, V36, "xxxxxx")
    );
}

#[test]
fn another_release_of_the_same_version_begins_a_new_record() {
    let before = completed_at_35();
    let mut scene = Scene::ready()
        .toward(V35, "35-2")
        .with_package(1, PackageState::Pending);
    scene.cluster.label = "35-2";
    let record = scene.advance(Some(&before));
    assert_eq!((record.outcome, record.tkr.as_deref()), (None, Some("35-2")));
    assert_eq!(
        gates(&record, V35),
        "oooxoo",
        "what is released stays released, but workers wait for the new packages"
    );
}

#[test]
fn a_completed_record_is_not_reopened_by_a_resync_a_failure_or_a_label_that_comes_early() {
    let before = completed_at_35();
    let mut scene = Scene::ready().toward(V35, "35-1");
    assert_eq!(scene.advance(Some(&before)), before);
    scene = scene.with_package(1, PackageState::Failed);
    let failed = scene.advance(Some(&before));
    assert_eq!(
        (failed.outcome, &failed.gates),
        (Some(Outcome::Completed), &before.gates)
    );
    scene.tkr = Err(Hold::new(GateReason::NoTKRForHop, ""));
    scene.judged = None;
    scene.cluster.label = "36-1";
    let early = scene.advance(Some(&before));
    assert_eq!(
        (early.outcome, early.tkr.as_deref(), early.label.as_str()),
        (Some(Outcome::Completed), Some("35-1"), "36-1")
    );
    assert_eq!(early.packages, before.packages);
}

#[test]
fn a_missing_status_reverts_nothing() {
    let begun = Scene::ready().advance(None);
    let record = Scene::ready().with_control_plane(V35, "").advance(Some(&begun));
    assert_eq!(record.hop.as_deref(), Some(V36));
    assert_eq!(
        answer(&record, Hook::BeforeControlPlaneUpgrade, V36),
        held_by(GateReason::ControlPlaneCreating)
    );
    assert_eq!(Scene::ready().advance(Some(&record)).gates, begun.gates);
}

#[test]
fn a_record_lost_between_hops_still_has_the_pending_gates() {
    let mut scene = Scene::ready();
    scene.plan = Plan::Listed([V34, V35, V36].map(str::to_owned).to_vec());
    let record = scene
        .clone()
        .with_package(1, PackageState::Reconciling)
        .advance(None);
    assert_eq!(
        (record.hop.as_deref(), gates(&record, V35).as_str()),
        (Some(V36), "--xxx-")
    );
    let record = scene.advance(Some(&record));
    assert_eq!(
        (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
        ("--ooo-", "ooxxxx")
    );
}

#[test]
fn a_deletion_waits_for_the_packages_to_be_gone() {
    let mut scene = Scene::ready();
    assert_eq!(
        answer(&scene.advance(None), Hook::BeforeClusterDelete, V36),
        Err("not listed".into())
    );
    scene.cluster.deleting = true;
    let record = scene.advance(None);
    assert_eq!(
        answer(&record, Hook::BeforeClusterDelete, V36),
        held_by(GateReason::UninstallInProgress)
    );
    assert_eq!(
        answer(&record, Hook::BeforeControlPlaneUpgrade, V36),
        held_by(GateReason::ClusterDeleting)
    );
    scene.problem = Some(hold(GateReason::WorkloadUnreachable));
    let record = scene.advance(Some(&record));
    let gate = record
        .gates
        .iter()
        .find(|gate| gate.hook == Hook::BeforeClusterDelete);
    let said = gate.map(|gate| (gate.reason.as_str(), gate.message.as_str()));
    assert_eq!(said, Some(("WorkloadUnreachable", "given by the controller")));
    scene.uninstalled = true;
    assert_eq!(
        answer(&scene.advance(Some(&record)), Hook::BeforeClusterDelete, V36),
        Ok(())
    );

    let mut completed = Scene::ready().toward(V35, "35-1");
    completed.cluster.deleting = true;
    let record = completed.advance(Some(&completed_at_35()));
    assert_eq!(
        answer(&record, Hook::BeforeClusterDelete, V35),
        held_by(GateReason::UninstallInProgress)
    );
}

#[test]
fn times_are_of_the_first_time() {
    let first = Scene::ready().advance(None);
    let mut later = Scene::ready();
    later.now = at(NOW + 100);
    assert_eq!(later.advance(Some(&first)), first);

    let again = later
        .clone()
        .with_package(1, PackageState::Reconciling)
        .advance(Some(&first));
    assert_eq!(
        (again.ready_at.clone(), again.started_at.clone()),
        (None, first.started_at.clone())
    );
    assert_eq!(later.advance(Some(&again)).ready_at, Some(Time(at(NOW + 100))));
    let mut redigested = later.clone();
    redigested.judged.as_mut().unwrap()[1].record.values_digest = "e".into();
    assert_eq!(
        redigested.advance(Some(&first)).ready_at,
        Some(Time(at(NOW + 100)))
    );
}

/// A target may change during an upgrade if Cluster API is configured not to check it.
#[test]
fn workers_that_were_held_stay_so_when_the_target_moves_on_and_back() {
    let on_the_new = Scene::ready().with_control_plane(V36, V36);
    let proven = on_the_new.advance(None);
    assert_eq!(answer(&proven, Hook::BeforeWorkersUpgrade, V36), Ok(()));
    let failed = on_the_new.with_package(1, PackageState::Failed);
    let record = failed.advance(Some(&proven));
    assert_eq!(
        answer(&record, Hook::BeforeWorkersUpgrade, V36),
        held_by(GateReason::PackageFailed)
    );

    let moved_on = failed.clone().toward("v1.37.1", "37-1");
    let record = moved_on.advance(Some(&record));
    assert_eq!(record.hop.as_deref(), Some("v1.37.1"));
    assert_eq!(
        answer(&record, Hook::BeforeWorkersUpgrade, V36),
        held_by(GateReason::PackageFailed)
    );
    let moved_back = Scene {
        cluster: ClusterFacts {
            topology_version: V36,
            generation: moved_on.cluster.generation + 1,
            ..moved_on.cluster.clone()
        },
        ..failed
    };
    let record = moved_back.advance(Some(&record));
    for hook in [Hook::BeforeWorkersUpgrade, Hook::AfterWorkersUpgrade] {
        assert_eq!(answer(&record, hook, V36), held_by(GateReason::PackageFailed));
    }

    let proven = Scene {
        judged: Scene::ready().judged,
        ..moved_back
    };
    let record = proven.advance(Some(&record));
    assert_eq!(answer(&record, Hook::BeforeWorkersUpgrade, V36), Ok(()));
}

fn message<'a>(record: &'a UpgradeRecord, hook: Hook, version: &str) -> Option<&'a str> {
    let mut gates = record.gates.iter();
    let gate = gates.find(|gate| gate.hook == hook && gate.version == version)?;
    Some(&gate.message)
}

/// Cluster API waits forever for machines that report a build of their version as another version.
#[test]
fn the_step_after_workers_that_report_another_build_names_both_versions() {
    let with_workers = |reported: &[&str]| {
        let mut scene = Scene::ready();
        let versions = reported.iter().map(|version| (*version).to_owned());
        scene.workers[0].versions = versions.collect();
        scene.workers[0].rolling = true;
        scene
    };
    let scene = with_workers(&[V35, "v1.35.4+k0s"]);
    let waits = scene.advance(None);
    assert_eq!(waits.hop.as_deref(), Some(V35));
    for hook in BEFORE {
        assert_eq!(answer(&waits, hook, V36), held_by(GateReason::WorkersUpgrading));
        assert_eq!(
            message(&waits, hook, V36),
            Some("waiting for md to be at v1.35.4, its machines report v1.35.4+k0s")
        );
    }
    assert_eq!(scene.advance(Some(&waits)), waits);
    let outdated = with_workers(&[V35]).advance(Some(&waits));
    assert_eq!(
        message(&outdated, Hook::BeforeClusterUpgrade, V36),
        Some("waiting for all machines of md to be up to date, they report v1.35.4")
    );
    // The rest of a rollout, whose messages do not change with each worker.
    let rolls = with_workers(&[V34, V35]).advance(Some(&outdated));
    assert_eq!(
        answer(&rolls, Hook::BeforeClusterUpgrade, V36),
        Err("not listed".into())
    );
    let settled = Scene::ready().advance(Some(&rolls));
    assert_eq!(answer(&settled, Hook::BeforeClusterUpgrade, V36), Ok(()));
}

/// A paused MachineDeployment that is scaled before the first package of an upgrade is written.
#[rstest]
#[case::reported(&[V35])]
#[case::before_1_14(&[])]
fn a_worker_whose_last_change_is_not_observed_is_named(#[case] reported: &[&str]) {
    let mut scene = Scene::ready();
    scene.workers[0].versions = reported.iter().map(|version| (*version).to_owned()).collect();
    (scene.workers[0].rolling, scene.workers[0].rollout.is_outdated) = (true, true);
    let waits = scene.advance(None);
    for hook in BEFORE {
        assert_eq!(answer(&waits, hook, V36), held_by(GateReason::WorkersUpgrading));
        assert_eq!(
            message(&waits, hook, V36),
            Some("waiting for Cluster API to observe the last change of md, which may be paused")
        );
    }
    let observed = Scene::ready().advance(Some(&waits));
    assert_eq!(answer(&observed, Hook::BeforeClusterUpgrade, V36), Ok(()));
}

#[test]
fn a_control_plane_that_reports_another_build_is_named_with_both_versions() {
    let at = |reported| Scene::ready().with_control_plane(V35, reported).advance(None);
    let waits = at("v1.35.4-eks-1");
    assert_eq!(
        message(&waits, Hook::AfterControlPlaneUpgrade, V35),
        Some("waiting for the control plane to be at v1.35.4, it reports v1.35.4-eks-1")
    );
    let rolls = at(V34);
    assert_eq!(
        message(&rolls, Hook::AfterControlPlaneUpgrade, V35),
        Some("waiting for the control plane to be at v1.35.4")
    );
    let settled = at("v1.35.4+k0s");
    assert_eq!(settled.from.as_deref(), Some(V35));
    assert_eq!(answer(&settled, Hook::BeforeControlPlaneUpgrade, V36), Ok(()));
}

/// The packages that were proven before the control plane left the version are not deployed again while it does.
#[test]
fn a_control_plane_that_reports_a_build_passes_its_version() {
    let settled = Scene::ready().with_control_plane(V35, "v1.35.4+k0s");
    let record = settled.advance(None);
    let rolls = Scene::ready().with_control_plane(V36, "v1.35.4+k0s");
    let progress = observed_progress(Some(&record), &rolls.observed());
    assert_eq!(progress.stage(), Some(V35));
    let record = rolls.advance(Some(&record));
    assert_eq!(answer(&record, Hook::AfterControlPlaneUpgrade, V35), Ok(()));
    assert_eq!(
        answer(&record, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::ControlPlaneUpgrading)
    );
}
