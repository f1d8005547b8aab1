use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{lifecycle::SelectedGate, run::Gate};

use super::*;
use crate::{
    cache::stores::tests::{object, undecodable},
    gate::retry::RetryAfter,
    reasons::GateReason,
};

const POLICY: RetryPolicy = RetryPolicy::with_held(1);

/// Hooks that gates hold.
const GATED: [Hook; 4] = [
    Hook::BeforeClusterUpgrade,
    Hook::BeforeControlPlaneUpgrade,
    Hook::AfterControlPlaneUpgrade,
    Hook::BeforeWorkersUpgrade,
];

/// The third generation of a gate that selects Clusters with Cilium.
fn gate(mode: &str) -> Arc<UpgradeGate> {
    let spec = json!({
        "mode": mode, "before": "ControlPlane", "checks": [], "clusterSelector": {"matchLabels": {"cni": "cilium"}},
    });
    let mut gate: Arc<UpgradeGate> = object(Some("team-a"), "cni", &json!({}), &json!({"spec": spec}));
    let meta = &mut Arc::make_mut(&mut gate).metadata;
    meta.uid = Some("uid of cni".to_owned());
    meta.generation = Some(3);
    gate
}

/// A record in which every hook is released at v1.35.4 on the way to v1.36.3.
fn open_record() -> GateRecord {
    let open = |hook| Gate {
        hook,
        version: "v1.35.4".into(),
        open: true,
        reason: String::new(),
        message: String::new(),
        overridden_by: None,
    };
    GateRecord {
        schema: GATE_SCHEMA,
        cluster_uid: "uid".into(),
        observed_cluster_generation: 7,
        to: "v1.36.3".into(),
        hop: Some("v1.35.4".into()),
        gates: GATED.map(open).into(),
        selected: vec![SelectedGate {
            name: "cni".into(),
            uid: "uid of cni".into(),
            generation: 3,
            mode: GateMode::Enforce,
        }],
        ..GateRecord::default()
    }
}

fn close(record: &mut GateRecord) {
    for gate in &mut record.gates {
        gate.open = false;
        gate.reason = "ChecksNotReady".into();
        gate.message = "cni/chart: HelmReleaseProxy cilium-one-x7k2p is not at 1.18.2".into();
    }
}

/// A call that the record releases.
fn call(hook: Hook) -> HookCall<'static> {
    let is_of_upgrade = hook == Hook::BeforeClusterUpgrade;
    HookCall {
        hook,
        namespace: "team-a",
        name: "one",
        uid: "uid",
        generation: 7,
        label: None,
        labels: Some(r#"{"cni": "cilium"}"#),
        version: if is_of_upgrade { "v1.36.3" } else { "v1.35.4" },
        first_step: is_of_upgrade.then_some("v1.35.4"),
        deleted_at: None,
        now: None,
        clock: None,
    }
}

/// A situation that is released, before a case takes something away from it.
struct Scene {
    call: HookCall<'static>,
    unknown: Option<Hold<HoldReason>>,
    record: Option<GateRecord>,
    gate: Arc<UpgradeGate>,
    leaderless: bool,
    still: Duration,
}

impl Scene {
    fn released(hook: Hook) -> Self {
        Self {
            call: call(hook),
            unknown: None,
            record: Some(open_record()),
            gate: gate("Enforce"),
            leaderless: false,
            still: Duration::ZERO,
        }
    }

    fn record(&mut self) -> &mut GateRecord {
        self.record.as_mut().unwrap()
    }

    fn gate(&mut self) -> &mut UpgradeGate {
        Arc::make_mut(&mut self.gate)
    }

    fn decide_by(&self, clauses: &[Clause<GateObjection>]) -> Decision {
        let cached = CachedGates {
            unknown: self.unknown.clone(),
            record: self.record.as_ref(),
            selecting: vec![&*self.gate],
            leaderless: self.leaderless,
            still: self.still,
        };
        decide_by(clauses, &self.call, &GateKnowledge::Gated(cached), &POLICY)
    }
}

type Edit = fn(&mut Scene);

/// Defect, called hook, edit that introduces the defect, and expected reason.
const WRONG: [(&str, Hook, Edit, HoldReason); 19] = [
    (
        "an object that it depends on cannot be decoded",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.unknown = Some(held(GateReason::ObjectUndecodable, "")),
        HoldReason::Gate(GateReason::ObjectUndecodable),
    ),
    (
        "no record",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record = None,
        HoldReason::Call(CallReason::RecordNotFound),
    ),
    (
        "later schema",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().schema = GATE_SCHEMA + 1,
        HoldReason::Call(CallReason::RecordSchemaUnknown),
    ),
    (
        "no schema",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().schema = 0,
        HoldReason::Call(CallReason::RecordSchemaUnknown),
    ),
    (
        "same name, other cluster",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().cluster_uid = "before".into(),
        HoldReason::Call(CallReason::RecordUIDMismatch),
    ),
    (
        "cluster edited",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.generation = 8,
        HoldReason::Call(CallReason::ClusterNotObserved),
    ),
    (
        "call from before an edit",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.generation = 6,
        HoldReason::Call(CallReason::CallOutdated),
    ),
    (
        "gate created",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().selected.clear(),
        HoldReason::Call(CallReason::GatesNotObserved),
    ),
    (
        "gate edited",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.gate().metadata.generation = Some(4),
        HoldReason::Call(CallReason::GatesNotObserved),
    ),
    (
        "gate of an earlier generation",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.gate().metadata.generation = Some(2),
        HoldReason::Call(CallReason::GatesNotObserved),
    ),
    (
        "gate recreated",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.gate().metadata.uid = Some("another".into()),
        HoldReason::Call(CallReason::GatesNotObserved),
    ),
    (
        "gate judged as Audit",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().selected[0].mode = GateMode::Audit,
        HoldReason::Call(CallReason::GatesNotObserved),
    ),
    (
        "target edited",
        Hook::BeforeClusterUpgrade,
        |s| s.call.version = "v1.36.4",
        HoldReason::Call(CallReason::RecordTargetMismatch),
    ),
    (
        "first step unknown",
        Hook::BeforeClusterUpgrade,
        |s| s.call.first_step = Some("v1.36.3"),
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "proof of another hop",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.version = "v1.36.3",
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "another build of the version",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.version = "v1.35.4+b",
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "gate of another hook",
        Hook::BeforeWorkersUpgrade,
        |s| {
            s.record()
                .gates
                .retain(|gate| gate.hook != Hook::BeforeWorkersUpgrade);
        },
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "gate closed",
        Hook::BeforeControlPlaneUpgrade,
        |s| close(s.record()),
        HoldReason::Gate(GateReason::ChecksNotReady),
    ),
    (
        "no replica leads",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.leaderless = true,
        HoldReason::Call(CallReason::NoLeader),
    ),
];

fn reason(decision: &Decision) -> Option<HoldReason> {
    match decision {
        Decision::Release => None,
        Decision::Hold { reason, .. } => Some(*reason),
    }
}

#[test]
fn a_record_that_speaks_about_the_call_releases() {
    for hook in GATED {
        let decision = Scene::released(hook).decide_by(&CLAUSES);
        assert_eq!(decision, Decision::Release, "{hook}");
    }
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
        let is_released = |(_, hook, edit, _): &(&str, Hook, Edit, HoldReason)| {
            let mut scene = Scene::released(*hook);
            edit(&mut scene);
            scene.decide_by(&fewer) == Decision::Release
        };
        assert!(
            WRONG.iter().any(is_released),
            "no case needs the clause {:?}",
            clause.name
        );
    }
}

#[test]
fn gates_hold_no_other_hook() {
    for hook in Hook::ALL {
        let released = !GATED.contains(&hook);
        assert_eq!(is_gated(hook), !released, "{hook}");
        for (name, _, edit, _) in WRONG {
            let mut scene = Scene::released(hook);
            edit(&mut scene);
            if released {
                assert_eq!(scene.decide_by(&CLAUSES), Decision::Release, "{hook}: {name}");
            }
        }
        let unlisted = GateKnowledge::Unlisted("no role".into());
        let decision = decide_by_gates(&call(hook), &unlisted, &POLICY);
        let expected = (!released).then_some(HoldReason::Call(CallReason::Starting));
        assert_eq!(reason(&decision), expected, "{hook}");
    }
}

#[rstest]
#[case::closed(
    |s: &mut Scene| close(s.record()),
    "ChecksNotReady: cni/chart: HelmReleaseProxy cilium-one-x7k2p is not at 1.18.2"
)]
#[case::edited(
    |s: &mut Scene| s.gate().metadata.generation = Some(4),
    "GatesNotObserved: waiting for Sluice to observe the latest edit of UpgradeGate cni"
)]
fn a_hold_names_the_gate(#[case] edit: Edit, #[case] expected: &str) {
    let mut scene = Scene::released(Hook::BeforeControlPlaneUpgrade);
    edit(&mut scene);
    let Decision::Hold {
        message, retry_after, ..
    } = scene.decide_by(&CLAUSES)
    else {
        panic!("it is released");
    };
    assert_eq!((message.as_str(), retry_after), (expected, RetryAfter::SHORTEST));
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

#[rstest]
#[case::waits_for_a_check(|s: &mut Scene| close(s.record()), true)]
#[case::edited(|s: &mut Scene| s.call.generation = 8, false)]
#[case::gate_edited(|s: &mut Scene| s.gate().metadata.generation = Some(4), false)]
fn a_stuck_cluster_is_asked_rarely_unless_the_reason_is_about_to_pass(
    #[case] edit: Edit,
    #[case] rarely: bool,
) {
    let mut scene = Scene {
        still: Duration::from_hours(10),
        ..Scene::released(Hook::BeforeControlPlaneUpgrade)
    };
    edit(&mut scene);
    let Decision::Hold { retry_after, .. } = scene.decide_by(&CLAUSES) else {
        panic!("it is released");
    };
    assert_eq!(retry_after > RetryAfter::SHORTEST, rarely, "{retry_after:?}");
}

/// Objects of the cache: gates, a ClusterUpgrade with this status, and a Cluster with these labels.
struct Cache {
    gates: Vec<FoundGate>,
    upgrade: Found<ClusterUpgrade>,
    cluster: Found<Cluster>,
}

impl Cache {
    fn of(gates: Vec<FoundGate>, status: Option<&Value>, labels: &Value) -> Self {
        let upgrade = |status| object(Some("team-a"), "one", &json!({}), &json!({"status": status}));
        Self {
            gates,
            upgrade: Ok(status.map(upgrade)),
            cluster: Ok(Some(object(Some("team-a"), "one", labels, &json!({"spec": {}})))),
        }
    }

    fn reason(&self, call: &HookCall<'_>) -> Option<HoldReason> {
        let objects = GateObjects {
            gates: &self.gates,
            upgrade: &self.upgrade,
            cluster: &self.cluster,
        };
        reason(&decide_by_gates(call, &GateKnowledge::of(call, objects), &POLICY))
    }
}

fn status(edit: impl FnOnce(&mut GateRecord)) -> Value {
    let mut record = open_record();
    edit(&mut record);
    json!({"upgrade": serde_json::to_value(record).unwrap()})
}

const UNRECORDED: Option<HoldReason> = Some(HoldReason::Call(CallReason::RecordNotFound));
const UNOBSERVED: Option<HoldReason> = Some(HoldReason::Call(CallReason::GatesNotObserved));
const UNDECODABLE: Option<HoldReason> = Some(HoldReason::Gate(GateReason::ObjectUndecodable));
const NOT_READY: Option<HoldReason> = Some(HoldReason::Gate(GateReason::ChecksNotReady));
const OTHER_SCHEMA: Option<HoldReason> = Some(HoldReason::Call(CallReason::RecordSchemaUnknown));

#[rstest]
#[case::both(Some(r#"{"cni": "cilium"}"#), json!({"cni": "cilium"}), UNRECORDED)]
#[case::the_call(Some(r#"{"cni": "cilium"}"#), json!({"cni": "antrea"}), UNRECORDED)]
#[case::the_cache(Some(r#"{"cni": "antrea"}"#), json!({"cni": "cilium"}), UNRECORDED)]
#[case::the_cache_after_all_labels_were_removed(None, json!({"cni": "cilium"}), UNRECORDED)]
#[case::neither(Some(r#"{"cni": "antrea"}"#), json!({"cni": "antrea"}), None)]
#[case::neither_without_labels(None, json!({}), None)]
fn a_gate_selects_by_the_labels_of_call_or_cache(
    #[case] labels: Option<&'static str>,
    #[case] cached: Value,
    #[case] expected: Option<HoldReason>,
) {
    let call = HookCall {
        labels,
        ..call(Hook::BeforeControlPlaneUpgrade)
    };
    let enforced = Cache::of(vec![Ok(gate("Enforce"))], None, &cached);
    assert_eq!(enforced.reason(&call), expected);
    let audited = Cache::of(vec![Ok(gate("Audit"))], None, &cached);
    assert_eq!(audited.reason(&call), None, "Audit holds nothing");
    let unseen = Cache {
        cluster: Ok(None),
        ..enforced
    };
    let expected = expected.filter(|_| labels.is_some_and(|labels| labels.contains("cilium")));
    assert_eq!(unseen.reason(&call), expected);
}

#[rstest]
#[case::too_long("")]
#[case::number(r#"{"cni": 1}"#)]
#[case::null(r#"{"cni": null}"#)]
#[case::list(r#"[{"cni": "antrea"}]"#)]
#[case::twice(r#"{"cni": "cilium", "cni": "antrea"}"#)]
fn labels_of_odd_types_hold_where_a_gate_may_select_by_them(#[case] labels: &'static str) {
    let call = HookCall {
        labels: Some(labels),
        ..call(Hook::BeforeControlPlaneUpgrade)
    };
    let status = status(|_| {});
    let of = |gates| Cache::of(gates, Some(&status), &json!({"cni": "cilium"})).reason(&call);
    assert_eq!(of(vec![Ok(gate("Enforce"))]), UNOBSERVED);
    assert_eq!(of(vec![Ok(gate("Audit"))]), None);
    assert_eq!(of(Vec::new()), None);
}

#[test]
fn undecodable_objects_hold() {
    let odd = |kind, name| undecodable(kind, Some("team-a"), name, &json!({}));
    let call = HookCall {
        labels: None,
        ..call(Hook::BeforeControlPlaneUpgrade)
    };
    let cache = |gates| Cache::of(gates, None, &json!({}));
    assert_eq!(cache(vec![Ok(gate("Enforce"))]).reason(&call), None);
    let odd_gate = cache(vec![Ok(gate("Audit")), Err(odd("UpgradeGate", "csi"))]);
    assert_eq!(odd_gate.reason(&call), UNDECODABLE);
    let odd_upgrade = Cache {
        upgrade: Err(odd("ClusterUpgrade", "one")),
        ..cache(Vec::new())
    };
    assert_eq!(odd_upgrade.reason(&call), UNDECODABLE);
    let odd_cluster = |mode| Cache {
        cluster: Err(odd("Cluster", "one")),
        ..cache(vec![Ok(gate(mode))])
    };
    assert_eq!(odd_cluster("Enforce").reason(&call), UNDECODABLE);
    assert_eq!(odd_cluster("Audit").reason(&call), None);
}

/// The cache lacks the gates that a record lists, such as a new one.
#[rstest]
#[case::no_cluster_upgrade(None, None)]
#[case::created(Some(Value::Null), None)]
#[case::no_record(Some(json!({"heldBy": "cni"})), UNRECORDED)]
#[case::unreadable(Some(json!({"upgrade": {"schema": GATE_SCHEMA, "selected": []}})), UNRECORDED)]
#[case::no_gate(Some(status(|r| { r.selected.clear(); close(r); })), None)]
#[case::audit(Some(status(|r| { r.selected[0].mode = GateMode::Audit; close(r); })), None)]
#[case::later_schema(Some(status(|r| { r.schema += 1; r.selected.clear(); })), OTHER_SCHEMA)]
#[case::open(Some(status(|_| {})), None)]
#[case::closed(Some(status(close)), NOT_READY)]
#[case::older(Some(status(|r| r.observed_cluster_generation = 6)), Some(HoldReason::Call(CallReason::ClusterNotObserved)))]
#[case::another_cluster(Some(status(|r| r.cluster_uid = "another".into())), Some(HoldReason::Call(CallReason::RecordUIDMismatch)))]
fn a_record_decides_about_gates_that_the_cache_lacks(
    #[case] status: Option<Value>,
    #[case] expected: Option<HoldReason>,
) {
    let cache = Cache::of(Vec::new(), status.as_ref(), &json!({"cni": "cilium"}));
    for hook in GATED {
        assert_eq!(cache.reason(&call(hook)), expected, "{hook}");
    }
}

/// A record lists no more than 50 gates.
#[test]
fn a_gate_beyond_those_of_a_full_record_holds_with_the_reason_of_the_record() {
    let call = call(Hook::BeforeControlPlaneUpgrade);
    let full = |close_with: Option<&str>| {
        let status = status(|record| {
            let listed = record.selected[0].clone();
            record.selected = (0..50)
                .map(|number| SelectedGate {
                    uid: format!("uid {number}"),
                    ..listed.clone()
                })
                .collect();
            for gate in &mut record.gates {
                gate.open = close_with.is_none();
                gate.reason = close_with.unwrap_or_default().to_owned();
            }
        });
        Cache::of(vec![Ok(gate("Enforce"))], Some(&status), &json!({})).reason(&call)
    };
    let too_many = Some(HoldReason::Gate(GateReason::ChecksTooMany));
    assert_eq!(full(Some("ChecksTooMany")), too_many);
    assert_eq!(full(None), UNOBSERVED, "no gate opens by the record alone");
}

#[test]
fn every_gate_that_selects_has_to_be_observed() {
    let mut csi = gate("Enforce");
    let meta = &mut Arc::make_mut(&mut csi).metadata;
    meta.name = Some("csi".to_owned());
    meta.uid = Some("uid of csi".to_owned());
    let gates = || vec![Ok(gate("Enforce")), Ok(Arc::clone(&csi))];
    let call = call(Hook::BeforeControlPlaneUpgrade);
    let reason = |status: &Value| Cache::of(gates(), Some(status), &json!({})).reason(&call);
    assert_eq!(reason(&status(|_| {})), UNOBSERVED);
    let both = status(|record| {
        let of_csi = SelectedGate {
            name: "csi".into(),
            uid: "uid of csi".into(),
            ..record.selected[0].clone()
        };
        record.selected.push(of_csi);
    });
    assert_eq!(reason(&both), None);
}
