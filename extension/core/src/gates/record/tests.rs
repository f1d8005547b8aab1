use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::run::{Hook, Outcome};

use super::*;
use crate::upgrade::course::releases_step;
use crate::version::reached;

const V34: &str = "v1.34.4";
const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";

/// Check of gate `cni` with its judgement.
fn check(name: &str, state: CheckState) -> CheckJudgement {
    CheckJudgement {
        record: CheckRecord {
            gate: "cni".to_owned(),
            name: name.to_owned(),
            state,
            reason: if state == CheckState::Proven {
                ""
            } else {
                "NotAtVersion"
            }
            .to_owned(),
            message: format!("DaemonSet {name} is not at 1.18.2"),
            detail: String::new(),
            version: "1.18.2".to_owned(),
            uid: Some("uid".to_owned()),
            generation: Some(2),
            reproven: false,
        },
        phase: Phase::BeforeControlPlane,
        mode: GateMode::Enforce,
        on_workload: false,
        hold: None,
        confirmed: false,
    }
}

/// Observed state, in values that a test can change one by one.
#[derive(Clone, Debug)]
struct Scene {
    cluster: ClusterFacts<'static>,
    spec: &'static str,
    status: &'static str,
    workers: Vec<WorkerFacts>,
    plan: Plan,
    selected: Vec<SelectedGate>,
    set: &'static str,
    workload: Workload<'static>,
    judged: Option<Vec<CheckJudgement>>,
    /// Set, hop and stage of the judgement; those of the scene, unless set.
    judged_for: (Option<&'static str>, Option<&'static str>, Option<&'static str>),
    problem: Option<Hold>,
    now: Timestamp,
}

impl Scene {
    /// Cluster during an upgrade from v1.35.4 to v1.36.3, with every check proven.
    fn ready() -> Self {
        Self {
            cluster: ClusterFacts {
                namespace: "team-a",
                name: "one",
                uid: "uid",
                generation: 7,
                topology_version: V36,
                ..ClusterFacts::default()
            },
            spec: V35,
            status: V35,
            workers: vec![worker(V35)],
            plan: Plan::Direct,
            selected: vec![SelectedGate {
                name: "cni".to_owned(),
                uid: "gate".to_owned(),
                generation: 3,
                mode: GateMode::Enforce,
            }],
            set: "set",
            workload: Workload::Reached { uid: "kube-system" },
            judged: Some(vec![
                check("chart", CheckState::Proven),
                check("agent", CheckState::Proven),
            ]),
            judged_for: (None, None, None),
            problem: None,
            now: Timestamp::from_second(1_000_000).unwrap(),
        }
    }

    /// The same at rest at a version.
    fn at_rest(version: &'static str) -> Self {
        Self {
            cluster: ClusterFacts {
                generation: 6,
                topology_version: version,
                ..Self::ready().cluster
            },
            ..Self::ready().at(version, version, version)
        }
    }

    /// The same with these versions of the control plane, and of the workers.
    fn at(mut self, spec: &'static str, status: &'static str, workers: &'static str) -> Self {
        (self.spec, self.status) = (spec, status);
        self.workers = vec![worker(workers)];
        self
    }

    /// The same with a check in a state.
    fn with(mut self, index: usize, edit: impl FnOnce(&mut CheckJudgement)) -> Self {
        edit(&mut self.judged.as_mut().unwrap()[index]);
        self
    }

    fn waiting(self) -> Self {
        self.with(0, |judged| *judged = check("chart", CheckState::Waiting))
    }

    fn control_plane(&self) -> ControlPlaneFacts {
        let version = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ControlPlaneFacts {
            spec_version: version(self.spec),
            status_version: version(self.status),
        }
    }

    fn progress(&self, previous: Option<&GateRecord>) -> Progress {
        progress_of(previous, &self.blank(&self.control_plane()))
    }

    /// Observed state without checks.
    fn blank<'a>(&'a self, control_plane: &'a ControlPlaneFacts) -> GateObserved<'a> {
        GateObserved {
            cluster: self.cluster.clone(),
            control_plane: Some(control_plane),
            workers: &self.workers,
            plan: &self.plan,
            selected: &self.selected,
            set: self.set,
            workload: self.workload.clone(),
            checks: None,
            problem: self.problem.as_ref(),
            restored: false,
            now: self.now,
        }
    }

    fn advance(&self, previous: Option<&GateRecord>) -> GateRecord {
        let control_plane = self.control_plane();
        let blank = self.blank(&control_plane);
        let progress = progress_of(previous, &blank);
        let (set, hop, stage) = self.judged_for;
        let checks = self.judged.as_deref().map(|judged| JudgedChecks {
            set: set.unwrap_or(self.set),
            hop: hop.unwrap_or(&progress.hop),
            stage: stage.or(progress.stage()),
            judged,
        });
        advance(previous, &GateObserved { checks, ..blank })
    }
}

fn worker(version: &str) -> WorkerFacts {
    WorkerFacts {
        name: "md".into(),
        spec_version: Some(version.into()),
        versions: vec![version.into()],
        rolling: false,
        ..WorkerFacts::default()
    }
}

/// Verdict for a hook and version: the reason of a hold, or success for an open gate.
fn answer(record: &GateRecord, hook: Hook, version: &str) -> Result<(), String> {
    let mut gates = record.gates.iter();
    match gates.find(|gate| gate.hook == hook && gate.version == version) {
        None => Err("not listed".to_owned()),
        Some(gate) if gate.open => Ok(()),
        Some(gate) => Err(gate.reason.clone()),
    }
}

#[test]
fn every_step_waits_for_the_checks() {
    let held = Scene::ready().waiting().advance(None);
    let not_ready = Err("ChecksNotReady".to_owned());
    for hook in [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade] {
        assert_eq!(answer(&held, hook, V36), not_ready);
    }
    let message = "cni/chart: DaemonSet chart is not at 1.18.2";
    assert_eq!(
        held.gates.iter().find(|gate| !gate.open).unwrap().message,
        message
    );

    let open = Scene::ready().advance(Some(&held));
    for hook in [Hook::BeforeClusterUpgrade, Hook::BeforeControlPlaneUpgrade] {
        assert_eq!(answer(&open, hook, V36), Ok(()));
    }
    assert_eq!(
        answer(&open, Hook::AfterControlPlaneUpgrade, V36),
        Err("ControlPlaneUpgrading".to_owned())
    );

    let rolling = Scene::ready().at(V36, V35, V35).advance(Some(&open));
    assert_eq!(
        answer(&rolling, Hook::BeforeControlPlaneUpgrade, V36),
        Ok(()),
        "it was taken"
    );
    let again = Scene::ready().at(V36, V36, V35).waiting().advance(Some(&rolling));
    assert_eq!(answer(&again, Hook::AfterControlPlaneUpgrade, V36), not_ready);
    assert_eq!(answer(&again, Hook::BeforeWorkersUpgrade, V36), not_ready);
    let proven = Scene::ready().at(V36, V36, V35).advance(Some(&again));
    assert_eq!(answer(&proven, Hook::AfterControlPlaneUpgrade, V36), Ok(()));
    assert_eq!(answer(&proven, Hook::BeforeWorkersUpgrade, V36), Ok(()));
    let done = Scene::ready().at(V36, V36, V36).advance(Some(&proven));
    assert_eq!(done.outcome, Some(Outcome::Completed));
    assert_eq!((done.from.as_deref(), done.to.as_str()), (Some(V35), V36));
}

#[test]
fn a_cluster_at_rest_is_judged_and_not_held() {
    let rest = Scene::at_rest(V35).waiting().advance(None);
    assert_eq!(rest.outcome, Some(Outcome::Completed));
    assert_eq!(rest.checks[0].state, CheckState::Waiting);
    assert!(rest.gates.iter().all(|gate| gate.open), "{:?}", rest.gates);
    let edited = Scene {
        set: "other",
        ..Scene::at_rest(V35)
    };
    let edited = edited.advance(Some(&rest));
    assert_eq!(
        (edited.outcome, edited.set.as_deref()),
        (Some(Outcome::Completed), Some("other"))
    );
    assert_eq!(edited.completed_at, rest.completed_at, "no upgrade begins");
    let bumped = Scene::ready().waiting().advance(Some(&edited));
    assert_eq!((bumped.outcome, bumped.from.as_deref()), (None, Some(V35)));
    assert_eq!(
        answer(&bumped, Hook::BeforeClusterUpgrade, V36),
        Err("ChecksNotReady".to_owned())
    );
}

/// Until all workers have the version, BeforeWorkersUpgrade may be called.
#[test]
fn a_lost_proof_holds_the_workers_that_are_left() {
    let open = Scene::ready().advance(None);
    let taken = Scene::ready().at(V36, V36, V35).advance(Some(&open));
    assert_eq!(taken.outcome, None);
    assert_eq!(answer(&taken, Hook::BeforeWorkersUpgrade, V36), Ok(()));
    let lost = Scene::ready().at(V36, V36, V35).waiting().advance(Some(&taken));
    let held = Err("ChecksNotReady".to_owned());
    assert_eq!(answer(&lost, Hook::BeforeWorkersUpgrade, V36), held);
    let edited = Scene {
        set: "other",
        ..Scene::ready().at(V36, V36, V35).waiting()
    };
    assert_eq!(
        answer(&edited.advance(Some(&taken)), Hook::BeforeWorkersUpgrade, V36),
        held
    );
    let rolling = Scene::ready().at(V36, V36, V36);
    assert_eq!(rolling.advance(Some(&taken)).outcome, Some(Outcome::Completed));
}

/// Without workers only AfterControlPlaneUpgrade is left. What holds it also keeps the record open.
#[rstest]
#[case::an_invalid_gate(|scene: &mut Scene| {
    scene.problem = Some(Hold::new(GateReason::GateInvalid, ""));
    scene.judged = Some(Vec::new());
}, "GateInvalid")]
#[case::a_pause(|scene: &mut Scene| scene.cluster.paused = true, "ClusterPaused")]
#[case::a_check(|scene: &mut Scene| scene.judged = Some(vec![check("chart", CheckState::Waiting)]), "ChecksNotReady")]
fn a_held_cluster_without_workers_completes_nothing(#[case] edit: fn(&mut Scene), #[case] reason: &str) {
    let without_workers = |scene: Scene| Scene {
        workers: Vec::new(),
        ..scene
    };
    let open = without_workers(Scene::ready()).advance(None);
    let rolling = without_workers(Scene::ready().at(V36, V35, V35)).advance(Some(&open));
    let mut scene = without_workers(Scene::ready().at(V36, V36, V35));
    edit(&mut scene);
    let held = scene.advance(Some(&rolling));
    assert_eq!(held.outcome, None);
    assert_eq!(
        answer(&held, Hook::AfterControlPlaneUpgrade, V36),
        Err(reason.to_owned())
    );
    let done = without_workers(Scene::ready().at(V36, V36, V35)).advance(Some(&held));
    assert_eq!(done.outcome, Some(Outcome::Completed));
}

/// A gate that is created while a hook of the running version may be pending.
#[rstest]
#[case::workers(|scene: &mut Scene| scene.workers = vec![worker(V34)])]
#[case::hooks(|scene: &mut Scene| scene.cluster.awaits_hooks = true)]
fn a_cluster_that_is_not_at_rest_is_held(#[case] edit: fn(&mut Scene)) {
    let mut scene = Scene::at_rest(V35).waiting();
    edit(&mut scene);
    let held = scene.advance(None);
    assert_eq!(held.outcome, None);
    assert_eq!(
        answer(&held, Hook::BeforeWorkersUpgrade, V35),
        Err("ChecksNotReady".to_owned())
    );
}

#[test]
fn creation_and_deletion_have_no_gates() {
    let created = Scene::at_rest(V35).at("", "", V35).waiting().advance(None);
    let hooks: Vec<Hook> = created.gates.iter().map(|gate| gate.hook).collect();
    assert_eq!(
        hooks,
        [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade]
    );
    let mut scene = Scene::at_rest(V35);
    scene.cluster.deleting = true;
    let deleted = scene.advance(None);
    let hooks: Vec<Hook> = deleted.gates.iter().map(|gate| gate.hook).collect();
    assert!(!hooks.contains(&Hook::BeforeClusterDelete), "{hooks:?}");
}

#[rstest]
#[case::of_another_set((Some("other"), None, None))]
#[case::of_another_hop((None, Some(V35), None))]
#[case::on_another_api_server((None, None, Some(V34)))]
fn checks_of_another_judgement_open_nothing(
    #[case] judged_for: (Option<&'static str>, Option<&'static str>, Option<&'static str>),
) {
    let record = Scene {
        judged_for,
        ..Scene::ready()
    }
    .advance(None);
    let held = Err("ChecksNotReady".to_owned());
    assert_eq!(answer(&record, Hook::BeforeClusterUpgrade, V36), held);
}

#[rstest]
#[case::failed(|check: &mut CheckJudgement| check.record.state = CheckState::Failed, Err("CheckFailed"))]
#[case::of_the_gate(
    |check: &mut CheckJudgement| check.hold = Some(Hold::new(GateReason::NoVersionForHop, "cni: no row for Kubernetes 1.36")),
    Err("NoVersionForHop")
)]
#[case::audited(|check: &mut CheckJudgement| check.mode = GateMode::Audit, Ok(()))]
#[case::of_workers(|check: &mut CheckJudgement| check.phase = Phase::AfterControlPlane, Ok(()))]
fn an_unproven_check_holds_the_control_plane(
    #[case] edit: fn(&mut CheckJudgement),
    #[case] expected: Result<(), &str>,
) {
    let record = Scene::ready().waiting().with(0, edit).advance(None);
    let found = answer(&record, Hook::BeforeControlPlaneUpgrade, V36);
    assert_eq!(found, expected.map_err(str::to_owned));
}

#[test]
fn a_gate_of_workers_holds_both_steps_after_the_control_plane() {
    let scene = |scene: Scene| {
        let scene = scene.waiting();
        scene.with(0, |check| check.phase = Phase::AfterControlPlane)
    };
    let open = scene(Scene::ready()).advance(None);
    assert_eq!(answer(&open, Hook::BeforeClusterUpgrade, V36), Ok(()));
    let taken = scene(Scene::ready().at(V36, V36, V35)).advance(Some(&open));
    for hook in [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade] {
        assert_eq!(answer(&taken, hook, V36), Err("ChecksNotReady".to_owned()));
    }
}

#[test]
fn audit_gates_hold_nothing() {
    let mut scene = Scene::ready().waiting();
    scene.selected[0].mode = GateMode::Audit;
    for check in scene.judged.iter_mut().flatten() {
        check.mode = GateMode::Audit;
    }
    scene.problem = Some(Hold::new(GateReason::GateInvalid, ""));
    let record = scene.advance(None);
    assert_eq!(answer(&record, Hook::BeforeClusterUpgrade, V36), Ok(()));
    assert_eq!(record.checks[0].state, CheckState::Waiting);
}

#[rstest]
#[case::of_an_invalid_gate(|scene: &mut Scene| scene.problem = Some(Hold::new(GateReason::GateInvalid, "")), "GateInvalid")]
#[case::of_a_pause(|scene: &mut Scene| scene.cluster.paused = true, "ClusterPaused")]
#[case::of_a_start_annotation(|scene: &mut Scene| scene.cluster.start_held = true, "StartHeldByAnnotation")]
#[case::of_checks_that_are_not_judged(|scene: &mut Scene| scene.judged = None, "ChecksNotReady")]
#[case::of_an_unknown_plan(
    |scene: &mut Scene| scene.plan = Plan::Given { control_plane: Vec::new(), workers: Vec::new() },
    "UpgradePlanUnknown"
)]
fn unknown_facts_hold(#[case] edit: fn(&mut Scene), #[case] reason: &str) {
    let mut scene = Scene::ready();
    edit(&mut scene);
    let record = scene.advance(None);
    let found = answer(&record, Hook::BeforeClusterUpgrade, V36);
    assert_eq!(found, Err(reason.to_owned()));
}

/// Checks of the management cluster do not need the workload cluster.
#[rstest]
#[case(false, Ok(()))]
#[case(true, Err("WorkloadUnreachable"))]
fn a_silent_workload_holds_the_checks_that_need_it(
    #[case] on_workload: bool,
    #[case] expected: Result<(), &str>,
) {
    let scene = Scene {
        workload: Workload::NotYet(Hold::new(GateReason::WorkloadUnreachable, "")),
        ..Scene::ready().with(1, |check| check.on_workload = on_workload)
    };
    let found = answer(&scene.advance(None), Hook::BeforeControlPlaneUpgrade, V36);
    assert_eq!(found, expected.map_err(str::to_owned));
}

#[test]
fn each_hop_has_its_own_gates() {
    let listed = |scene: Scene| Scene {
        plan: Plan::Listed([V34, V35, V36].map(str::to_owned).to_vec()),
        ..scene
    };
    let first = listed(Scene::ready().at(V34, V34, V34)).advance(None);
    assert_eq!(first.hop.as_deref(), Some(V35));
    assert_eq!(answer(&first, Hook::BeforeControlPlaneUpgrade, V35), Ok(()));
    let not_listed = Err("not listed".to_owned());
    assert_eq!(answer(&first, Hook::BeforeControlPlaneUpgrade, V36), not_listed);
    let after = listed(Scene::ready().at(V35, V35, V34)).advance(Some(&first));
    assert_eq!(after.hop.as_deref(), Some(V36));
    let waits = listed(Scene::ready().at(V35, V35, V34).waiting()).advance(Some(&after));
    let held = Err("ChecksNotReady".to_owned());
    assert_eq!(answer(&waits, Hook::BeforeControlPlaneUpgrade, V36), held);
    assert_eq!(
        answer(&waits, Hook::AfterControlPlaneUpgrade, V35),
        Ok(()),
        "it never closes again"
    );
}

#[test]
fn records_of_others_and_older_states_change_nothing() {
    let record = Scene::ready().advance(None);
    let other = GateRecord {
        cluster_uid: "other".to_owned(),
        ..record.clone()
    };
    assert_eq!(of_cluster(Some(&other), "uid"), None);
    let schema = GateRecord {
        schema: GATE_SCHEMA + 1,
        ..record.clone()
    };
    assert_eq!(of_cluster(Some(&schema), "uid"), None);
    let mut older = Scene::ready().waiting();
    older.cluster.generation -= 1;
    assert_eq!(older.advance(Some(&record)), record);
}

#[test]
fn an_outdated_cache_opens_nothing() {
    let held = Scene::ready().waiting().advance(None);
    let open = Scene::ready().advance(Some(&held));
    assert!(opens_a_gate(Some(&held), &open));
    assert!(is_urgent(&held, &open));
    let outdated = Hold::new(GateReason::CacheOutdated, "waiting");
    let withheld = withheld(Some(&held), open.clone(), &outdated);
    assert_eq!(
        answer(&withheld, Hook::BeforeClusterUpgrade, V36),
        Err("CacheOutdated".to_owned())
    );
    assert!(!opens_a_gate(Some(&held), &withheld));
    assert!(!opens_a_gate(Some(&open), &open), "it was open");
}

#[test]
fn a_lost_proof_is_urgent_and_a_new_one_is_not() {
    let scene = Scene::ready().waiting();
    let none = scene
        .clone()
        .with(1, |judged| *judged = check("agent", CheckState::Waiting));
    let (one, none) = (scene.advance(None), none.advance(None));
    assert!(!is_urgent(&none, &one));
    assert!(is_urgent(&one, &none));
}

#[rstest]
#[case::checks(GateReason::CheckFailed, false)]
#[case::step(GateReason::ControlPlaneUpgrading, false)]
#[case::fault(GateReason::GateDeselected, true)]
#[case::outdated_cache(GateReason::CacheOutdated, true)]
#[case::pause(GateReason::ClusterPaused, true)]
fn a_reason_that_names_progress_is_not_urgent(#[case] reason: GateReason, #[case] urgent: bool) {
    let held = Scene::ready().waiting().advance(None);
    let mut explained = held.clone();
    let gate = explained
        .gates
        .iter_mut()
        .find(|gate| gate.reason == "ChecksNotReady");
    gate.unwrap().reason = reason.as_str().into();
    assert_eq!(is_urgent(&held, &explained), urgent);
}

#[test]
fn a_latch_is_of_the_same_workload_cluster() {
    let record = Scene::ready().advance(None);
    assert!(latch(Some(&record), "kube-system", "cni", "agent").is_some());
    assert!(latch(Some(&record), "", "cni", "chart").is_some());
    assert_eq!(latch(Some(&record), "another", "cni", "agent"), None);
    assert_eq!(latch(Some(&record), "kube-system", "cni", "other"), None);
    assert_eq!(latch(None, "", "cni", "chart"), None);
}

prop_compose! {
    fn any_check(name: &'static str)(
        state in prop::sample::select(vec![CheckState::Waiting, CheckState::Proven, CheckState::Proven, CheckState::Failed]),
        after in any::<bool>(),
        on_workload in any::<bool>(),
        audited in any::<bool>(),
    ) -> CheckJudgement {
        CheckJudgement {
            phase: if after { Phase::AfterControlPlane } else { Phase::BeforeControlPlane },
            mode: if audited { GateMode::Audit } else { GateMode::Enforce },
            on_workload,
            ..check(name, state)
        }
    }
}

prop_compose! {
    fn any_scene()(
        generation in 1_i64..5,
        to in prop::sample::select(vec![V34, V35, V36]),
        spec in prop::sample::select(vec!["", V34, V35, V36]),
        status in prop::sample::select(vec!["", V34, V35, V36]),
        workers in prop::collection::vec((prop::sample::select(vec![V34, V35, V36]), any::<bool>()), 0..2),
        planned in any::<bool>(),
        set in prop::sample::select(vec!["one", "two"]),
        judged_set in prop::sample::select(vec![None, None, None, Some("one")]),
        silent in any::<bool>(),
        chart in any_check("chart"),
        agent in any_check("agent"),
        known in prop::sample::select(vec![true, true, true, false]),
        flags in prop::array::uniform4(prop::sample::select(vec![true, false, false, false, false])),
        waited in 0_i64..1_200,
    ) -> Scene {
        let [paused, start_held, awaits_hooks, has_problem] = flags;
        Scene {
            cluster: ClusterFacts {
                generation, topology_version: to, paused, start_held, awaits_hooks, ..Scene::ready().cluster
            },
            spec,
            status,
            workers: workers.into_iter().map(|(version, rolling)| WorkerFacts { rolling, ..worker(version) }).collect(),
            plan: if planned { Plan::Listed([V34, V35, V36].map(str::to_owned).to_vec()) } else { Plan::Direct },
            set,
            judged_for: (judged_set, None, None),
            workload: if silent {
                Workload::NotYet(Hold::new(GateReason::WorkloadUnreachable, ""))
            } else {
                Workload::Reached { uid: "kube-system" }
            },
            judged: known.then(|| vec![chart, agent]),
            problem: has_problem.then(|| Hold::new(GateReason::GateInvalid, "")),
            now: Timestamp::from_second(1_000_000 + waited).unwrap(),
            ..Scene::ready()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_record_is_stable(scenes in prop::collection::vec(any_scene(), 1..6)) {
        let mut record = None;
        for scene in &scenes {
            let next = scene.advance(record.as_ref());
            // The checks were judged for the hop before the step.
            let known = |version: &str| [V34, V35, V36].into_iter().find(|known| *known == version);
            let progress = scene.progress(record.as_ref());
            let (set, ..) = scene.judged_for;
            let judged_for = (set, known(&progress.hop), progress.stage().and_then(known));
            let same = Scene { judged_for, ..scene.clone() };
            prop_assert_eq!(&same.advance(Some(&next)), &next);
            record = Some(next);
        }
    }

    /// A gate of the control plane opens only by checks of this hop, set and API server that are all proven.
    #[test]
    fn a_gate_opens_by_proven_checks_only(scenes in prop::collection::vec(any_scene(), 1..6)) {
        let mut record: Option<GateRecord> = None;
        for scene in &scenes {
            let next = scene.advance(record.as_ref());
            let mut opened = next.gates.iter().filter(|gate| {
                releases_step(gate) && !course::was_open(record.as_ref().map(Into::into), gate)
            });
            let is_older = record.as_ref().is_some_and(|record| scene.cluster.generation < record.observed_cluster_generation);
            let not_taken = |gate: &sluice_crds::run::Gate| {
                scene.spec.is_empty() || !reached(scene.spec, &gate.version)
            };
            if let Some(gate) = opened.find(|gate| not_taken(gate)).filter(|_| !is_older && next.outcome.is_none()) {
                let judged = scene.judged.as_deref().unwrap_or_default();
                let proven = scene.judged.is_some() && scene.judged_for.0.is_none_or(|set| set == scene.set);
                let all = enforced(judged, &[Phase::BeforeControlPlane]).all(CheckJudgement::is_proven);
                prop_assert!(proven && all && scene.problem.is_none() && !scene.cluster.paused, "{:?}", gate);
            }
            record = Some(next);
        }
    }
}
