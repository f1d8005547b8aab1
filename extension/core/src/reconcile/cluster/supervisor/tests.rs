use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::cluster::ObjectReference,
    labels::name,
    run::{
        ClusterBootstrap, ClusterBootstrapSpec, ClusterBootstrapStatus, SCHEMA, TanzuKubernetesRelease,
        UpgradeRecord,
    },
};

use super::*;
use crate::{
    digest::DigestInputs,
    packages::{
        bootstrap::{Catalogue, PackageFacts},
        build::LackedFields,
    },
    reconcile::cluster::{
        LocalState, Object,
        plan::{Plan, plan},
        tests::{clock, facts},
    },
    resolver::ReleaseMachines,
    upgrade::{
        hop::{ControlPlanePhase, Progress, UpgradeDirection},
        rollback,
        swap::{SwapFacts, SwapRequest},
    },
};

const GROUP: &str = "vmware.infrastructure.cluster.x-k8s.io";
const PACKAGE: &str = "antrea.test.1.0.0";
const BEFORE: &str = "v1.34.4";
const HOP: &str = "v1.35.4";
const OF_HOP: &str = "v1.35.4---a.1";
const TARGET: &str = "v1.36.3";
const OF_TARGET: &str = "v1.36.3---a.1";

/// Returns a Cluster with infrastructure of this kind in CAPV's group, and with a recorded answer about infrastructure of this name.
fn on(kind: &str, answer: Option<(&str, bool)>) -> Facts {
    let mut facts = facts();
    let cluster = Arc::make_mut(&mut facts.cluster);
    cluster.spec.infrastructure_ref = Some(ObjectReference {
        api_group: Some(GROUP.to_owned()),
        kind: kind.to_owned(),
        name: "one-x".to_owned(),
        ..ObjectReference::default()
    });
    let record = UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        supervisor: answer.map(|(infrastructure, found)| SupervisorAnswer {
            infrastructure: infrastructure.to_owned(),
            found,
        }),
        ..UpgradeRecord::default()
    };
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.status = Some(ClusterBootstrapStatus {
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    });
    facts.bootstrap = Some(Arc::new(bootstrap));
    facts
}

const THIS: &str = "vmware.infrastructure.cluster.x-k8s.io/one-x";

#[rstest]
#[case::other_infrastructure("DockerCluster", None, Some(false))]
#[case::other_infrastructure_than_before("DockerCluster", Some((THIS, true)), Some(false))]
#[case::not_asked("VSphereCluster", None, None)]
#[case::on_one("VSphereCluster", Some((THIS, true)), Some(true))]
#[case::on_none("VSphereCluster", Some((THIS, false)), Some(false))]
#[case::of_another_name("VSphereCluster", Some(("vmware.infrastructure.cluster.x-k8s.io/one-y", true)), None)]
#[case::of_another_group("VSphereCluster", Some(("infrastructure.cluster.x-k8s.io/one-x", false)), None)]
fn an_answer_is_about_the_current_infrastructure(
    #[case] kind: &str,
    #[case] answer: Option<(&str, bool)>,
    #[case] expected: Option<bool>,
) {
    assert_eq!(recorded(&on(kind, answer)), expected);
}

#[test]
fn a_cluster_without_infrastructure_is_on_none() {
    assert_eq!(recorded(&facts()), Some(false));
    let mut new = on("VSphereCluster", None);
    new.bootstrap = None;
    assert_eq!(recorded(&new), None);
}

fn failed(code: Option<u16>) -> ReadResult {
    ReadResult::Failed(Failure {
        code,
        ..Failure::other(Server::Management, "failed")
    })
}

#[rstest]
#[case::one_machine(ReadResult::Listed(vec![Object(json!({}))]), Ok(true))]
#[case::no_machine(ReadResult::Listed(Vec::new()), Ok(false))]
#[case::no_such_kind(ReadResult::Absent, Ok(false))]
#[case::forbidden(
    failed(Some(403)),
    Err("get and list virtualmachines in group vmoperator.vmware.com")
)]
#[case::api_away(failed(Some(503)), Err("error 503"))]
#[case::kind_gone_since_discovery(failed(Some(404)), Err("error 404"))]
#[case::no_response(failed(None), Err("no complete answer"))]
fn an_answer_is_definite_or_a_hold(#[case] answer: ReadResult, #[case] expected: Result<bool, &str>) {
    let (facts, local) = (on("VSphereCluster", None), LocalState::default());
    let mut context = Context::new(&facts, &local, clock());
    let Err(Interrupt::Need(asked)) = ask(&context) else {
        panic!("nothing is read");
    };
    let wanted = Read::VirtualMachines("team-a".to_owned());
    assert_eq!(asked, std::slice::from_ref(&wanted));
    context.record_answer(wanted, answer);
    match (ask(&context), expected) {
        (Ok(answer), Ok(found)) => {
            assert_eq!((answer.infrastructure.as_str(), answer.found), (THIS, found));
        }
        (Err(stop), Err(says)) => {
            let hold = stop.held().unwrap();
            assert_eq!(hold.reason, GateReason::SupervisorUnknown);
            let names = ["Cluster team-a/one", "spec.infrastructureRef", says];
            assert!(
                names.iter().all(|text| hold.message.contains(text)),
                "{}",
                hold.message
            );
        }
        (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
    }
}

fn worker(version: &str, rolling: bool) -> WorkerFacts {
    WorkerFacts {
        spec_version: Some(version.to_owned()),
        rolling,
        ..WorkerFacts::default()
    }
}

/// Returns a Cluster on its way to the target, with these variables of its topology.
fn with_variables(variables: &Value) -> Facts {
    let mut facts = on("VSphereCluster", Some((THIS, true)));
    facts.label = OF_TARGET.to_owned();
    let topology = json!({"version": TARGET, "variables": variables});
    facts.topology = serde_json::from_str(&topology.to_string()).unwrap();
    facts.catalogue = Arc::new(Catalogue::from([(
        PACKAGE.to_owned(),
        PackageFacts {
            ref_name: "antrea.test".to_owned(),
            version: "1.0.0".to_owned(),
            takes_values: true,
            ..PackageFacts::default()
        },
    )]));
    facts
}

/// Returns variables with an entry of a release for the hop.
fn entry(release: &str) -> Value {
    json!([{"name": name::TKR_DATA, "value": {
        HOP: {"osImageRef": {}, "labels": {label::TKR: release}},
        TARGET: {"osImageRef": {}, "labels": {label::TKR: OF_TARGET}},
    }}])
}

/// Returns the hop of a control plane whose spec and status have these versions.
fn at(spec: &str, status: &str) -> Validated {
    let phase = if spec == status {
        ControlPlanePhase::Settled {
            version: spec.to_owned(),
        }
    } else {
        ControlPlanePhase::Rolling {
            from: status.to_owned(),
            reported: status.to_owned(),
            to: spec.to_owned(),
        }
    };
    Validated {
        progress: Progress {
            phase,
            hop: HOP.to_owned(),
            direction: UpgradeDirection::Forward,
            taken: spec == HOP,
        },
        release: Ok(OF_HOP.to_owned()),
        change: None,
        paused: None,
        problem: None,
        restored: false,
        swap: SwapFacts::default(),
        machines: None,
        entry: None,
        requires: false,
        rollback: rollback::Decision::None,
    }
}

#[test]
fn nodes_are_those_of_the_hop_and_not_of_the_label() {
    let on = OnSupervisor::of(&with_variables(&entry(OF_HOP)), &at(BEFORE, BEFORE));
    assert_eq!((on.release.as_str(), on.unlabelled), (OF_HOP, None));
}

#[rstest]
#[case::no_variable(json!([]))]
#[case::another_release(entry("v1.35.4---a.2"))]
#[case::that_of_the_label(entry(OF_TARGET))]
#[case::no_label(json!([{"name": name::TKR_DATA, "value": {HOP: {"osImageRef": {}}}}]))]
fn nodes_without_the_label_are_not_selected(#[case] variables: Value) {
    let on = OnSupervisor::of(&with_variables(&variables), &at(BEFORE, BEFORE));
    let hold = on.unlabelled.unwrap();
    assert_eq!(hold.reason, GateReason::NodesNotLabelled);
    let names = [
        "Cluster team-a/one",
        HOP,
        "spec.topology.variables[TKR_DATA]",
        "run.tanzu.vmware.com/tkr=v1.35.4---a.1",
    ];
    assert!(
        names.iter().all(|text| hold.message.contains(text)),
        "{}",
        hold.message
    );
}

#[test]
fn packages_without_a_release_of_the_hop_keep_their_selector() {
    let mut validated = at(BEFORE, BEFORE);
    validated.release = Err(Hold::new(GateReason::NoTKRForHop, "none"));
    let mut facts = with_variables(&json!([]));
    let on = OnSupervisor::of(&facts, &validated);
    assert_eq!((on.release.as_str(), on.unlabelled), (OF_TARGET, None));
    let bootstrap = facts.bootstrap.as_mut().map(Arc::make_mut).unwrap();
    bootstrap.status.as_mut().unwrap().resolved_tkr = Some("v1.34.4---a.1".to_owned());
    assert_eq!(OnSupervisor::of(&facts, &validated).release, "v1.34.4---a.1");
}

/// Sluice writes the entries of the requested release once its packages are proven.
#[rstest]
#[case::that_are_resolved(true, true)]
#[case::that_are_not_resolved(false, false)]
fn machines_of_another_release_get_its_label(#[case] resolved: bool, #[case] selected: bool) {
    let mut validated = at(HOP, HOP);
    validated.release = Ok("v1.35.4---a.2".to_owned());
    validated.swap.request = Some(SwapRequest {
        version: HOP.to_owned(),
        from: OF_HOP.to_owned(),
        to: "v1.35.4---a.2".to_owned(),
        kept: None,
    });
    let release: TanzuKubernetesRelease = serde_json::from_value(json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
        "metadata": {"name": "v1.35.4---a.2"}, "spec": {"version": "", "kubernetes": {"version": HOP}},
    }))
    .unwrap();
    validated.machines = resolved.then(|| ReleaseMachines {
        release: Arc::new(release),
        images: Vec::new(),
    });
    let on = OnSupervisor::of(&with_variables(&entry(OF_HOP)), &validated);
    assert_eq!(on.unlabelled.is_none(), selected);
    assert_eq!(on.readiness, Readiness::Applied);
}

#[rstest]
#[case::before_the_control_plane(BEFORE, BEFORE, &[], Readiness::Applied)]
#[case::with_the_control_plane(HOP, BEFORE, &[], Readiness::Applied)]
#[case::no_workers(HOP, HOP, &[], Readiness::Reconciled)]
#[case::before_the_workers(HOP, HOP, &[(BEFORE, false)], Readiness::Applied)]
#[case::with_the_workers(HOP, HOP, &[(HOP, false), (HOP, true)], Readiness::Applied)]
#[case::after_the_workers(HOP, HOP, &[(HOP, false)], Readiness::Reconciled)]
fn packages_are_reconciled_once_machines_are_replaced(
    #[case] spec: &str,
    #[case] status: &str,
    #[case] workers: &[(&str, bool)],
    #[case] expected: Readiness,
) {
    let mut facts = with_variables(&entry(OF_HOP));
    facts.workers = workers
        .iter()
        .map(|(version, rolling)| worker(version, *rolling))
        .collect();
    let mut validated = at(spec, status);
    assert_eq!(OnSupervisor::of(&facts, &validated).readiness, expected);
    validated.swap.outdated = Some("md 0/1".to_owned());
    assert_eq!(OnSupervisor::of(&facts, &validated).readiness, Readiness::Applied);
}

/// A pool that grows later rolls, too.
#[rstest]
#[case::completed(Some(Outcome::Completed), OF_HOP, Readiness::Reconciled)]
#[case::of_another_release(Some(Outcome::Completed), "v1.35.4---a.0", Readiness::Applied)]
#[case::cancelled(Some(Outcome::Cancelled), OF_HOP, Readiness::Applied)]
#[case::under_way(None, OF_HOP, Readiness::Applied)]
fn a_completed_upgrade_has_replaced_all_machines(
    #[case] outcome: Option<Outcome>,
    #[case] release: &str,
    #[case] expected: Readiness,
) {
    let mut facts = with_variables(&entry(OF_HOP));
    facts.workers = vec![worker(HOP, true)];
    let bootstrap = facts.bootstrap.as_mut().map(Arc::make_mut).unwrap();
    let record = bootstrap.status.as_mut().unwrap().upgrade.as_mut().unwrap();
    record.outcome = outcome;
    record.hop = Some(HOP.to_owned());
    record.tkr = Some(release.to_owned());
    assert_eq!(OnSupervisor::of(&facts, &at(HOP, HOP)).readiness, expected);
}

fn planned(facts: &Facts, spec: &Value, on: Option<&OnSupervisor>) -> Plan {
    let spec: ClusterBootstrapSpec = serde_json::from_value(spec.clone()).unwrap();
    let local = LocalState::default();
    let context = Context::new(facts, &local, clock());
    plan(&context, &spec, DigestInputs::default(), on).unwrap()
}

#[rstest]
#[case::no_policy(json!([]), Readiness::Applied)]
#[case::explicit(json!([{"package": "antrea", "readiness": "Reconciled"}]), Readiness::Reconciled)]
#[case::of_another(json!([{"package": "calico", "readiness": "Reconciled"}]), Readiness::Applied)]
fn an_explicit_policy_wins(#[case] policies: Value, #[case] expected: Readiness) {
    let facts = with_variables(&entry(OF_HOP));
    let on = OnSupervisor::of(&facts, &at(BEFORE, BEFORE));
    let spec = json!({"cni": {"refName": PACKAGE}, "upgradePolicy": {"packages": policies}});
    let plan = planned(&facts, &spec, Some(&on));
    assert_eq!(plan.planned[0].readiness, expected);
    let elsewhere = planned(&facts, &spec, None);
    assert_eq!(elsewhere.planned[0].readiness, Readiness::Reconciled);
}

#[test]
fn values_for_a_supervisor_are_part_of_the_digest() {
    let facts = with_variables(&entry(OF_HOP));
    let spec = json!({"cni": {"refName": PACKAGE}});
    let on = OnSupervisor::of(&facts, &at(BEFORE, BEFORE));
    let (there, elsewhere) = (planned(&facts, &spec, Some(&on)), planned(&facts, &spec, None));
    let keys = |plan: &Plan| {
        plan.planned[0]
            .values()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&there), [name::TKGS_VALUES_KEY]);
    assert_eq!(keys(&elsewhere), [name::VALUES_KEY]);
    assert_ne!(there.planned[0].digest, elsewhere.planned[0].digest);
    assert_eq!(
        there.planned[0].completed(elsewhere.planned[0].values().unwrap().clone()),
        *there.planned[0].values().unwrap(),
        "values that are read again are compared with the planned ones"
    );
    assert!(there.problem.is_none() && !there.forbids_writes);
}

#[rstest]
#[case::a_package_that_selects(json!({}), true)]
#[case::a_package_that_does_not(json!({"openAPIv3": {"properties": {"daemonset": {}}}}), false)]
fn packages_that_select_missing_nodes_forbid_writes(#[case] schema: Value, #[case] holds: bool) {
    let mut facts = with_variables(&json!([]));
    for package in Arc::make_mut(&mut facts.catalogue).values_mut() {
        package.lacked = LackedFields::of(&schema);
    }
    let on = OnSupervisor::of(&facts, &at(BEFORE, BEFORE));
    let plan = planned(&facts, &json!({"cni": {"refName": PACKAGE}}), Some(&on));
    assert_eq!(plan.planned.len(), 1, "its proof stays");
    let reason = plan.problem.map(|hold| hold.reason);
    assert_eq!(
        (reason, plan.forbids_writes),
        (holds.then_some(GateReason::NodesNotLabelled), holds)
    );
}
