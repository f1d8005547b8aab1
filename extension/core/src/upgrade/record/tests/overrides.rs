//! Gates that overrides open, and those that they do not.

use std::{slice::from_ref, sync::Arc};

use rstest::rstest;
use sluice_crds::lifecycle::{OverriddenGate, UpgradeOverride};

use super::courses::gates;
use super::rollbacks::{self, OLD};
use super::swaps::{WANTED, swap};
use super::*;
use crate::upgrade::overrides::tests::{EXPIRES, object};
use crate::upgrade::overrides::usable;

const STEP: (&str, &str) = (V36, "36-1");
const ANTREA: &[&str] = &["antrea"];
const EVERY: &[&str] = &["*"];

type OverrideEdit = fn(&mut UpgradeOverride);

fn control_plane(packages: &[&str]) -> UpgradeOverride {
    object("cp", OverriddenGate::ControlPlane, STEP, packages)
}

fn workers(packages: &[&str]) -> UpgradeOverride {
    object("w", OverriddenGate::Workers, STEP, packages)
}

fn machines(packages: &[&str]) -> UpgradeOverride {
    object("m", OverriddenGate::Machines, (V35, WANTED), packages)
}

impl Scene {
    /// The same with these overrides.
    fn with(mut self, overrides: &[UpgradeOverride]) -> Self {
        let objects: Vec<Arc<UpgradeOverride>> = overrides.iter().cloned().map(Arc::new).collect();
        (self.existing, self.usable) = usable(&objects, self.cluster.uid, self.now);
        self
    }

    /// The upgrade with an unproven package.
    fn unproven() -> Self {
        Self::ready().with_package(1, PackageState::Reconciling)
    }
}

/// The record of an upgrade that waits for a package, before any override.
fn waiting() -> UpgradeRecord {
    let record = Scene::unproven().with(&[]).advance(None);
    assert_eq!(
        (gates(&record, V36).as_str(), record.spent_overrides.clone()),
        ("xxxxxx", Some(Vec::new()))
    );
    record
}

/// The same once its control plane has the version.
fn waiting_for_workers() -> UpgradeRecord {
    let scene = Scene::unproven().with_control_plane(V36, V36).with(&[]);
    let record = scene.advance(Some(&waiting()));
    assert_eq!(gates(&record, V36), "ooxxxx");
    record
}

fn by(record: &UpgradeRecord, hook: Hook, version: &str) -> Option<String> {
    let mut gates = record.gates.iter();
    let gate = gates.find(|gate| gate.hook == hook && gate.version == version)?;
    gate.overridden_by.as_ref().map(|by| by.name.clone())
}

fn is_spent(record: &UpgradeRecord, of: &UpgradeOverride) -> bool {
    let spent = record.spent_overrides.as_ref().unwrap();
    spent.contains(of.metadata.uid.as_ref().unwrap())
}

/// The package is forgotten: each later gate needs an override of its own, and the record stays open.
#[test]
fn each_gate_needs_its_own_override_and_the_end_needs_every_proof() {
    let (cp, w) = (control_plane(ANTREA), workers(ANTREA));
    let open = Scene::unproven().with(from_ref(&cp)).advance(Some(&waiting()));
    assert_eq!(gates(&open, V36), "ooxxxx");
    for hook in BEFORE {
        assert_eq!(by(&open, hook, V36).as_deref(), Some("cp"));
    }
    assert!(!is_spent(&open, &cp));
    assert_eq!(
        Scene::unproven().with(from_ref(&cp)).advance(Some(&open)),
        open,
        "the same again"
    );

    let taken = Scene::unproven()
        .with_control_plane(V36, V35)
        .with(from_ref(&cp))
        .advance(Some(&open));
    assert_eq!(gates(&taken, V36), "ooxxxx");
    assert!(is_spent(&taken, &cp));
    let at_hop = Scene::unproven().with_control_plane(V36, V36);
    let held = at_hop.clone().with(from_ref(&cp)).advance(Some(&taken));
    assert_eq!(
        answer(&held, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::PackagesNotReady)
    );

    let both = [cp, w.clone()];
    let released = at_hop.with(&both).advance(Some(&held));
    assert_eq!(gates(&released, V36), "ooooxx");
    assert_eq!(
        by(&released, Hook::BeforeWorkersUpgrade, V36).as_deref(),
        Some("w")
    );
    assert!(!is_spent(&released, &w));

    let rolled = Scene::unproven().with_control_plane(V36, V36).with_workers(V36);
    let rolled_on = rolled.clone().with(&both).advance(Some(&released));
    assert_eq!(gates(&rolled_on, V36), "ooooox");
    assert!(is_spent(&rolled_on, &w));
    let mut later = rolled.with(&both);
    later.now = at(NOW + 3_000);
    let settled = later.advance(Some(&rolled_on));
    assert_eq!((gates(&settled, V36).as_str(), settled.outcome), ("oooooo", None));
    let proven = Scene::ready().with_control_plane(V36, V36).with_workers(V36);
    assert_eq!(
        proven.with(&both).advance(Some(&settled)).outcome,
        Some(Outcome::Completed)
    );
}

#[rstest]
#[case::as_it_is((|_: &mut UpgradeOverride| {}) as OverrideEdit, true)]
#[case::of_every_package(|o: &mut UpgradeOverride| o.spec.packages = vec!["*".into()], true)]
#[case::another_package(|o: &mut UpgradeOverride| o.spec.packages = vec!["metrics".into()], false)]
#[case::another_version(|o: &mut UpgradeOverride| o.spec.target.kubernetes_version = V35.into(), false)]
#[case::another_build(|o: &mut UpgradeOverride| o.spec.target.kubernetes_version = "v1.36.3+b".into(), false)]
#[case::another_release(|o: &mut UpgradeOverride| o.spec.target.release = "36-2".into(), false)]
#[case::of_workers(|o: &mut UpgradeOverride| o.spec.gate = OverriddenGate::Workers, false)]
#[case::of_machines(|o: &mut UpgradeOverride| o.spec.gate = OverriddenGate::Machines, false)]
#[case::another_cluster(|o: &mut UpgradeOverride| o.spec.cluster_uid = Some("before".into()), false)]
#[case::expired(|o: &mut UpgradeOverride| o.spec.expires_at = Time(at(NOW)), false)]
#[case::without_user(|o: &mut UpgradeOverride| o.spec.requested_by = None, false)]
#[case::deleted(|o: &mut UpgradeOverride| o.metadata.deletion_timestamp = Some(Time(at(NOW))), false)]
fn a_gate_is_opened_by_an_override_of_exactly_its_step(#[case] edit: OverrideEdit, #[case] opens: bool) {
    let mut of = control_plane(ANTREA);
    edit(&mut of);
    let record = Scene::unproven().with(&[of]).advance(Some(&waiting()));
    let expected = if opens { "ooxxxx" } else { "xxxxxx" };
    assert_eq!(gates(&record, V36), expected);
    if !opens {
        assert_eq!(record.gates, waiting().gates);
    }
}

/// Two packages are unproven.
#[test]
fn one_override_names_all_packages_of_the_gate() {
    let scene = || Scene::unproven().with_package(0, PackageState::Failed);
    let one = |name: &str, package: &str| object(name, OverriddenGate::ControlPlane, STEP, &[package]);
    let held = scene().with(&[]).advance(None);
    let apart = [one("a", "kapp-controller"), one("b", "antrea")];
    let record = scene().with(&apart).advance(Some(&held));
    assert_eq!(gates(&record, V36), "xxxxxx");
    let all = [apart[0].clone(), control_plane(&["antrea", "kapp-controller"])];
    let record = scene().with(&all).advance(Some(&held));
    assert_eq!(
        by(&record, Hook::BeforeControlPlaneUpgrade, V36).as_deref(),
        Some("cp")
    );
}

#[test]
fn a_proven_gate_uses_no_override() {
    let all = [control_plane(EVERY), workers(EVERY)];
    let record = Scene::ready().with(&all).advance(Some(&waiting()));
    assert_eq!(gates(&record, V36), "ooxxxx");
    assert_eq!(by(&record, Hook::BeforeControlPlaneUpgrade, V36), None);
    let record = Scene::unproven().with(&all).advance(Some(&record));
    assert_eq!(
        by(&record, Hook::BeforeControlPlaneUpgrade, V36).as_deref(),
        Some("cp")
    );
    let record = Scene::ready().with(&all).advance(Some(&record));
    assert_eq!(by(&record, Hook::BeforeControlPlaneUpgrade, V36), None);
}

/// Overrides are left in Git, and created in advance.
#[test]
fn an_override_that_is_older_than_the_upgrade_does_not_count() {
    let cp = control_plane(EVERY);
    let begun = Scene::unproven().with(from_ref(&cp)).advance(None);
    assert!(is_spent(&begun, &cp));
    let held = Scene::unproven().with(from_ref(&cp)).advance(Some(&begun));
    assert_eq!((gates(&held, V36).as_str(), &held), ("xxxxxx", &begun));

    let mut again = cp;
    again.metadata.uid = Some("another".to_owned());
    let open = Scene::unproven().with(&[again]).advance(Some(&held));
    assert_eq!(gates(&open, V36), "ooxxxx", "one of the same name that is newer");
}

#[test]
fn overrides_count_only_once_they_were_listed() {
    let cp = control_plane(EVERY);
    let unlisted = Scene::unproven().advance(None);
    assert_eq!(unlisted.spent_overrides, None);
    let mut usable_only = Scene::unproven().with(from_ref(&cp));
    usable_only.existing = None;
    assert_eq!(usable_only.advance(Some(&unlisted)), unlisted);
    let listed = Scene::unproven().with(from_ref(&cp)).advance(Some(&unlisted));
    assert!(is_spent(&listed, &cp), "it may be older than the upgrade");
    assert!(is_urgent(&unlisted, &listed));
    assert_eq!(gates(&listed, V36), "xxxxxx");
    // A leader that has just started.
    let restarted = Scene::unproven().advance(Some(&listed));
    assert_eq!(restarted.spent_overrides, listed.spent_overrides);
}

#[test]
fn of_too_many_overrides_none_counts() {
    let many: Vec<UpgradeOverride> = (0..65)
        .map(|each| object(&format!("o{each}"), OverriddenGate::ControlPlane, STEP, EVERY))
        .collect();
    let record = Scene::unproven().with(&many).advance(Some(&waiting()));
    assert_eq!(record, waiting());
    let record = Scene::unproven().with(&many[1..]).advance(Some(&record));
    assert_eq!(gates(&record, V36), "ooxxxx");
}

#[rstest]
#[case::revoked(NOW, 0)]
#[case::expired(EXPIRES, 2)]
fn a_gate_closes_again_until_its_step_was_made(#[case] second: i64, #[case] left: usize) {
    let all = [control_plane(EVERY), workers(EVERY)];
    let without = |scene: Scene| {
        let scene = Scene {
            now: at(second),
            ..scene
        };
        scene.with(&all[..left])
    };
    let open = Scene::unproven().with(&all).advance(Some(&waiting()));
    let closed = without(Scene::unproven()).advance(Some(&open));
    assert_eq!(
        (gates(&open, V36).as_str(), gates(&closed, V36).as_str()),
        ("ooxxxx", "xxxxxx")
    );
    let taken = without(Scene::unproven().with_control_plane(V36, V35)).advance(Some(&open));
    assert_eq!(gates(&taken, V36), "ooxxxx");

    let at_hop = || Scene::unproven().with_control_plane(V36, V36);
    let open = at_hop().with(&all[1..]).advance(Some(&waiting_for_workers()));
    let closed = without(at_hop()).advance(Some(&open));
    assert_eq!(
        (gates(&open, V36).as_str(), gates(&closed, V36).as_str()),
        ("ooooxx", "ooxxxx")
    );
    let rolled = without(at_hop().with_workers(V36)).advance(Some(&open));
    assert_eq!(gates(&rolled, V36), "ooooox");
    assert!(is_spent(&rolled, &all[1]));
    assert_eq!(without(at_hop().with_workers(V36)).advance(Some(&rolled)), rolled);
    // A worker is back at the earlier version.
    let back = without(at_hop()).advance(Some(&rolled));
    assert_eq!(gates(&back, V36), "ooxxxx");
}

/// Cluster API does not ask again for the other workers once one has taken the version. If it does, because that one had it before, hooks
/// need an override that may be used.
#[test]
fn gates_of_workers_stay_open_while_workers_roll() {
    let w = workers(EVERY);
    let scene = |one: &str, two: &str| {
        let mut scene = Scene::unproven().with_control_plane(V36, V36);
        let two = WorkerFacts {
            name: "other".into(),
            ..worker(two)
        };
        scene.workers = vec![worker(one), two];
        scene
    };
    let open = scene(V35, V35)
        .with(from_ref(&w))
        .advance(Some(&waiting_for_workers()));
    let revoked = scene(V35, V35).with(&[]).advance(Some(&open));
    assert_eq!(
        (gates(&open, V36).as_str(), gates(&revoked, V36).as_str()),
        ("ooooxx", "ooxxxx")
    );
    let one = scene(V36, V35).with(&[]).advance(Some(&open));
    assert_eq!((gates(&one, V36).as_str(), is_spent(&one, &w)), ("ooooxx", false));
    assert_eq!(scene(V36, V35).with(&[]).advance(Some(&one)), one);
    let another = object("another", OverriddenGate::Workers, STEP, EVERY);
    let replaced = scene(V36, V35).with(&[another]).advance(Some(&one));
    let hook = Hook::BeforeWorkersUpgrade;
    assert_eq!(by(&replaced, hook, V36).as_deref(), Some("another"));
    let both = scene(V36, V36).with(&[]).advance(Some(&one));
    assert_eq!(
        (gates(&both, V36).as_str(), is_spent(&both, &w)),
        ("ooooox", true)
    );
}

/// Other overrides of the gate stay unused, although that of the gate is spent.
#[test]
fn a_step_that_was_made_uses_no_other_override() {
    let all = ["a", "b", "c", "d"].map(|name| object(name, OverriddenGate::Workers, STEP, EVERY));
    let at_hop = || Scene::unproven().with_control_plane(V36, V36).with(&all);
    let open = at_hop().advance(Some(&waiting_for_workers()));
    let rolled = at_hop().with_workers(V36).advance(Some(&open));
    for hook in [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade] {
        assert_eq!(by(&rolled, hook, V36).as_deref(), Some("a"), "{hook}");
    }
    assert_eq!(
        all.each_ref().map(|of| is_spent(&rolled, of)),
        [true, false, false, false]
    );
    assert_eq!(at_hop().with_workers(V36).advance(Some(&rolled)), rolled);
}

#[test]
fn a_cluster_without_workers_has_no_step_of_workers_left() {
    let mut scene = Scene::unproven().with_control_plane(V36, V36);
    scene.workers.clear();
    let w = workers(EVERY);
    let open = scene.clone().with(from_ref(&w)).advance(Some(&waiting()));
    assert_eq!(gates(&open, V36), "ooooox");
    assert!(is_spent(&open, &w));
    assert_eq!(gates(&scene.with(&[]).advance(Some(&open)), V36), "ooooox");
}

#[test]
fn a_cancellation_spends_an_override() {
    let cp = control_plane(EVERY);
    let open = Scene::unproven().with(from_ref(&cp)).advance(Some(&waiting()));
    let cancelled = Scene::unproven().toward(V35, "35-1").with(from_ref(&cp));
    let cancelled = cancelled.advance(Some(&open));
    assert_eq!(cancelled.outcome, Some(Outcome::Cancelled));
    let mut again = Scene::unproven().with(from_ref(&cp));
    again.cluster.generation = 9;
    let again = again.advance(Some(&cancelled));
    assert_eq!(gates(&again, V36), "xxxxxx");
    assert!(is_spent(&again, &cp));
}

#[test]
fn another_target_spends_an_override() {
    let cp = control_plane(EVERY);
    let open = Scene::unproven().with(from_ref(&cp)).advance(Some(&waiting()));
    let mut beyond = Scene::unproven().with(&[cp]);
    beyond.plan = Plan::Listed([V35, V36, "v1.37.1"].map(str::to_owned).to_vec());
    beyond.cluster.generation = 8;
    beyond.cluster.topology_version = "v1.37.1";
    let record = beyond.advance(Some(&open));
    assert_eq!(
        (record.hop.as_deref(), gates(&record, V36).as_str()),
        (Some(V36), "xxxxx-")
    );
}

#[test]
fn an_override_is_for_one_step_of_the_control_plane() {
    let all = [control_plane(EVERY)];
    let open = Scene::unproven().with(&all).advance(Some(&waiting()));
    let taken = Scene::unproven()
        .with_control_plane(V36, V35)
        .with(&all)
        .advance(Some(&open));
    // The control plane was moved back by hand.
    let back = Scene::unproven().with(&all).advance(Some(&taken));
    assert_eq!(gates(&back, V36), "xxxxxx");
}

/// The reasons that an override of every package passes as a problem, and no others.
#[test]
fn only_problems_of_values_and_of_the_workload_are_passed() {
    const PASSED: [GateReason; 12] = [
        GateReason::ValuesNotFound,
        GateReason::ValuesOwnerMismatch,
        GateReason::ValuesNotReady,
        GateReason::ValuesSourceAmbiguous,
        GateReason::ValuesSecretRefused,
        GateReason::WriteRefused,
        GateReason::KubeconfigNotFound,
        GateReason::KubeconfigInvalid,
        GateReason::WorkloadUnreachable,
        GateReason::KappControllerNotInstalled,
        GateReason::KappControllerRestarting,
        GateReason::PackagesUnknown,
    ];
    for reason in GateReason::ALL {
        let passed = PASSED.contains(reason);
        let mut scene = Scene::unproven();
        scene.problem = Some(hold(*reason));
        let record = scene
            .clone()
            .with(&[control_plane(EVERY)])
            .advance(Some(&waiting()));
        let expected = if passed { "ooxxxx" } else { "xxxxxx" };
        assert_eq!(gates(&record, V36), expected, "{reason}");
        let named = control_plane(&["antrea", "kapp-controller"]);
        let record = scene.clone().with(&[named]).advance(Some(&waiting()));
        assert_eq!(gates(&record, V36), "xxxxxx", "{reason}");

        scene = scene.with_control_plane(V36, V36).with(&[workers(EVERY)]);
        let record = scene.advance(Some(&waiting_for_workers()));
        let expected = if passed { "ooooxx" } else { "ooxxxx" };
        assert_eq!(gates(&record, V36), expected, "{reason}");

        let mut scene = Scene::labelled(WANTED).with(&[]);
        scene.problem = Some(hold(*reason));
        let held = scene.advance(Some(&Scene::completed()));
        let record = scene.with(&[machines(EVERY)]).advance(Some(&held));
        assert_eq!(opens_swap(&record), passed, "{reason}");
    }
}

/// Holds that are no problem of the controller, such as pauses, and releases that are not merged.
#[test]
fn an_override_of_every_package_passes_each_obstacle_or_none_of_it() {
    for (name, edit, reason) in OBSTACLES {
        let mut scene = Scene::ready();
        edit(&mut scene);
        let held = scene.clone().with(&[]).advance(None);
        let record = scene.with(&[control_plane(EVERY)]).advance(Some(&held));
        let opens = answer(&record, Hook::BeforeControlPlaneUpgrade, V36).is_ok();
        let passed = reason.overridable() != crate::reasons::Overridable::Never;
        assert_eq!(opens, passed, "{name}");
        if !passed {
            assert_eq!(record, held, "{name}");
        }
    }
}

/// Cluster API waits for the version of the control plane, whatever an override says.
#[test]
fn workers_wait_for_the_control_plane() {
    let record = Scene::unproven()
        .with_control_plane(V36, V35)
        .with(&[workers(EVERY)])
        .advance(Some(&waiting()));
    assert_eq!(
        answer(&record, Hook::AfterControlPlaneUpgrade, V36),
        held_by(GateReason::ControlPlaneUpgrading)
    );
}

#[test]
fn a_rollback_has_overrides_of_its_own() {
    let of = |name: &str, release: &str| object(name, OverriddenGate::Workers, (V35, release), ANTREA);
    let older = of("older", OLD);
    let begun = Scene::recording()
        .with(from_ref(&older))
        .advance(Some(&rollbacks::cancelled()));
    assert!(is_spent(&begun, &older));
    let unproven = || Scene::rolling_back().with_package(1, PackageState::Reconciling);
    let held = unproven()
        .with(&[older.clone(), of("other", "36-1")])
        .advance(Some(&begun));
    assert_eq!(gates(&held, V35), "ooxxxx");
    let open = unproven().with(&[older, of("new", OLD)]).advance(Some(&held));
    assert_eq!((gates(&open, V35).as_str(), open.outcome), ("ooooox", None));
    let proven = Scene::rolling_back().with(&[]).advance(Some(&open));
    assert_eq!(proven.outcome, Some(Outcome::RolledBack));
}

/// Cluster API has not reconciled the cancellation yet.
#[test]
fn an_override_opens_no_gate_before_a_rollback() {
    let w = object("w", OverriddenGate::Workers, (V35, OLD), EVERY);
    let mut scene = Scene::rolling_back().with_package(1, PackageState::Reconciling);
    scene.rollback = None;
    scene.awaits_rollback = true;
    let waiting = scene.clone().with(&[]).advance(Some(&rollbacks::cancelled()));
    let record = scene.with(&[w]).advance(Some(&waiting));
    assert_eq!(&gates(&record, V35)[2..4], "xx");
}

/// Upgrade over two minor versions, at its first step.
fn chain(release: &'static str) -> Scene {
    let mut scene = Scene::ready()
        .with_control_plane(V35, V35)
        .with_workers(V34)
        .with_package(0, PackageState::Applied);
    scene.plan = Plan::Listed([V34, V35, V36].map(str::to_owned).to_vec());
    scene.tkr = Ok(release.into());
    scene.bootstrap.resolved_tkr = Some(release);
    scene
}

/// The chain whose workers skip the first step, with its record once an override has passed them.
fn passed_chain() -> (UpgradeOverride, UpgradeRecord) {
    let first = chain("35-1").with_control_plane(V34, V34).with(&[]).advance(None);
    let held = chain("35-1").with(&[]).advance(Some(&first));
    assert_eq!(
        (held.hop.as_deref(), gates(&held, V35).as_str()),
        (Some(V35), "ooxxx-")
    );
    let w = object("w", OverriddenGate::Workers, (V35, "35-1"), EVERY);
    // The release of the next hop is resolved by the next reconcile.
    let early = object("early", OverriddenGate::ControlPlane, (V36, "35-1"), EVERY);
    let passed = chain("35-1").with(&[early, w.clone()]).advance(Some(&held));
    assert_eq!(
        (passed.hop.as_deref(), gates(&passed, V35).as_str()),
        (Some(V36), "ooooo-")
    );
    assert!(gates(&passed, V36).starts_with("xx"), "it needs its own");
    (w, passed)
}

#[test]
fn a_step_of_a_chain_that_workers_skip_is_passed_until_the_override_is_gone() {
    let (w, passed) = passed_chain();
    let second = chain("36-1").with(from_ref(&w)).advance(Some(&passed));
    assert_eq!(
        (gates(&second, V35).as_str(), gates(&second, V36).as_str()),
        ("ooooo-", "xxxxxx")
    );
    assert_eq!(
        by(&second, Hook::AfterControlPlaneUpgrade, V35).as_deref(),
        Some("w")
    );
    assert!(!is_spent(&second, &w), "workers are still below");
    assert_eq!(chain("36-1").with(from_ref(&w)).advance(Some(&second)), second);
    let revoked = chain("36-1").with(&[]).advance(Some(&second));
    assert_eq!(
        (revoked.hop.as_deref(), gates(&revoked, V35).as_str()),
        (Some(V36), "ooxxx-")
    );
    let restored = object("again", OverriddenGate::Workers, (V35, "35-1"), EVERY);
    let record = chain("36-1").with(&[restored]).advance(Some(&revoked));
    assert_eq!(
        gates(&record, V35),
        "ooxxx-",
        "the packages are of another release"
    );
    let of_release = object("new", OverriddenGate::Workers, (V35, "36-1"), EVERY);
    let record = chain("36-1").with(&[of_release]).advance(Some(&revoked));
    assert_eq!(gates(&record, V35), "ooooo-");
    let proven = chain("36-1").with_package(0, PackageState::Ready).with(&[]);
    let record = proven.advance(Some(&revoked));
    assert_eq!(
        (gates(&record, V35).as_str(), gates(&record, V36).as_str()),
        ("ooooo-", "ooxxxx")
    );
    assert_eq!(by(&record, Hook::BeforeWorkersUpgrade, V35), None);
}

/// The target moves back to the version that the workers have skipped so far: they take it now.
#[test]
fn workers_that_take_a_skipped_version_after_all_wait_for_its_packages() {
    let (w, passed) = passed_chain();
    let mut scene = chain("35-1").toward(V35, "35-1").with(&[w]);
    scene.cluster.label = "35-1";
    let record = scene.advance(Some(&passed));
    assert_eq!(record.outcome, Some(Outcome::Cancelled));
    assert_eq!(gates(&record, V35), "ooxxxx");
}

#[test]
fn an_entry_of_a_swap_is_permitted_by_an_override_of_the_machines() {
    let unproven = || Scene::labelled(WANTED).with_package(1, PackageState::Reconciling);
    let held = unproven().with(&[]).advance(Some(&Scene::completed()));
    assert!(!opens_swap(&held));
    let others = [
        object("w", OverriddenGate::Workers, (V35, WANTED), EVERY),
        object("r", OverriddenGate::Machines, (V35, "35-1"), EVERY),
        object("v", OverriddenGate::Machines, (V36, WANTED), EVERY),
    ];
    assert!(!opens_swap(&unproven().with(&others).advance(Some(&held))));
    let m = machines(ANTREA);
    let open = unproven().with(from_ref(&m)).advance(Some(&held));
    assert!(opens_swap(&open), "{open:?}");
    assert_eq!(swap(&open).overridden_by.as_ref().unwrap().name, "m");
    assert!(!is_spent(&open, &m));
    let revoked = unproven().with(&[]).advance(Some(&open));
    assert_eq!(
        (opens_swap(&revoked), &swap(&revoked).overridden_by),
        (false, &None)
    );
    let mut no_image = unproven().with(from_ref(&m));
    no_image.swap.hold = Some(hold(GateReason::MachinesNotResolved));
    assert!(!opens_swap(&no_image.advance(Some(&held))));

    let written = |outdated| unproven().written(outdated).with(from_ref(&m));
    let rolling = written(Some("md 0/1")).advance(Some(&open));
    assert_eq!(swap(&rolling).overridden_by, swap(&open).overridden_by);
    assert!(is_spent(&rolling, &m));
    let replaced = written(None).advance(Some(&rolling));
    assert_eq!(replaced.outcome, None, "the package is still unproven");
    let proven = Scene::labelled(WANTED).written(None).with(&[]);
    assert_eq!(proven.advance(Some(&replaced)).outcome, Some(Outcome::Completed));
}

/// The machines of one release are replaced while a package is not proven, so that the record stays open for the next release.
#[test]
fn an_override_for_the_next_release_of_machines_is_created_after_its_label() {
    const NEXT: &str = "35-3";
    let unproven = || Scene::labelled(WANTED).with_package(1, PackageState::Reconciling);
    let held = unproven().with(&[]).advance(Some(&Scene::completed()));
    let m = machines(ANTREA);
    let open = unproven().with(from_ref(&m)).advance(Some(&held));
    let next = object("n", OverriddenGate::Machines, (V35, NEXT), EVERY);
    let both = [m, next.clone()];
    let written = unproven().written(None).with(&both).advance(Some(&open));
    assert_eq!((written.outcome, is_spent(&written, &next)), (None, false));

    let moved = || Scene::labelled(NEXT).with_package(1, PackageState::Reconciling);
    let waits = moved().with(&both).advance(Some(&written));
    assert_eq!((swap(&waits).to.as_str(), opens_swap(&waits)), (NEXT, false));
    assert!(is_spent(&waits, &next));
    let again = object("again", OverriddenGate::Machines, (V35, NEXT), EVERY);
    let opened = moved().with(&[next, again]).advance(Some(&waits));
    assert!(opens_swap(&opened), "{opened:?}");
}

/// The release is not known for a moment.
#[test]
fn a_swap_that_is_interrupted_names_no_override() {
    let scene = Scene::labelled(WANTED).with_package(1, PackageState::Reconciling);
    let held = scene.clone().with(&[]).advance(Some(&Scene::completed()));
    let open = scene.clone().with(&[machines(EVERY)]).advance(Some(&held));
    let mut unknown = scene.with(&[machines(EVERY)]);
    unknown.tkr = Err(hold(GateReason::TKRNotFound));
    unknown.swap.request = None;
    let record = unknown.advance(Some(&open));
    assert_eq!((swap(&record).open, &swap(&record).overridden_by), (false, &None));
}
