use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::run::{Gate, SCHEMA};

use super::*;
use crate::upgrade::overrides::tests::{EXPIRES, by};

mod leaderless;
mod stuck;
mod without_bootstrap;
mod wrong;

use wrong::WRONG;

const POLICY: RetryPolicy = RetryPolicy::with_held(1);
const DELETED_AT: i64 = 1_000_000;
const UNLISTED: Knowledge<'static> = Knowledge::Unsynced(StoredKind::ClusterBootstrap);

fn gate(hook: Hook, version: &str, open: bool) -> Gate {
    let (reason, message) = if open {
        ("", "")
    } else {
        ("PackagesNotReady", "waiting for antrea 1.9.0")
    };
    Gate {
        hook,
        version: version.into(),
        open,
        reason: reason.into(),
        message: message.into(),
        overridden_by: None,
    }
}

/// A record in which every hook is released at v1.35.4 on the way to v1.36.3.
fn open_record() -> UpgradeRecord {
    UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".into(),
        observed_cluster_generation: 7,
        observed_bootstrap_generation: 12,
        label: "v1.36.3---sluice.1".into(),
        to: "v1.36.3".into(),
        hop: Some("v1.35.4".into()),
        gates: Hook::ALL.map(|hook| gate(hook, "v1.35.4", true)).into(),
        ..UpgradeRecord::default()
    }
}

/// A call that the record releases.
fn call(hook: Hook) -> HookCall<'static> {
    HookCall {
        hook,
        namespace: "team-a",
        name: "one",
        uid: "uid",
        generation: 7,
        label: Some("v1.36.3---sluice.1"),
        labels: None,
        version: if hook == Hook::BeforeClusterUpgrade {
            "v1.36.3"
        } else {
            "v1.35.4"
        },
        first_step: (hook == Hook::BeforeClusterUpgrade).then_some("v1.35.4"),
        deleted_at: (hook == Hook::BeforeClusterDelete).then(|| Timestamp::from_second(DELETED_AT).unwrap()),
        now: Timestamp::from_second(DELETED_AT + 5).ok(),
        clock: None,
    }
}

/// A situation that is released, before a case takes something away from it.
#[expect(clippy::struct_excessive_bools, reason = "each is read by one clause")]
struct Scene {
    call: HookCall<'static>,
    record: Option<UpgradeRecord>,
    bootstrap_generation: Option<i64>,
    bootstrap_undecodable: bool,
    undecodable: Option<Hold>,
    unlisted: Option<StoredKind>,
    legacy: bool,
    custom: bool,
    revoked: bool,
    missing: Option<Hold>,
    leaderless: bool,
    still: Duration,
}

impl Scene {
    fn released(hook: Hook) -> Self {
        Self {
            call: call(hook),
            record: Some(UpgradeRecord {
                to: if hook == Hook::BeforeClusterCreate {
                    "v1.35.4".into()
                } else {
                    "v1.36.3".into()
                },
                ..open_record()
            }),
            bootstrap_generation: Some(12),
            bootstrap_undecodable: false,
            undecodable: None,
            unlisted: None,
            legacy: false,
            custom: false,
            revoked: false,
            missing: None,
            leaderless: false,
            still: Duration::ZERO,
        }
    }

    fn record(&mut self) -> &mut UpgradeRecord {
        self.record.as_mut().unwrap()
    }

    /// Every gate is open by an override, and the clock of the replica shows this second.
    fn override_gates(&mut self, second: Option<i64>) {
        self.call.clock = second.map(|second| Timestamp::from_second(second).unwrap());
        for gate in &mut self.record().gates {
            gate.overridden_by = Some(by("skip"));
        }
    }

    fn decide_by(&self, clauses: &[Clause<PackageObjection>]) -> Decision {
        let known = CachedCluster {
            record: self.record.as_ref(),
            bootstrap_generation: self.bootstrap_generation,
            bootstrap_undecodable: self.bootstrap_undecodable,
            undecodable: self.undecodable.clone(),
            unlisted: self.unlisted,
            legacy: self.legacy,
            custom: self.custom,
            revoked: self.revoked,
            missing: self.missing.clone(),
            leaderless: self.leaderless,
            still: self.still,
        };
        decide_by(
            clauses,
            &self.call,
            &Knowledge::synced(self.call.label, known),
            &POLICY,
        )
    }
}

type Edit = fn(&mut Scene);

fn reason(decision: &Decision) -> Option<HoldReason> {
    match decision {
        Decision::Release => None,
        Decision::Hold { reason, .. } => Some(*reason),
    }
}

#[rstest]
fn a_record_that_speaks_about_the_call_releases(#[values(0, 1, 2, 3, 4, 5, 6, 7, 8)] hook: usize) {
    assert_eq!(
        Scene::released(Hook::ALL[hook]).decide_by(&CLAUSES),
        Decision::Release
    );
}

#[test]
fn everything_else_holds_with_a_reason() {
    for (name, hook, edit, expected) in WRONG {
        let mut scene = Scene::released(hook);
        edit(&mut scene);
        assert_eq!(reason(&scene.decide_by(&CLAUSES)), Some(expected), "{name}");
    }
}

#[test]
fn without_any_one_clause_something_wrong_is_released() {
    for (left_out, clause) in CLAUSES.iter().enumerate() {
        let mut fewer = Vec::from(CLAUSES);
        fewer.remove(left_out);
        let released: Vec<&str> = WRONG
            .iter()
            .filter(|(_, hook, edit, _)| {
                let mut scene = Scene::released(*hook);
                edit(&mut scene);
                scene.decide_by(&fewer) == Decision::Release
            })
            .map(|(name, ..)| *name)
            .collect();
        assert!(!released.is_empty(), "no case needs the clause {:?}", clause.name);
    }
}

/// A gate whose step was made stays open without its override.
#[test]
fn an_override_counts_until_it_expires_or_is_spent() {
    let mut scene = Scene::released(Hook::BeforeWorkersUpgrade);
    scene.override_gates(Some(EXPIRES - 1));
    assert_eq!(scene.decide_by(&CLAUSES), Decision::Release);
    scene.override_gates(None);
    scene.revoked = true;
    scene.record().spent_overrides = Some(vec!["another".into()]);
    assert_ne!(scene.decide_by(&CLAUSES), Decision::Release);
    scene.record().spent_overrides = Some(vec![by("skip").uid]);
    assert_eq!(scene.decide_by(&CLAUSES), Decision::Release);
}

#[test]
fn the_version_that_the_upgrade_comes_from_is_never_compared() {
    let mut scene = Scene::released(Hook::BeforeWorkersUpgrade);
    scene.record().from = Some("v1.20.0".into());
    assert_eq!(scene.decide_by(&CLAUSES), Decision::Release);
}

/// Cluster API has not observed an edit of the Cluster that the record has, such as an entry for the version of the call.
#[test]
fn a_call_about_an_earlier_generation_is_repeated_soon() {
    for hook in Hook::ALL {
        let mut scene = Scene {
            still: Duration::from_hours(2),
            ..Scene::released(hook)
        };
        scene.call.generation = 6;
        let expected = match hook {
            Hook::AfterControlPlaneInitialized => Decision::Release,
            _ => Decision::Hold {
                retry_after: RetryAfter::SHORTEST,
                reason: HoldReason::Call(CallReason::CallOutdated),
                message: "CallOutdated: call about an earlier generation of the Cluster".into(),
            },
        };
        assert_eq!(scene.decide_by(&CLAUSES), expected, "{hook}");
        // The record of an API server that was restored.
        scene.record().observed_cluster_generation = 6;
        assert_eq!(scene.decide_by(&CLAUSES), Decision::Release, "{hook}");
    }
}

#[test]
fn before_cluster_api_1_12_the_target_is_the_step() {
    let mut scene = Scene::released(Hook::BeforeClusterUpgrade);
    scene.call.first_step = None;
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        Some(HoldReason::Call(CallReason::VersionNotPlanned))
    );
    scene
        .record()
        .gates
        .push(gate(Hook::BeforeClusterUpgrade, "v1.36.3", true));
    assert_eq!(scene.decide_by(&CLAUSES), Decision::Release);
}

#[test]
fn a_hold_carries_reason_message_and_a_wait() {
    let mut scene = Scene::released(Hook::BeforeControlPlaneUpgrade);
    scene.record().gates = vec![gate(Hook::BeforeControlPlaneUpgrade, "v1.35.4", false)];
    assert_eq!(
        scene.decide_by(&CLAUSES),
        Decision::Hold {
            retry_after: RetryAfter::SHORTEST,
            reason: HoldReason::Gate(GateReason::PackagesNotReady),
            message: "PackagesNotReady: waiting for antrea 1.9.0".into(),
        }
    );
}

#[test]
fn a_reason_of_a_newer_release_still_holds() {
    let mut scene = Scene::released(Hook::BeforeControlPlaneUpgrade);
    for gate in &mut scene.record().gates {
        gate.open = false;
        gate.reason = "SomethingNewer".into();
    }
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        Some(HoldReason::Call(CallReason::GateClosed))
    );
}

#[test]
fn a_missing_release_holds_before_any_record_exists() {
    let mut scene = Scene::released(Hook::BeforeClusterUpgrade);
    scene.record = None;
    scene.missing = Some(Hold::new(
        GateReason::TKRNotFound,
        "TanzuKubernetesRelease v1.36.3---sluice.1 does not exist",
    ));
    assert_eq!(
        reason(&scene.decide_by(&CLAUSES)),
        Some(HoldReason::Gate(GateReason::TKRNotFound))
    );
}

/// A decision without a record needs none of these kinds either, and uninstalled packages stay uninstalled.
#[test]
fn a_kind_that_was_never_listed_is_named() {
    let with = |hook| Scene {
        unlisted: Some(StoredKind::PackageInstall),
        ..Scene::released(hook)
    };
    for hook in Hook::ALL {
        let expected = match hook {
            Hook::AfterControlPlaneInitialized | Hook::BeforeClusterDelete => None,
            _ => Some("APIUnavailable: waiting for packageinstalls.packaging.carvel.dev to be listed"),
        };
        let message = match with(hook).decide_by(&CLAUSES) {
            Decision::Release => None,
            Decision::Hold { message, .. } => Some(message),
        };
        assert_eq!(message.as_deref(), expected, "{hook}");
    }
    let custom = Scene {
        custom: true,
        record: None,
        ..with(Hook::BeforeClusterCreate)
    };
    assert_eq!(custom.decide_by(&CLAUSES), Decision::Release);
    let mut uninstalling = with(Hook::BeforeClusterDelete);
    uninstalling.record().gates = vec![gate(Hook::BeforeClusterDelete, "v1.35.4", false)];
    assert_eq!(
        reason(&uninstalling.decide_by(&CLAUSES)),
        Some(HoldReason::Gate(GateReason::PackagesNotReady))
    );
    let unrecorded = Scene {
        record: None,
        ..with(Hook::BeforeClusterUpgrade)
    };
    assert_eq!(
        reason(&unrecorded.decide_by(&CLAUSES)),
        Some(HoldReason::Gate(GateReason::APIUnavailable))
    );
}

#[rstest]
fn a_cluster_without_label_and_bootstrap_is_let_go(#[values(0, 1, 2, 3, 4, 5, 6, 7, 8)] hook: usize) {
    let call = HookCall {
        label: None,
        ..call(Hook::ALL[hook])
    };
    let knowledge = Knowledge::synced(call.label, CachedCluster::default());
    assert_eq!(knowledge, Knowledge::Unmanaged);
    assert_eq!(decide(&call, &knowledge, &POLICY), Decision::Release);
}

#[rstest]
#[case::labelled(Some("v1.36.3---sluice.1"), false, None, false)]
#[case::empty_label(Some(""), false, None, true)]
#[case::label_removed(None, false, Some(1), false)]
#[case::legacy_release(Some("v1.20.0---tkg.1"), true, None, true)]
#[case::legacy_release_with_bootstrap(Some("v1.20.0---tkg.1"), true, Some(1), false)]
fn managed_clusters(
    #[case] label: Option<&str>,
    #[case] legacy: bool,
    #[case] bootstrap_generation: Option<i64>,
    #[case] unmanaged: bool,
) {
    let knowledge = Knowledge::synced(
        label,
        CachedCluster {
            bootstrap_generation,
            legacy,
            ..CachedCluster::default()
        },
    );
    assert_eq!(knowledge == Knowledge::Unmanaged, unmanaged);
}

#[rstest]
fn without_knowledge_every_hook_holds_but_the_one_that_cannot(
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8)] hook: usize,
    #[values(None, Some("v1.36.3---sluice.1"))] label: Option<&'static str>,
) {
    let call = HookCall {
        label,
        ..call(Hook::ALL[hook])
    };
    let held = call.hook != Hook::AfterControlPlaneInitialized;
    let expected = held.then_some(HoldReason::Call(CallReason::Starting));
    assert_eq!(reason(&decide(&call, &UNLISTED, &POLICY)), expected);
}

#[rstest]
#[case::in_time(600, Some(HoldReason::Call(CallReason::Starting)))]
#[case::too_late(601, None)]
fn a_deletion_is_let_go_by_any_replica_after_the_limit(
    #[case] after: i64,
    #[case] expected: Option<HoldReason>,
) {
    let call = HookCall {
        now: Timestamp::from_second(DELETED_AT + after).ok(),
        ..call(Hook::BeforeClusterDelete)
    };
    assert_eq!(reason(&decide(&call, &UNLISTED, &POLICY)), expected);
}

proptest! {
    /// For every call and every knowledge: the release of a managed Cluster has an open gate for exactly this call.
    #[test]
    fn no_release_without_an_open_gate(
        hook in prop::sample::select(Hook::ALL.to_vec()),
        uid in prop::sample::select(vec!["uid", "other"]),
        generation in 5_i64..9,
        label in prop::sample::select(vec![None, Some(""), Some("a"), Some("b")]),
        version in prop::sample::select(vec!["v1", "v2"]),
        first_step in prop::sample::select(vec![None, Some("v1"), Some("v2")]),
        to in prop::sample::select(vec!["v1", "v2"]),
        schema in 0_i64..3,
        bootstrap_generation in prop::option::of(1_i64..3),
        gates in prop::collection::vec((0_usize..9, prop::sample::select(vec!["v1", "v2"]), any::<bool>()), 0..8),
    ) {
        let record = UpgradeRecord {
            schema,
            to: to.into(),
            label: "a".into(),
            observed_bootstrap_generation: 2,
            gates: gates.iter().map(|(hook, version, open)| gate(Hook::ALL[*hook], version, *open)).collect(),
            ..open_record()
        };
        let call = HookCall { uid, generation, label, version, first_step, deleted_at: None, ..call(hook) };
        let known = CachedCluster { record: Some(&record), bootstrap_generation, ..CachedCluster::default() };
        let knowledge = Knowledge::Managed(known);
        if decide(&call, &knowledge, &POLICY) == Decision::Release
            && hook != Hook::AfterControlPlaneInitialized
            && !(hook == Hook::BeforeClusterDelete && bootstrap_generation.is_none())
        {
            prop_assert_eq!(schema, SCHEMA);
            prop_assert_eq!(uid, "uid");
            prop_assert_eq!(generation, 7);
            prop_assert_eq!(label, Some("a"));
            prop_assert_eq!(bootstrap_generation, Some(2));
            prop_assert!(record.gates.iter().any(|gate| gate.hook == hook && gate.open
                && (hook == Hook::BeforeClusterDelete || gate.version == call.gate_version())));
        }
    }
}
