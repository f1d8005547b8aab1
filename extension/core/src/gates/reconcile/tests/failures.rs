//! Failed reads of single objects, kinds and lists. They hold their own gate, and no other one.

use rstest::rstest;
use serde_json::json;
use sluice_crds::lifecycle::CheckState;

use super::server::{AGENT, GATE, Place, V35, World, agent, chart, gate_with, operator, row, rows, stored};
use super::{BEFORE, code, wait};
use crate::protocol::{Failure, Server};

const OTHER: Place = ("UpgradeGate", "team-a", "other");

/// Returns a failure of the workload API server.
fn of_workload(code: Option<u16>) -> Failure {
    Failure {
        code,
        ..Failure::other(Server::Workload, "refused")
    }
}

fn objects_fail(world: &mut World) {
    world.fails = Some(("Deployment", of_workload(Some(503))));
}

fn discovery_fails(world: &mut World) {
    world.undiscovered = Some(("Deployment", of_workload(Some(503))));
}

fn kind_has_no_get(world: &mut World) {
    world.fails = Some(("Deployment", of_workload(Some(405))));
}

/// Returns a Cluster that waits for its agent, with a second gate about its operator, which is proven.
fn with_other(mode: &str) -> World {
    let mut world = World::new();
    let rows = json!([row("1.34", "1.17.4"), row("1.35", "1.17.4")]);
    let mut other = gate_with(&rows, &json!([operator()]));
    other["spec"]["mode"] = json!(mode);
    world.put(OTHER, other);
    world.settle();
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
    world
}

#[rstest]
fn a_failing_kind_of_one_gate_does_not_keep_another_one_open(
    #[values("Audit", "Enforce")] mode: &str,
    #[values(objects_fail, discovery_fails)] fail: fn(&mut World),
) {
    let mut world = with_other(mode);
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    fail(&mut world);
    world.roll_out(AGENT, "v1.17.4");
    world.after(5);
    assert!(!world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
}

#[rstest]
#[case::objects(objects_fail, "the workload API server answers 503 for deployments")]
#[case::discovery(
    discovery_fails,
    "the workload API server answers 503 for the discovery of apps/v1"
)]
#[case::requests(kind_has_no_get, "the workload API server answers 405 for deployments")]
fn a_failing_kind_holds_its_own_gate(#[case] fail: fn(&mut World), #[case] says: &str) {
    for (mode, opens) in [("Audit", true), ("Enforce", false)] {
        let mut world = with_other(mode);
        fail(&mut world);
        world.roll_out(AGENT, "v1.18.2");
        world.after(2);
        assert_eq!(world.is_open(BEFORE, V35), opens, "{:?}", world.record().gates);
        let held_by = if opens {
            "other/operator (audit)"
        } else {
            "other/operator"
        };
        assert_eq!(world.waits_for(), wait(held_by, "NotObserved"));
        let message = world.status().message.unwrap();
        assert!(message.starts_with(says), "{message}");

        (world.fails, world.undiscovered) = (None, None);
        world.after(5);
        assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    }
}

#[rstest]
#[case::object("HelmChartProxy")]
#[case::list("HelmReleaseProxy")]
fn a_failing_kind_of_the_management_cluster_holds_its_own_gate(#[case] kind: &'static str) {
    let mut world = World::with_chart();
    world.put(GATE, gate_with(&rows(), &json!([agent()])));
    let mut other = gate_with(&rows(), &json!([chart(), agent()]));
    other["spec"]["mode"] = json!("Audit");
    world.put(OTHER, other);
    world.settle();
    world.target(V35);
    world.fails = Some((kind, code(500)));
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    assert_eq!(world.waits_for(), wait("other/chart (audit)", "NotObserved"));
}

/// The read of namespace `kube-system` is answered each time.
#[test]
fn an_object_that_is_not_answered_withdraws_the_proof_after_a_minute() {
    let mut world = with_other("Audit");
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    world.fails = Some(("Deployment", of_workload(None)));
    for _ in 0..12 {
        world.after(5);
        assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    }
    world.after(10);
    assert_eq!(world.closed(BEFORE, V35).0, "WorkloadUnreachable");
    world.fails = None;
    world.after(60);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    // Another silence counts from its own start.
    world.fails = Some(("Deployment", of_workload(None)));
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
}

/// Its TTL deletes the Job, so that nothing reports the completion again.
#[test]
fn the_completion_of_a_job_outlives_failing_reads_and_proves_nothing_meanwhile() {
    let mut world = World::new();
    let job = json!({
        "name": "backup", "cluster": "Workload",
        "object": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "kube-system", "name": "backup-${hop}"},
    });
    world.put(GATE, gate_with(&rows(), &json!([agent(), job])));
    world.settle();
    world.target(V35);
    let complete = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {},
        "status": {"succeeded": 1, "conditions": [
            {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"},
        ]},
    });
    let place = ("Job", "kube-system", "backup-v1.35.4");
    world.workload.put(stored(place), complete);
    world.after(6);
    assert_eq!(world.record().checks[1].state, CheckState::Proven);
    world.workload.remove(&stored(place));
    world.roll_out(AGENT, "v1.18.2");
    world.fails = Some(("Job", of_workload(Some(503))));
    for _ in 0..2 {
        world.lasts(20);
        let (reason, message) = world.closed(BEFORE, V35);
        assert_eq!(reason, "ChecksNotReady");
        assert!(
            message.starts_with("cni/backup: the workload API server answers 503 for jobs"),
            "{message}"
        );
    }
    world.fails = None;
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}
