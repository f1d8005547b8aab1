//! Properties of every record, for any observations in any order.

use std::sync::Arc;

use sluice_crds::lifecycle::OverriddenGate;

use super::*;
use crate::upgrade::overrides::{gate_of, has_worker_at, tests::object, usable};

fn any_version() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![V34, V35, V36])
}

prop_compose! {
    fn any_package(name: &'static str)(
        state in prop::sample::select(vec![
            PackageState::Pending, PackageState::Applied, PackageState::Reconciling, PackageState::Ready, PackageState::Ready,
            PackageState::Failed,
        ]),
        after in any::<bool>(),
        settled in any::<bool>(),
    ) -> Judgement {
        let judgement = judged(name, state);
        let phase = if after { Phase::AfterControlPlane } else { Phase::BeforeControlPlane };
        Judgement { phase, settled: settled && judgement.ready(), ..judgement }
    }
}

prop_compose! {
    fn any_scene()(
        generation in 1_i64..5,
        bootstrap_generation in 1_i64..3,
        to in any_version(),
        spec in prop::sample::select(vec!["", V34, V35, V36]),
        status in prop::sample::select(vec!["", V34, V35, V36]),
        workers in prop::collection::vec((any_version(), any::<bool>()), 0..2),
        planned in any::<bool>(),
        tkr in prop::sample::select(vec![Ok("34-1"), Ok("35-1"), Ok("36-1"), Err(())]),
        merged in prop::sample::select(vec![true, true, true, false]),
        silent in prop::option::weighted(0.2, 0_i64..120),
        kapp in any_package("kapp-controller"),
        antrea in any_package("antrea"),
        known in prop::sample::select(vec![true, true, true, false]),
        flags in prop::array::uniform5(prop::sample::select(vec![true, false, false, false, false, false])),
        waited in 0_i64..1_200,
    ) -> Scene {
        let [paused, bootstrap_paused, start_held, deleting, uninstalled] = flags;
        Scene {
            cluster: ClusterFacts {
                generation, topology_version: to, paused, start_held, deleting, ..Scene::ready().cluster
            },
            control_plane: versions(spec, status),
            workers: workers
                .into_iter()
                .map(|(version, rolling)| WorkerFacts { rolling, ..worker(version) })
                .collect(),
            plan: if planned {
                Plan::Listed([V34, V35, V36].map(str::to_owned).to_vec())
            } else {
                Plan::Direct
            },
            bootstrap: BootstrapFacts {
                generation: bootstrap_generation,
                paused: bootstrap_paused,
                resolved_tkr: tkr.ok().filter(|_| merged),
            },
            tkr: tkr.map(str::to_owned).map_err(|()| Hold::new(GateReason::NoTKRForHop, "")),
            workload: match silent {
                Some(seconds) => silent_for(seconds),
                None => Workload::Reached { uid: "kube-system" },
            },
            judged: known.then(|| vec![kapp, antrea]),
            uninstalled,
            now: at(NOW + waited),
            ..Scene::ready()
        }
    }
}

/// Gate, version, release and packages of an override.
type AnyOverride = (
    OverriddenGate,
    &'static str,
    &'static str,
    &'static [&'static str],
);

fn any_override() -> impl Strategy<Value = AnyOverride> {
    let gate = prop::sample::select(OverriddenGate::ALL.to_vec());
    let release = prop::sample::select(vec!["34-1", "35-1", "36-1"]);
    let packages: Vec<&'static [&'static str]> =
        vec![&["*"][..], &["antrea"][..], &["antrea", "kapp-controller"][..]];
    (gate, any_version(), release, prop::sample::select(packages))
}

/// Returns the scene with some of the overrides, which are numbered.
fn with_overrides(scene: &Scene, overrides: &[AnyOverride], is_there: impl Fn(usize) -> bool) -> Scene {
    let objects = overrides.iter().enumerate().filter(|(each, _)| is_there(*each));
    let objects: Vec<_> = objects
        .map(|(each, &(gate, version, release, packages))| {
            Arc::new(object(&each.to_string(), gate, (version, release), packages))
        })
        .collect();
    let (existing, usable) = usable(&objects, scene.cluster.uid, scene.now);
    Scene {
        existing,
        usable,
        ..scene.clone()
    }
}

fn is_open(record: &UpgradeRecord, hook: Hook, version: &str) -> bool {
    answer(record, hook, version) == Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The same observation twice gives the same record, at any point of any history.
    #[test]
    fn a_second_observation_changes_nothing(scenes in prop::collection::vec(any_scene(), 1..6)) {
        let mut record = None;
        for scene in &scenes {
            let next = scene.advance(record.as_ref());
            // The packages of the new hop may not be known; only the same observation counts.
            let fixed = Scene { judged_for: judged_for(scene, record.as_ref()), ..scene.clone() };
            prop_assert_eq!(&fixed.advance(Some(&next)), &next);
            record = Some(next);
        }
    }

    /// Within one upgrade, an open gate after a step stays open, unless the control plane goes back below its version.
    #[test]
    fn after_gates_never_close(scenes in prop::collection::vec(any_scene(), 2..7)) {
        let mut record = scenes[0].advance(None);
        for scene in &scenes[1..] {
            let next = scene.advance(Some(&record));
            let same = next.to == record.to && next.outcome.is_none() && record.outcome.is_none();
            let ControlPlaneFacts { spec_version, status_version } = &scene.control_plane;
            let there = |version: &str| {
                let is_there = |at: &String| crate::version::reached(at, version);
                spec_version.as_ref().is_some_and(is_there) && status_version.as_ref().is_none_or(is_there)
            };
            for gate in record.gates.iter().filter(|gate| gate.open && same && there(&gate.version)) {
                // A control plane that was manually moved beyond the target has no gate for its end.
                let after = match gate.hook {
                    Hook::AfterControlPlaneUpgrade | Hook::AfterWorkersUpgrade => true,
                    Hook::AfterClusterUpgrade => next.hop == record.hop,
                    _ => false,
                };
                prop_assert!(!after || is_open(&next, gate.hook, &gate.version), "{:?}\n{:?}", record, next);
            }
            record = next;
        }
    }

    /// Packages kept from the addons-manager, however ready, open no gate that releases another machine.
    #[test]
    fn kept_packages_release_no_machine(
        scenes in prop::collection::vec(any_scene(), 1..7), awaits_hooks in any::<bool>(), one in any::<bool>(),
    ) {
        let mut record: Option<UpgradeRecord> = None;
        for mut scene in scenes {
            scene.cluster.awaits_hooks = awaits_hooks;
            for (index, judged) in scene.judged.iter_mut().flatten().enumerate() {
                // A single kept package is no proof either.
                judged.kept = index == 0 || !one;
            }
            let next = scene.advance(record.as_ref());
            let was_open = |gate: &Gate| {
                record.as_ref().is_some_and(|record| is_open(record, gate.hook, &gate.version))
            };
            for gate in next.gates.iter().filter(|gate| gate.open && !was_open(gate)) {
                let went = |version: Option<&String>| {
                    version.is_some_and(|version| crate::version::reached(version, &gate.version))
                };
                let gone = match gate.hook {
                    Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => {
                        went(scene.control_plane.spec_version.as_ref())
                    }
                    Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => {
                        let workers = &scene.workers;
                        !awaits_hooks
                            && workers.iter().all(|worker| !worker.rolling && went(worker.spec_version.as_ref()))
                    }
                    _ => true,
                };
                prop_assert!(gone, "{:?} opened\n{:?}\n{:?}", gate, scene, next);
            }
            record = Some(next);
        }
    }

    /// Gates open in the order of the hook calls of Cluster API.
    #[test]
    fn gates_open_in_order(scenes in prop::collection::vec(any_scene(), 1..6)) {
        let mut record = None;
        for scene in &scenes {
            let next = scene.advance(record.as_ref());
            for version in [V34, V35, V36] {
                let open = |hook| is_open(&next, hook, version);
                let closed = |hook| answer(&next, hook, version).is_err_and(|reason| reason != "not listed");
                prop_assert!(!open(Hook::BeforeWorkersUpgrade) || open(Hook::AfterControlPlaneUpgrade));
                prop_assert!(!open(Hook::AfterWorkersUpgrade) || open(Hook::AfterControlPlaneUpgrade));
                prop_assert!(!open(Hook::AfterControlPlaneUpgrade) || !closed(Hook::BeforeControlPlaneUpgrade));
                prop_assert!(!open(Hook::AfterClusterUpgrade) || open(Hook::AfterWorkersUpgrade));
                prop_assert_eq!(open(Hook::BeforeClusterUpgrade), open(Hook::BeforeControlPlaneUpgrade));
            }
            record = Some(next);
        }
    }

    /// An open gate of a control plane requires that all packages are proven for exactly its version.
    #[test]
    fn a_start_requires_proof(scenes in prop::collection::vec(any_scene(), 1..6)) {
        let mut record: Option<UpgradeRecord> = None;
        for scene in &scenes {
            let next = scene.advance(record.as_ref());
            let older = record.as_ref() == Some(&next);
            for gate in next.gates.iter().filter(|gate| gate.open && gate.hook == Hook::BeforeControlPlaneUpgrade) {
                let taken = scene.control_plane.spec_version.as_deref() == Some(gate.version.as_str());
                let passed = next.hop.as_deref() != Some(gate.version.as_str());
                let proven = scene.judged.iter().flatten().all(|judgement| {
                    judgement.ready() || judgement.phase == Phase::AfterControlPlane
                });
                prop_assert!(older || taken || passed || next.outcome.is_some() || proven && scene.judged.is_some());
            }
            record = Some(next);
        }
    }

    /// Progress of a package that does not end its wait changes no message: each change costs Cluster API a write and a
    /// reconcile.
    #[test]
    fn a_step_of_a_package_changes_no_message(
        scene in any_scene(),
        before in prop::sample::select(vec![PackageState::Pending, PackageState::Applied, PackageState::Reconciling]),
        after in prop::sample::select(vec![PackageState::Pending, PackageState::Applied, PackageState::Reconciling]),
    ) {
        // A package that was written shows that the upgrade had begun.
        let cluster = ClusterFacts { start_held: false, ..scene.cluster.clone() };
        let scene = Scene { cluster, judged: Scene::ready().judged, ..scene };
        let one = scene.clone().with_package(1, before).advance(None);
        let other = scene.with_package(1, after).advance(Some(&one));
        prop_assert_eq!(one.gates, other.gates);
    }

    /// Without a usable override of exactly the gate, no gate opens that is closed without overrides. It is closed again in the next record
    /// without the override, unless the step was made.
    #[test]
    fn only_overrides_of_the_gate_open_it(
        overrides in prop::collection::vec(any_override(), 1..5),
        scenes in prop::collection::vec((any_scene(), any::<u8>(), prop::option::of(any_version())), 1..6),
    ) {
        let mut record: Option<UpgradeRecord> = None;
        for (scene, there, other) in &scenes {
            let mut scene = with_overrides(scene, &overrides, |each| there & (1 << each) != 0);
            scene.workers.extend(other.map(|version| WorkerFacts { name: "other".into(), ..worker(version) }));
            let next = scene.advance(record.as_ref());
            if record.as_ref().is_some_and(|record| is_older((scene.cluster.generation, scene.bootstrap.generation), record)) {
                prop_assert_eq!(Some(&next), record.as_ref());
                continue;
            }
            // A closed record changes no more, or is that of a cancelled upgrade, whose gates are those of its hop.
            if next.outcome.is_some() {
                record = Some(next);
                continue;
            }
            let none = Scene { usable: Vec::new(), ..scene.clone() };
            let without = none.advance(record.as_ref());
            for gate in next.gates.iter().filter(|gate| gate.open) {
                let Some(of_gate) = gate_of(gate.hook) else { continue };
                let at_version = has_worker_at(&scene.workers, &gate.version);
                let Some(by) = &gate.overridden_by else {
                    let spec = scene.control_plane.spec_version.as_deref();
                    let is_taken = spec.is_some_and(|spec| crate::version::reached(spec, &gate.version));
                    let is_made = of_gate == OverriddenGate::ControlPlane && is_taken;
                    prop_assert!(is_made || is_open(&without, gate.hook, &gate.version), "{:?}\n{:?}", gate, without);
                    continue;
                };
                let is_spent = next.spent_overrides.iter().flatten().any(|uid| *uid == by.uid);
                prop_assert!(!is_spent || of_gate == OverriddenGate::Workers && at_version, "{:?}", gate);
                let number: usize = by.name.parse().unwrap();
                prop_assert_eq!((overrides[number].0, overrides[number].1), (of_gate, gate.version.as_str()));
                let was_open = record.iter().flat_map(|record| &record.gates).any(|before| {
                    before.open && before.overridden_by.as_ref() == Some(by)
                });
                let is_usable = scene.usable.iter().any(|of| of.by == *by);
                let is_of_release = scene.tkr.as_deref().is_ok_and(|tkr| tkr == overrides[number].2);
                prop_assert!(is_usable || at_version, "{:?}", gate);
                prop_assert!(was_open || is_usable && is_of_release, "{:?}", gate);
            }
            let after = none.advance(Some(&next));
            for gate in after.gates.iter().filter(|gate| gate.overridden_by.is_some()) {
                let is_made = has_worker_at(&scene.workers, &gate.version);
                prop_assert!(gate_of(gate.hook) == Some(OverriddenGate::Workers) && is_made, "{:?}", gate);
            }
            let judged_for = judged_for(&scene, record.as_ref());
            let fixed = Scene { judged_for, hop: judged_for.1, ..scene.clone() };
            prop_assert_eq!(&fixed.advance(Some(&next)), &next);
            record = Some(next);
        }
    }

    /// A closed gate has a reason; an open one has none.
    #[test]
    fn only_closed_gates_give_reasons(scenes in prop::collection::vec(any_scene(), 1..4)) {
        let mut record = None;
        for scene in &scenes {
            let next = scene.advance(record.as_ref());
            for gate in &next.gates {
                prop_assert_eq!(gate.open, gate.reason.is_empty());
                prop_assert!(!gate.open || gate.message.is_empty());
                prop_assert!(gate.open || GateReason::parse(&gate.reason).is_some());
            }
            record = Some(next);
        }
    }
}

/// Hop, release and stage of the packages of a scene, from a record.
fn judged_for(
    scene: &Scene,
    previous: Option<&UpgradeRecord>,
) -> (Option<&'static str>, Option<&'static str>, Option<&'static str>) {
    let spelled = |version: &str| [V34, V35, V36].into_iter().find(|known| *known == version);
    let found = crate::upgrade::hop::progress(
        Some(&scene.control_plane),
        &scene.workers,
        scene.cluster.topology_version,
        &scene.plan,
        of_cluster(previous, scene.cluster.uid),
    );
    (None, spelled(&found.hop), found.stage().and_then(spelled))
}
