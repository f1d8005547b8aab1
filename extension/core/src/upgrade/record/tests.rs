use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::run::{
    KappControllerMode::{Managed, Unmanaged},
    PackageState, Phase,
};

use super::*;
use crate::reasons::GateReason;

mod after_control_plane;
mod courses;
mod overrides;
mod properties;
mod rollbacks;
mod starts;
mod swaps;

pub(super) const V34: &str = "v1.34.4";
pub(super) const V35: &str = "v1.35.4";
pub(super) const V36: &str = "v1.36.3";
const NOW: i64 = 1_000_000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Package of the set with its judgement.
pub(super) fn judged(name: &str, state: PackageState) -> Judgement {
    let reason = if state == PackageState::Ready {
        ""
    } else {
        "PackageInstallReconciling"
    };
    Judgement {
        kept: false,
        record: PackageRecord {
            name: name.into(),
            version: "1.9.0".into(),
            values_digest: "d".into(),
            state,
            reason: reason.into(),
            message: String::new(),
            app_uid: None,
            app_generation: None,
            proven_readiness: None,
            first_seen_run: None,
            repairs: 0,
        },
        phase: Phase::BeforeControlPlane,
        settled: state == PackageState::Ready,
        confirmed: false,
    }
}

/// Observed state, in values that a test can change one by one.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) cluster: ClusterFacts<'static>,
    pub(super) control_plane: ControlPlaneFacts,
    pub(super) workers: Vec<WorkerFacts>,
    pub(super) plan: Plan,
    pub(super) bootstrap: BootstrapFacts<'static>,
    pub(super) tkr: Result<String, Hold>,
    pub(super) workload: Workload<'static>,
    pub(super) judged: Option<Vec<Judgement>>,
    /// Hop, release and stage of the judgement; those of the scene, unless set.
    pub(super) judged_for: (Option<&'static str>, Option<&'static str>, Option<&'static str>),
    pub(super) problem: Option<Hold>,
    /// Hop of the release; that of the record, unless set.
    pub(super) hop: Option<&'static str>,
    /// UIDs of the existing overrides, if they are known.
    pub(super) existing: Option<Vec<String>>,
    pub(super) usable: Vec<Override>,
    pub(super) swap: SwapFacts,
    pub(super) rollback: Option<Rollback>,
    pub(super) awaits_rollback: bool,
    pub(super) uninstalled: bool,
    pub(super) now: Timestamp,
}

impl Scene {
    /// Cluster during an upgrade from v1.35.4 to v1.36.3, with every package proven.
    pub(super) fn ready() -> Self {
        Self {
            cluster: ClusterFacts {
                namespace: "team-a",
                name: "one",
                uid: "uid",
                generation: 7,
                label: "36-1",
                topology_version: V36,
                ..ClusterFacts::default()
            },
            control_plane: versions(V35, V35),
            workers: vec![worker(V35)],
            plan: Plan::Direct,
            bootstrap: BootstrapFacts {
                generation: 12,
                paused: false,
                resolved_tkr: Some("36-1"),
            },
            tkr: Ok("36-1".into()),
            workload: Workload::Reached { uid: "kube-system" },
            judged: Some(vec![
                judged("kapp-controller", PackageState::Ready),
                judged("antrea", PackageState::Ready),
            ]),
            judged_for: (None, None, None),
            problem: None,
            hop: None,
            existing: None,
            usable: Vec::new(),
            swap: SwapFacts::default(),
            rollback: None,
            awaits_rollback: false,
            uninstalled: false,
            now: at(NOW),
        }
    }

    /// The same with the control plane at these versions.
    pub(super) fn with_control_plane(mut self, spec: &str, status: &str) -> Self {
        self.control_plane = versions(spec, status);
        self
    }

    /// The same with every worker at a version.
    pub(super) fn with_workers(mut self, version: &str) -> Self {
        self.workers = vec![worker(version)];
        self
    }

    /// The same with one package in a state.
    pub(super) fn with_package(mut self, index: usize, state: PackageState) -> Self {
        let packages = self.judged.as_mut().unwrap();
        packages[index] = judged(&packages[index].record.name.clone(), state);
        self
    }

    /// The same on the way to a target by its only release.
    pub(super) fn toward(mut self, to: &'static str, hop_release: &'static str) -> Self {
        self.cluster.topology_version = to;
        self.cluster.generation += 1;
        self.tkr = Ok(hop_release.into());
        self.bootstrap.resolved_tkr = Some(hop_release);
        self
    }

    /// Observed state without packages.
    pub(super) fn observed(&self) -> Observed<'_> {
        Observed {
            overrides: Overrides {
                existing: self.existing.as_deref(),
                usable: &self.usable,
                cached: &self.usable,
            },
            cluster: self.cluster.clone(),
            control_plane: Some(&self.control_plane),
            workers: &self.workers,
            plan: &self.plan,
            bootstrap: self.bootstrap.clone(),
            tkr: self.tkr.as_deref(),
            hop: None,
            workload: self.workload.clone(),
            swap: &self.swap,
            rollback: self.rollback.as_ref(),
            awaits_rollback: self.awaits_rollback,
            packages: None,
            problem: self.problem.as_ref(),
            kapp_controller: None,
            supervisor: None,
            uninstalled: self.uninstalled,
            restored: false,
            now: self.now,
        }
    }

    pub(super) fn advance(&self, previous: Option<&UpgradeRecord>) -> UpgradeRecord {
        let blank = self.observed();
        let progress = observed_progress(previous, &blank);
        let (tkr, hop, stage) = self.judged_for;
        let packages = self.judged.as_deref().map(|judged| PackageSet {
            tkr: tkr.or(self.tkr.as_deref().ok()).unwrap_or_default(),
            hop: hop.unwrap_or(&progress.hop),
            stage: stage.or(progress.stage()),
            judged,
        });
        let hop = self.hop.or(Some(&progress.hop));
        let seen = Observed {
            hop,
            packages,
            ..blank
        };
        advance(previous, &seen)
    }
}

pub(super) fn versions(spec: &str, status: &str) -> ControlPlaneFacts {
    let version = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ControlPlaneFacts {
        spec_version: version(spec),
        status_version: version(status),
    }
}

pub(super) fn worker(version: &str) -> WorkerFacts {
    WorkerFacts {
        name: "md".into(),
        spec_version: Some(version.into()),
        versions: vec![version.into()],
        rolling: false,
        ..WorkerFacts::default()
    }
}

/// Verdict for a hook and version: the reason of a hold, or success for an open gate.
pub(super) fn answer(record: &UpgradeRecord, hook: Hook, version: &str) -> Result<(), String> {
    match record
        .gates
        .iter()
        .find(|gate| gate.hook == hook && gate.version == version)
    {
        None => Err("not listed".into()),
        Some(gate) if gate.open => Ok(()),
        Some(gate) => Err(gate.reason.clone()),
    }
}

pub(super) fn held_by(reason: GateReason) -> Result<(), String> {
    Err(reason.as_str().into())
}

const BEFORE: [Hook; 2] = [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade];

fn hold(reason: GateReason) -> Hold {
    Hold::new(reason, "given by the controller")
}

fn silent_for(seconds: i64) -> Workload<'static> {
    Workload::Unreachable {
        since: at(NOW - seconds),
        hold: hold(GateReason::WorkloadUnreachable),
    }
}

type Edit = fn(&mut Scene);

/// Holds of the start of an upgrade with proven packages.
#[rustfmt::skip]
const OBSTACLES: [(&str, Edit, GateReason); 21] = [
    ("cluster deleting", |s| s.cluster.deleting = true, GateReason::ClusterDeleting),
    ("cluster paused", |s| s.cluster.paused = true, GateReason::ClusterPaused),
    ("bootstrap paused", |s| s.bootstrap.paused = true, GateReason::BootstrapPaused),
    ("start held", |s| s.cluster.start_held = true, GateReason::StartHeldByAnnotation),
    ("problem", |s| s.problem = Some(hold(GateReason::TemplateNotFound)), GateReason::TemplateNotFound),
    ("no release", |s| s.tkr = Err(hold(GateReason::NoTKRForHop)), GateReason::NoTKRForHop),
    ("not merged", |s| s.bootstrap.resolved_tkr = Some("35-1"), GateReason::BootstrapNotMerged),
    ("never merged", |s| s.bootstrap.resolved_tkr = None, GateReason::BootstrapNotMerged),
    ("workload not reached", |s| s.workload = Workload::NotYet(hold(GateReason::KubeconfigNotFound)), GateReason::KubeconfigNotFound),
    ("workload silent", |s| s.workload = silent_for(1), GateReason::WorkloadUnreachable),
    ("packages unknown", |s| s.judged = None, GateReason::PackagesUnknown),
    ("packages of another release", |s| s.judged_for.0 = Some("36-2"), GateReason::PackagesUnknown),
    ("packages of another hop", |s| s.judged_for.1 = Some(V35), GateReason::PackagesUnknown),
    ("packages of another stage", |s| s.judged_for.2 = Some(V34), GateReason::PackagesUnknown),
    ("first pending", |s| *s = s.clone().with_package(0, PackageState::Pending), GateReason::PackagesNotReady),
    ("last pending", |s| *s = s.clone().with_package(1, PackageState::Pending), GateReason::PackagesNotReady),
    ("applied", |s| *s = s.clone().with_package(1, PackageState::Applied), GateReason::PackagesNotReady),
    ("reconciling", |s| *s = s.clone().with_package(1, PackageState::Reconciling), GateReason::PackagesNotReady),
    ("failed", |s| *s = s.clone().with_package(1, PackageState::Failed), GateReason::PackageFailed),
    ("control plane not settled", |s| s.control_plane = versions(V35, ""), GateReason::ControlPlaneCreating),
    ("target below", |s| s.cluster.topology_version = V34, GateReason::DowngradeNotSupported),
];

#[test]
fn an_upgrade_starts_when_every_package_is_proven() {
    let record = Scene::ready().advance(None);
    assert_eq!(record.hop.as_deref(), Some(V36));
    assert_eq!((record.from.as_deref(), record.to.as_str()), (Some(V35), V36));
    assert_eq!(
        (record.tkr.as_deref(), record.label.as_str()),
        (Some("36-1"), "36-1")
    );
    assert_eq!(
        (
            record.observed_cluster_generation,
            record.observed_bootstrap_generation
        ),
        (7, 12)
    );
    assert_eq!(record.workload_uid.as_deref(), Some("kube-system"));
    for hook in BEFORE {
        assert_eq!(answer(&record, hook, V36), Ok(()), "{hook}");
    }
    for hook in [
        Hook::AfterControlPlaneUpgrade,
        Hook::BeforeWorkersUpgrade,
        Hook::AfterClusterUpgrade,
    ] {
        assert_eq!(
            answer(&record, hook, V36),
            held_by(GateReason::ControlPlaneUpgrading),
            "{hook}"
        );
    }
    assert!(record.started_at.is_some() && record.ready_at.is_some());
    assert_eq!(
        (record.released_at, record.completed_at, record.outcome),
        (None, None, None)
    );
}

#[test]
fn each_obstacle_holds_the_start_and_is_named() {
    for (name, edit, expected) in OBSTACLES {
        let mut scene = Scene::ready();
        edit(&mut scene);
        let record = scene.advance(None);
        for gate in record.gates.iter().filter(|gate| BEFORE.contains(&gate.hook)) {
            let below = expected == GateReason::DowngradeNotSupported && gate.version == V35;
            assert!(!gate.open || below, "{name}: {gate:?}");
        }
        let reasons: Vec<&str> = record.gates.iter().map(|gate| gate.reason.as_str()).collect();
        assert!(reasons.contains(&expected.as_str()), "{name}: {reasons:?}");
    }
}

#[test]
fn each_obstacle_closes_an_open_start_again() {
    let started = Scene::ready().advance(None);
    for (name, edit, _) in OBSTACLES {
        // An annotation that holds starts comes too late, and silence is tolerated for a minute.
        if ["start held", "workload silent", "target below"].contains(&name) {
            continue;
        }
        let mut scene = Scene::ready();
        edit(&mut scene);
        let record = scene.advance(Some(&started));
        for hook in BEFORE {
            assert!(answer(&record, hook, V36).is_err(), "{name} {hook}");
        }
    }
}

#[test]
fn once_the_control_plane_takes_the_version_its_gates_stay_open() {
    let started = Scene::ready().advance(None);
    for (name, edit, _) in OBSTACLES {
        if name == "target below" {
            continue;
        }
        let mut scene = Scene::ready();
        edit(&mut scene);
        scene.control_plane = versions(V36, V35);
        let record = scene.advance(Some(&started));
        for hook in BEFORE {
            assert_eq!(answer(&record, hook, V36), Ok(()), "{name} {hook}");
        }
        assert!(
            answer(&record, Hook::AfterControlPlaneUpgrade, V36).is_err(),
            "{name}"
        );
    }
}

#[test]
fn each_obstacle_holds_the_workers_of_a_new_control_plane() {
    let taken = Scene::ready().with_control_plane(V36, V35).advance(None);
    for (name, edit, _) in OBSTACLES {
        if ["start held", "packages of another hop", "target below"].contains(&name) {
            continue;
        }
        let mut scene = Scene::ready().with_control_plane(V36, V36);
        edit(&mut scene);
        let record = scene.advance(Some(&taken));
        for hook in [
            Hook::AfterControlPlaneUpgrade,
            Hook::BeforeWorkersUpgrade,
            Hook::AfterWorkersUpgrade,
        ] {
            assert!(answer(&record, hook, V36).is_err(), "{name} {hook}");
        }
    }
}

/// Each change of the text costs Cluster API a write and a reconcile, and its next call comes a second later.
#[test]
fn the_message_stays_the_same_until_the_last_package_is_ready() {
    let message = |scene: &Scene| {
        let record = scene.advance(None);
        let gate = record
            .gates
            .iter()
            .find(|gate| gate.hook == Hook::BeforeControlPlaneUpgrade && gate.version == V36);
        gate.unwrap().message.clone()
    };
    let both = Scene::ready()
        .with_package(0, PackageState::Pending)
        .with_package(1, PackageState::Applied);
    let text = "waiting for all of kapp-controller 1.9.0, antrea 1.9.0";
    assert_eq!(message(&both), text);
    assert_eq!(message(&both.with_package(0, PackageState::Ready)), text);
    assert_eq!(message(&Scene::ready()), "");
    let failed = Scene::ready()
        .with_package(0, PackageState::Pending)
        .with_package(1, PackageState::Failed);
    assert_eq!(message(&failed), "antrea 1.9.0 failed to reconcile");
}

#[test]
fn a_set_without_packages_needs_no_proof() {
    let mut scene = Scene::ready();
    scene.judged = Some(vec![]);
    let started = scene.advance(None);
    assert_eq!(answer(&started, Hook::BeforeControlPlaneUpgrade, V36), Ok(()));
    let completed = scene
        .clone()
        .with_control_plane(V36, V36)
        .with_workers(V36)
        .advance(Some(&started));
    assert_eq!(completed.outcome, Some(Outcome::Completed));

    scene.problem = Some(hold(GateReason::ValuesNotFound));
    let unplanned = scene.clone().advance(None);
    assert_eq!(
        answer(&unplanned, Hook::BeforeControlPlaneUpgrade, V36),
        held_by(GateReason::ValuesNotFound),
        "packages that could not be planned are not absent"
    );
    let mut at_the_end = scene.with_control_plane(V36, V36).with_workers(V36);
    assert_eq!(at_the_end.clone().advance(Some(&started)).outcome, None);
    at_the_end.judged = Scene::ready().judged.map(|judged| judged[..1].to_vec());
    assert_eq!(
        at_the_end.advance(Some(&started)).outcome,
        None,
        "nor is one of two that could not be planned"
    );
}

#[test]
fn packages_for_after_the_control_plane_do_not_hold_it_but_hold_its_workers() {
    let mut scene = Scene::ready().with_package(1, PackageState::Pending);
    scene.judged.as_mut().unwrap()[1].phase = Phase::AfterControlPlane;
    let started = scene.advance(None);
    assert_eq!(answer(&started, Hook::BeforeControlPlaneUpgrade, V36), Ok(()));
    let settled = scene.with_control_plane(V36, V36).advance(Some(&started));
    assert_eq!(
        answer(&settled, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::PackagesNotReady)
    );
}

#[rstest]
#[case::short_silence(60, true)]
#[case::long_silence(61, false)]
#[case::a_clock_that_was_set_back(-60, true)]
#[case::a_clock_that_was_set_back_by_much(-61, false)]
fn a_silent_workload_is_tolerated_for_a_minute(#[case] seconds: i64, #[case] open: bool) {
    let started = Scene::ready().advance(None);
    let mut scene = Scene::ready();
    scene.workload = silent_for(seconds);
    let record = scene.advance(Some(&started));
    assert_eq!(
        answer(&record, Hook::BeforeControlPlaneUpgrade, V36).is_ok(),
        open
    );
    assert_eq!(record.workload_uid.as_deref(), Some("kube-system"));
}

/// Only a response tells which API server it is.
#[rstest]
#[case::decided("kube-system", Some(Unmanaged), Some(Unmanaged))]
#[case::undecided("kube-system", None, Some(Managed))]
#[case::another_server("another", None, None)]
fn who_installs_kapp_controller_is_recorded_for_one_server(
    #[case] uid: &str,
    #[case] decided: Option<KappControllerMode>,
    #[case] expected: Option<KappControllerMode>,
) {
    let scene = Scene::ready();
    let managed = Observed {
        kapp_controller: Some(Managed),
        ..scene.observed()
    };
    let before = advance(None, &managed);
    assert_eq!(before.kapp_controller, Some(Managed));
    let next = Observed {
        workload: Workload::Reached { uid },
        kapp_controller: decided,
        ..scene.observed()
    };
    assert_eq!(advance(Some(&before), &next).kapp_controller, expected);
    let silent = Observed {
        workload: silent_for(1),
        kapp_controller: Some(Unmanaged),
        ..scene.observed()
    };
    assert_eq!(advance(Some(&before), &silent).kapp_controller, Some(Managed));
}

#[rstest]
#[case::another_schema(|r: &mut UpgradeRecord| r.schema = 2)]
#[case::another_cluster(|r: &mut UpgradeRecord| r.cluster_uid = "before".into())]
fn a_foreign_record_counts_as_none(#[case] edit: fn(&mut UpgradeRecord)) {
    let scene = Scene::ready()
        .with_control_plane(V36, V36)
        .with_package(1, PackageState::Pending);
    let proven = Scene::ready().with_control_plane(V36, V36).advance(None);
    assert_eq!(
        answer(&scene.advance(Some(&proven)), Hook::AfterControlPlaneUpgrade, V36),
        Ok(())
    );
    let mut foreign = proven;
    edit(&mut foreign);
    assert_eq!(scene.advance(Some(&foreign)), scene.advance(None));
    assert!(
        answer(
            &scene.advance(Some(&foreign)),
            Hook::AfterControlPlaneUpgrade,
            V36
        )
        .is_err()
    );
}

#[rstest]
#[case::of_the_cluster(|s: &mut Scene| s.cluster.generation = 6)]
#[case::of_the_bootstrap(|s: &mut Scene| s.bootstrap.generation = 11)]
fn an_older_generation_changes_nothing(#[case] edit: Edit) {
    let started = Scene::ready().advance(None);
    let mut scene = Scene::ready().with_package(1, PackageState::Pending);
    assert_ne!(scene.advance(Some(&started)), started);
    edit(&mut scene);
    assert_eq!(scene.advance(Some(&started)), started);
}

#[test]
fn a_latch_is_only_used_for_the_same_workload() {
    let record = Scene::ready().advance(None);
    assert_eq!(
        latch(Some(&record), "kube-system", "antrea"),
        record.packages.get(1)
    );
    assert_eq!(latch(Some(&record), "another", "antrea"), None);
    assert_eq!(latch(Some(&record), "kube-system", "calico"), None);
    assert_eq!(latch(None, "kube-system", "antrea"), None);
}

/// Another answer would redeploy every package.
#[rstest]
#[case::not_asked_again(None, Some(true))]
#[case::asked_again(Some(("one", false)), Some(true))]
#[case::other_infrastructure(Some(("two", false)), Some(false))]
fn an_answer_about_the_supervisor_stays(#[case] found: Option<(&str, bool)>, #[case] kept: Option<bool>) {
    let answer = |(infrastructure, found): (&str, bool)| SupervisorAnswer {
        infrastructure: infrastructure.to_owned(),
        found,
    };
    let scene = Scene::ready();
    let first = answer(("one", true));
    let before = advance(
        None,
        &Observed {
            supervisor: Some(&first),
            ..scene.observed()
        },
    );
    assert_eq!(before.supervisor.as_ref(), Some(&first));
    let found = found.map(answer);
    let later = Observed {
        supervisor: found.as_ref(),
        ..scene.observed()
    };
    let after = advance(Some(&before), &later);
    assert_eq!(after.supervisor.map(|answer| answer.found), kept);
    let next = scene.clone().toward(V35, "35-1").advance(Some(&before));
    assert_eq!(next.supervisor, Some(first), "in the next upgrade, too");
}
