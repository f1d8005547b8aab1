//! Complete reconciles of the gates of one Cluster.

mod expressions;
mod failures;
mod flux;
mod server;
mod watched;

use std::{sync::Arc, time::Duration};

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    lifecycle::{CheckState, GateMode, UpgradeGate},
    run::{Hook, Outcome},
};

use super::*;
use crate::{
    gates::gate_status::{self, GatedCluster},
    protocol::Failure,
    reasons::GateReason,
    upgrade::hop::Plan,
};
use server::{
    AGENT, CHART, CLUSTER, GATE, KUBE_SYSTEM, OPERATOR, Place, RELEASE, UPGRADE, V34, V35, V36, World, agent,
    gate_with, operator, row, rows, stored,
};

const BEFORE: Hook = Hook::BeforeControlPlaneUpgrade;
const AFTER: Hook = Hook::AfterControlPlaneUpgrade;
const WORKERS: Hook = Hook::BeforeWorkersUpgrade;

/// Hooks that a gate before the control plane closes for a hop.
const HOOKS: [Hook; 4] = [Hook::BeforeClusterUpgrade, BEFORE, AFTER, WORKERS];

fn wait(by: &str, reason: &str) -> (Option<String>, Option<String>) {
    (Some(by.to_owned()), Some(reason.to_owned()))
}

fn soon(done: Done) -> bool {
    done == Done::RequeueAfter(UNWATCHED)
}

/// Returns a Cluster whose upgrade to v1.35.4 is held by its agent.
fn held() -> World {
    let mut world = World::settled();
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
    assert!(world.is_held());
    world
}

/// Returns the same Cluster once its agent runs at the version.
fn released() -> World {
    let mut world = held();
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    world
}

#[test]
fn a_settled_cluster_gets_a_record_and_causes_no_further_write_or_read() {
    let mut world = World::new();
    world.settle();
    assert_eq!(
        world.written,
        ["Create ClusterUpgrade one", "ReplaceStatus ClusterUpgrade one"]
    );
    let upgrade = world.get(UPGRADE).unwrap();
    let owner = &upgrade["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["uid"], &owner["controller"], &owner["blockOwnerDeletion"]),
        (&json!("cluster"), &json!(true), &json!(false))
    );
    let (status, record) = (world.status(), world.record());
    assert_eq!(status.checks.as_deref(), Some("1/1"));
    assert_eq!((status.held_by, status.reason), (None, None));
    assert!(!world.is_held());
    assert!(status.history.is_empty(), "it is no upgrade");
    assert_eq!(record.workload_uid.as_deref(), Some("workload"));
    let selected: Vec<&str> = record.selected.iter().map(|gate| gate.name.as_str()).collect();
    assert_eq!(selected, ["cni"]);

    let Done::RequeueAfter(next) = world.after(1) else {
        panic!("it is requeued");
    };
    assert!(
        next > Duration::from_secs(1) && next <= Duration::from_mins(10),
        "{next:?}"
    );
    assert_eq!((&world.written, &world.read), (&Vec::new(), &Vec::new()));

    // The drift check reads, and writes nothing.
    world.after(601);
    assert_eq!(world.written, Vec::<String>::new());
    assert!(
        world.read.contains(&"DaemonSet cilium".to_owned()),
        "{:?}",
        world.read
    );
    assert!(world.read.len() <= 4, "{:?}", world.read);
}

#[test]
fn a_drift_check_records_at_once_what_it_has_read() {
    let mut world = World::new();
    world.roll_out(AGENT, "v1.16.0");
    world.settle();
    assert_eq!(world.status().checks.as_deref(), Some("0/1"));

    world.roll_out(AGENT, "v1.17.4");
    world.after(601);
    assert_eq!(world.status().checks.as_deref(), Some("1/1"));
    assert_eq!(world.written, ["ReplaceStatus ClusterUpgrade one"]);
}

/// A reconcile between drift checks judges nothing, and its text differs from that of a drift check.
#[test]
fn a_drift_check_with_the_same_result_writes_nothing() {
    let mut world = World::new();
    world.roll_out(AGENT, "v1.16.0");
    world.settle();
    world.target(V35);
    world.remove(UPGRADE);
    world.lasts(20);
    world.target(V34);
    world.lasts(20);
    assert_eq!(world.record().outcome, Some(Outcome::Cancelled));
    assert_eq!(world.closed(AFTER, V34).0, "ChecksNotReady");
    world.after(601);
    world.lasts(20);
    for seconds in [601, 1, 20, 601, 1, 20] {
        world.after(seconds);
        assert_eq!(world.written, Vec::<String>::new());
    }
}

#[test]
fn an_upgrade_is_held_until_the_version_runs_and_is_judged_again_on_the_new_api_server() {
    let mut world = held();
    assert_eq!(
        HOOKS.map(|hook| world.is_open(hook, V35)),
        [false; 4],
        "{:?}",
        world.record().gates
    );
    let (reason, message) = world.closed(BEFORE, V35);
    assert_eq!(reason, "ChecksNotReady");
    assert!(
        message.starts_with("cni/agent: ") && message.ends_with(" is not at v1.18.2"),
        "{message}"
    );
    assert!(soon(world.after(1)));
    assert_eq!(world.written, Vec::<String>::new(), "nothing has changed");

    world.roll_out(AGENT, "v1.18.2");
    world.after(1);
    assert_eq!(world.written, ["ReplaceStatus ClusterUpgrade one"]);
    assert_eq!(
        HOOKS.map(|hook| world.is_open(hook, V35)),
        [true, true, false, false]
    );
    assert!(!world.is_held());
    assert_eq!(world.status().checks.as_deref(), Some("1/1"));
    assert!(!world.record().checks[0].reproven);

    world.control_plane(V35, V34);
    world.after(5);
    assert!(
        !world.is_open(AFTER, V35) && !world.is_held(),
        "Cluster API is at work"
    );
    assert!(matches!(world.effects.counts.as_slice(), [GateCount::Released(lag)] if lag.as_secs() == 5));
    world.control_plane(V35, V35);
    world.after(5);
    assert_eq!(HOOKS.map(|hook| world.is_open(hook, V35)), [true; 4]);
    assert!(world.record().checks[0].reproven);
    world.workers = V35;
    world.after(5);
    let record = world.record();
    assert_eq!(record.outcome, Some(Outcome::Completed));
    let history = world.status().history;
    assert_eq!(history.len(), 1);
    assert_eq!(
        (
            history[0].from.as_str(),
            history[0].to.as_str(),
            history[0].outcome
        ),
        (V34, V35, Some(Outcome::Completed))
    );
    assert_eq!(history[0].longest_wait.as_deref(), Some("cni/agent"));

    world.after(1);
    assert_eq!(
        (&world.written, &world.read),
        (&Vec::new(), &Vec::new()),
        "it is settled"
    );
}

/// The workers wait for a check that fails on the new API server.
#[test]
fn a_proof_of_the_old_api_server_releases_no_workers() {
    let mut world = released();
    world.control_plane(V35, V35);
    world.edit_workload(AGENT, |agent| agent["status"]["numberAvailable"] = json!(0));
    world.after(5);
    assert!(!world.is_open(AFTER, V35) && !world.is_open(WORKERS, V35));
    assert_eq!(world.waits_for(), wait("cni/agent", "NotRolledOut"));
    world.edit_workload(AGENT, |agent| agent["status"]["numberAvailable"] = json!(3));
    world.after(5);
    assert!(world.is_open(AFTER, V35) && world.is_open(WORKERS, V35));
}

#[test]
fn a_gate_before_workers_does_not_hold_the_control_plane() {
    let mut world = World::new();
    world.edit(GATE, |gate| gate["spec"]["before"] = json!("Workers"));
    world.settle();
    world.target(V35);
    world.after(2);
    assert!(world.is_open(BEFORE, V35) && !world.is_held());
    world.control_plane(V35, V35);
    world.after(5);
    world.after(5);
    assert!(!world.is_open(AFTER, V35));
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
}

fn roll_back(world: &mut World) {
    world.roll_out(AGENT, "v1.17.4");
}

fn fail(world: &mut World) {
    world.edit_workload(AGENT, |agent| agent["status"]["numberAvailable"] = json!(1));
}

fn delete(world: &mut World) {
    world.workload.remove(&stored(AGENT));
}

fn relabel(world: &mut World) {
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"]["cni"] = json!("antrea");
    });
}

/// No gate selects by this label, and the cache may lack it.
fn add_label(world: &mut World) {
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"]["tier"] = json!("prod");
    });
}

fn retarget(world: &mut World) {
    world.target(V36);
}

fn await_hook(world: &mut World) {
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["annotations"]["runtime.cluster.x-k8s.io/pending-hooks"] = json!("a");
    });
}

fn upgrade_control_plane(world: &mut World) {
    world.control_plane(V35, V34);
}

fn edit_gate(world: &mut World) {
    world.edit(GATE, |gate| gate["spec"]["deadline"] = json!("1h"));
}

fn delete_gate(world: &mut World) {
    world.remove(GATE);
}

fn edit_record(world: &mut World) {
    world.edit(UPGRADE, |upgrade| {
        upgrade["metadata"]["labels"] = json!({"a": "b"});
    });
}

fn delete_record(world: &mut World) {
    world.remove(UPGRADE);
}

fn replace_workload(world: &mut World) {
    let place = stored(KUBE_SYSTEM);
    let mut namespace = world.workload.get(&place).unwrap().clone();
    namespace["metadata"]["uid"] = json!("another");
    world.workload.put(place, namespace);
}

fn silence(world: &mut World) {
    world.is_silent = true;
}

/// Everything that an opening gate rests on is read again, and whatever differs keeps it closed.
#[rstest]
#[case::of_the_object(roll_back)]
#[case::of_its_state(fail)]
#[case::of_its_existence(delete)]
#[case::of_labels(relabel)]
#[case::of_the_target(retarget)]
#[case::of_pending_hooks(await_hook)]
#[case::of_the_control_plane(upgrade_control_plane)]
#[case::of_the_gate(edit_gate)]
#[case::of_the_existence_of_the_gate(delete_gate)]
#[case::of_the_record(edit_record)]
#[case::of_the_existence_of_the_record(delete_record)]
#[case::of_the_workload_cluster(replace_workload)]
#[case::of_its_responses(silence)]
fn no_gate_opens_after_a_change_between_the_reads(#[case] change: fn(&mut World)) {
    let mut world = held();
    world.roll_out(AGENT, "v1.18.2");
    world.meanwhile = Some(change);
    world.pass(2);
    // The write of a record that another client has changed is refused.
    let _ = world.reconcile();
    assert!(world.meanwhile.is_none(), "the gate would have opened");
    if world.get(UPGRADE).is_some() {
        assert!(!world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    }
}

#[test]
fn a_label_that_no_gate_selects_by_holds_nothing() {
    let mut world = held();
    world.roll_out(AGENT, "v1.18.2");
    world.meanwhile = Some(add_label);
    world.after(2);
    assert!(world.meanwhile.is_none());
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record().gates);
}

/// The watch of a new leader may be behind that of the former one.
#[rstest]
#[case::at_rest(World::settled)]
#[case::during_a_hold(held)]
fn a_gate_that_the_cache_lacks_stays_in_the_record(#[case] world: fn() -> World) {
    let mut world = world();
    world.roll_out(AGENT, "v1.18.2");
    let mut cached = world.management.clone();
    cached.remove(&stored(GATE));
    world.cached = Some(cached);
    world.local = GateLocalState::default();
    world.after(2);
    assert_eq!(world.record().selected.len(), 1);
    assert!(!world.is_open(BEFORE, V35), "{:?}", world.record().gates);
    world.cached = None;
    world.remove(GATE);
    world.after(2);
    let selected = world.get(UPGRADE).map(|_| world.record().selected.len());
    assert!(selected.is_none_or(|selected| selected == 0), "{selected:?}");
}

/// A gate may be created, and a record lost, between the steps of control plane and workers.
#[test]
fn a_gate_that_is_created_before_the_step_of_the_workers_holds_them() {
    let mut world = World::new();
    world.target(V35);
    world.control_plane(V35, V35);
    world.edit(GATE, |gate| gate["spec"]["before"] = json!("Workers"));
    world.after(2);
    assert_eq!(world.closed(Hook::BeforeWorkersUpgrade, V35).0, "ChecksNotReady");
    assert!(world.is_held());
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
    world.edit(CLUSTER, |cluster| cluster["metadata"]["labels"] = json!({}));
    world.after(2);
    assert_eq!(world.closed(Hook::BeforeWorkersUpgrade, V35).0, "GateDeselected");
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"] = json!({"cni": "cilium"});
    });
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(world.is_open(Hook::BeforeWorkersUpgrade, V35));
    world.workers = V35;
    world.after(5);
    assert_eq!(world.record().outcome, Some(Outcome::Completed));
}

/// A cache that is behind holds.
#[test]
fn an_outdated_cache_opens_no_gate_and_is_reported_after_two_minutes() {
    let mut world = held();
    world.roll_out(AGENT, "v1.18.2");
    let cached = world.management.clone();
    edit_gate(&mut world);
    world.cached = Some(cached);
    assert!(soon(world.after(2)));
    assert_eq!(world.closed(BEFORE, V35).0, "CacheOutdated");
    assert_eq!(world.effects.outdated, None);
    for _ in 0..3 {
        // The cache shows the writes of this process.
        let upgrade = world.get(UPGRADE).unwrap().clone();
        world.cached.as_mut().unwrap().set(stored(UPGRADE), upgrade);
        world.after(60);
    }
    assert!(world.effects.outdated.is_some());
    world.cached = None;
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
}

fn code(code: u16) -> Failure {
    Failure {
        code: Some(code),
        ..Failure::other(Server::Management, "refused")
    }
}

fn unserved(world: &mut World) {
    world.unserved = Some("HelmChartProxy");
}

fn forbidden(world: &mut World) {
    world.fails = Some(("HelmChartProxy", code(403)));
}

fn forbidden_list(world: &mut World) {
    world.fails = Some(("HelmReleaseProxy", code(403)));
}

fn unserved_list(world: &mut World) {
    world.fails = Some(("HelmReleaseProxy", code(404)));
}

fn too_large(world: &mut World) {
    let failure = Failure {
        too_long: true,
        ..Failure::other(Server::Management, "too large")
    };
    world.fails = Some(("HelmChartProxy", failure));
}

fn two_releases(world: &mut World) {
    world.deliver("1.18.2");
    let mut release = world.get(RELEASE).unwrap().clone();
    release["metadata"]["uid"] = Value::Null;
    world.put(("HelmReleaseProxy", "team-a", "cilium-two"), release);
}

fn absent(world: &mut World) {
    world.remove(CHART);
}

/// Failures of reads are reasons of the check, and recover without a restart.
#[rstest]
#[case::kind_not_served(unserved, "KindNotServed", "does not serve HelmChartProxy")]
#[case::kind_forbidden(
    forbidden,
    "KindForbidden",
    "allows to get helmchartproxys in group addons.cluster.x-k8s.io"
)]
#[case::list_forbidden(forbidden_list, "KindForbidden", "allows to list helmreleaseproxies")]
#[case::list_not_served(unserved_list, "KindNotServed", "helmreleaseproxies")]
#[case::object_too_large(too_large, "ObjectTooLarge", "HelmChartProxy team-a/cilium")]
#[case::two_releases(two_releases, "SeveralMatches", "several")]
#[case::absent(absent, "ObjectNotFound", "HelmChartProxy")]
fn what_cannot_be_read_holds_with_a_reason_and_recovers(
    #[case] breaks: fn(&mut World),
    #[case] reason: &str,
    #[case] says: &str,
) {
    let mut world = World::with_chart();
    world.settle();
    let whole = world.management.clone();
    world.target(V35);
    breaks(&mut world);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/chart", reason));
    let message = world.status().message.unwrap();
    assert!(message.contains(says), "{message}");
    assert!(world.is_held() && !world.is_open(BEFORE, V35));

    (world.unserved, world.fails) = (None, None);
    world.remove(("HelmReleaseProxy", "team-a", "cilium-two"));
    world
        .management
        .set(stored(CHART), whole.get(&stored(CHART)).unwrap().clone());
    world.deliver("1.18.2");
    world.roll_out(AGENT, "v1.18.2");
    world.after(40);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

/// Both versions are compared, and values for another Cluster do not delay this one for another reason.
#[test]
fn a_chart_is_proven_by_its_release_and_the_agent() {
    let mut world = World::with_chart();
    world.settle();
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/chart", "NotAtVersion"));
    world.edit(CHART, |chart| chart["spec"]["version"] = json!("1.18.2"));
    world.after(6);
    assert!(
        !world.is_open(BEFORE, V35),
        "the HelmReleaseProxy is at the old version"
    );
    world.deliver("1.18.2");
    world.after(11);
    assert_eq!(world.status().checks.as_deref(), Some("1/2"));
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
}

/// Failed requests of the management API server are retried with backoff, and no record is written.
#[test]
fn a_failed_request_writes_nothing() {
    let mut world = World::settled();
    world.target(V35);
    world.fails = Some(("Secret", code(500)));
    world.pass(2);
    assert_eq!(world.reconcile().unwrap_err().code, Some(500));
    assert_eq!(world.written, Vec::<String>::new());
}

fn without_mode(gate: &mut Value) {
    gate["spec"].as_object_mut().unwrap().remove("mode");
}

fn with_latest(gate: &mut Value) {
    gate["spec"]["versions"][1]["values"]["image"] = json!("latest");
}

fn with_unknown_operator(gate: &mut Value) {
    gate["spec"]["clusterSelector"] =
        json!({"matchExpressions": [{"key": "cni", "operator": "Like", "values": ["a"]}]});
}

/// Whatever was stored while the webhook was switched off holds the Clusters that it may be for, and no other one.
#[rstest]
#[case::undecodable(without_mode, true)]
#[case::invalid(with_latest, false)]
#[case::with_a_selector_without_meaning(with_unknown_operator, true)]
fn an_invalid_gate_holds(#[case] breaks: fn(&mut Value), #[case] holds_all: bool) {
    for (label, holds) in [("cilium", true), ("antrea", holds_all)] {
        let mut world = World::new();
        world.edit(GATE, breaks);
        // Another gate selects both Clusters and is proven.
        let mut other = gate_with(&json!([row("1.35", "1.17.4")]), &json!([agent()]));
        other["spec"]["clusterSelector"] = json!({});
        world.put(("UpgradeGate", "team-a", "other"), other);
        world.edit(CLUSTER, |cluster| {
            cluster["metadata"]["labels"]["cni"] = json!(label);
        });
        world.after(1);
        assert!(!world.is_held(), "nothing is held between upgrades");
        world.target(V35);
        world.after(2);
        assert_eq!(world.is_open(BEFORE, V35), !holds, "{label}");
        if holds {
            assert_eq!(world.waits_for(), wait("cni", "GateInvalid"));
        }
        world.put(
            GATE,
            gate_with(&json!([row("1.35", "1.17.4")]), &json!([agent()])),
        );
        world.after(2);
        assert!(world.is_open(BEFORE, V35), "{label}: it was corrected");
    }
}

fn restore_label(world: &mut World) {
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"] = json!({"cni": "cilium"});
    });
    world.roll_out(AGENT, "v1.18.2");
}

fn audit(world: &mut World) {
    world.edit(GATE, |gate| gate["spec"]["mode"] = json!("Audit"));
}

/// The right to label Clusters is not the right to pass a gate.
#[rstest]
#[case::the_label_is_restored(restore_label, None)]
#[case::the_gate_is_set_to_audit(audit, Some("GateRemoved"))]
#[case::the_gate_is_deleted(delete_gate, Some("GateRemoved"))]
fn a_gate_that_no_longer_selects_the_cluster_holds_until(
    #[case] ends: fn(&mut World),
    #[case] event: Option<&str>,
) {
    let mut world = held();
    world.edit(CLUSTER, |cluster| cluster["metadata"]["labels"] = json!({}));
    world.roll_out(AGENT, "v1.18.2");
    for _ in 0..2 {
        world.after(2);
        assert_eq!(world.waits_for(), wait("cni", "GateDeselected"));
        assert!(!world.is_open(BEFORE, V35));
    }
    ends(&mut world);
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    let events = &world.effects.events;
    let has = |reason: &str| {
        events
            .iter()
            .any(|event| matches!(event, Event::Said(said, _) if *said == reason))
    };
    assert!(event.is_none_or(has), "{events:?}");
    assert!(has("GatesReleased"), "{events:?}");
}

/// Between upgrades a label has no hold.
#[test]
fn the_record_of_a_cluster_without_gates_is_deleted() {
    let mut world = World::settled();
    world.edit(CLUSTER, |cluster| cluster["metadata"]["labels"] = json!({}));
    assert_eq!(world.after(1), Done::Forget);
    assert_eq!(world.written, ["Delete ClusterUpgrade one"]);
    assert!(world.get(UPGRADE).is_none());
}

#[test]
fn a_record_stays_until_the_upgrade_ends() {
    let mut world = held();
    world.remove(GATE);
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
    world.control_plane(V35, V35);
    world.workers = V35;
    assert_eq!(world.after(5), Done::Forget);
    assert!(world.get(UPGRADE).is_none());
}

/// Each edit of a gate is judged at once and leaves an event.
#[test]
fn edits_of_a_gate_are_judged_at_once() {
    let mut world = held();
    let rows = json!([row("1.34", "1.17.4"), row("1.35", "1.17.4")]);
    world.edit(GATE, |gate| gate["spec"]["versions"] = rows);
    // Objects were read less than a second ago.
    world.reconcile().unwrap();
    assert!(world.is_open(BEFORE, V35));
    assert!(
        world.effects.events.contains(&Event::Said(
            "GateEdited",
            "UpgradeGate cni was edited; its checks are judged again".to_owned()
        )),
        "{:?}",
        world.effects.events
    );
    assert_eq!(world.effects.status, ["cni"]);
    // An old manifest is applied.
    world.edit(GATE, |gate| gate["spec"]["versions"] = server::rows());
    world.reconcile().unwrap();
    assert!(!world.is_open(BEFORE, V35));
    audit(&mut world);
    world.reconcile().unwrap();
    assert!(world.is_open(BEFORE, V35) && !world.is_held());
    assert_eq!(world.waits_for(), wait("cni/agent (audit)", "NotAtVersion"));
}

#[test]
fn an_audit_gate_holds_nothing_and_reports_what_it_would_have_held() {
    let mut world = World::new();
    audit(&mut world);
    world.settle();
    world.target(V35);
    world.after(2);
    assert_eq!(
        HOOKS.map(|hook| world.is_open(hook, V35)),
        [true, true, false, false]
    );
    assert_eq!(world.waits_for(), wait("cni/agent (audit)", "NotAtVersion"));
    assert_eq!(world.status().checks.as_deref(), Some("0/1"));
    world.control_plane(V35, V34);
    world.lasts(20);
    let counted = GateCount::AuditWouldHold("NotAtVersion".to_owned());
    assert!(
        world.effects.counts.contains(&counted),
        "{:?}",
        world.effects.counts
    );
    world.control_plane(V35, V35);
    world.after(20);
    assert!(!world.effects.counts.contains(&counted), "it is counted once");
    assert!(world.is_open(AFTER, V35) && world.is_open(WORKERS, V35));
}

#[test]
fn a_hop_without_a_row_holds_until_the_row_is_added() {
    let mut world = World::new();
    let one = json!([row("1.34", "1.17.4")]);
    world.edit(GATE, |gate| gate["spec"]["versions"] = one);
    world.settle();
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni", "NoVersionForHop"));
    assert_eq!(
        world.closed(BEFORE, V35),
        (
            "NoVersionForHop".to_owned(),
            "cni: no row for Kubernetes 1.35".to_owned()
        )
    );
    assert!(!world.read.contains(&"DaemonSet cilium".to_owned()));
    world.roll_out(AGENT, "v1.18.2");
    world.edit(GATE, |gate| gate["spec"]["versions"] = rows());
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
}

/// The chart of one row and the image of another one prove nothing.
#[test]
fn all_checks_of_a_gate_match_the_same_row() {
    let mut world = World::new();
    let rows = json!([
        row("1.34", "1.17.4"),
        row("1.35", "1.18.2"),
        row("1.35", "1.18.3")
    ]);
    world.put(GATE, gate_with(&rows, &json!([agent(), operator()])));
    world.settle();
    world.target(V35);
    world.roll_out(AGENT, "v1.18.3");
    world.roll_out(OPERATOR, "v1.18.2");
    world.after(2);
    assert!(!world.is_open(BEFORE, V35));
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
    let message = world.status().message.unwrap();
    assert!(message.ends_with("v1.18.2"), "it names the first row: {message}");
    world.roll_out(OPERATOR, "v1.18.3");
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
    let versions: Vec<String> = world
        .record()
        .checks
        .into_iter()
        .map(|check| check.version)
        .collect();
    assert_eq!(versions, ["v1.18.3", "v1.18.3"]);
}

/// The proof of one hop is none of the next one.
#[test]
fn each_hop_needs_its_own_row() {
    let mut world = World::new();
    world.plan = Plan::Listed([V34, V35, V36].map(str::to_owned).into());
    let rows = json!([
        row("1.34", "1.17.4"),
        row("1.35", "1.18.2"),
        row("1.36", "1.19.0")
    ]);
    world.put(GATE, gate_with(&rows, &json!([agent()])));
    world.settle();
    world.target(V36);
    world.after(2);
    assert_eq!(world.record().hop.as_deref(), Some(V35));
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(world.is_open(BEFORE, V35) && !world.is_open(BEFORE, V36));
    world.control_plane(V35, V35);
    world.after(5);
    assert!(world.is_open(AFTER, V35));
    world.after(5);
    assert_eq!(world.record().hop.as_deref(), Some(V36));
    assert!(!world.is_open(BEFORE, V36));
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
    assert!(world.status().message.unwrap().ends_with("v1.19.0"));
    world.roll_out(AGENT, "v1.19.0");
    world.after(2);
    assert!(world.is_open(BEFORE, V36));
}

/// Returns the number of Clusters that the status of a gate shows as held.
fn holding(world: &World, gate: Place) -> Value {
    let object = |place| world.get(place).unwrap().clone();
    let gate: UpgradeGate = serde_json::from_value(object(gate)).unwrap();
    let clusters = [GatedCluster {
        cluster: Arc::new(serde_json::from_value(object(CLUSTER)).unwrap()),
        upgrade: Some(Arc::new(serde_json::from_value(object(UPGRADE)).unwrap())),
    }];
    let write = gate_status::write(&gate, &clusters, None, world.clock.now).unwrap();
    write.body["status"]["holding"].clone()
}

#[test]
fn too_many_checks_hold_and_are_not_read() {
    let mut world = World::new();
    for number in 0..5 {
        let checks: Vec<Value> = (0..16)
            .map(|check| {
                let mut agent = agent();
                agent["name"] = json!(format!("agent-{check}"));
                agent
            })
            .collect();
        let name: &'static str = ["a", "b", "c", "d", "e"][number];
        world.put(
            ("UpgradeGate", "team-a", name),
            gate_with(&rows(), &json!(checks)),
        );
    }
    world.after(1);
    world.target(V35);
    world.after(2);
    assert_eq!(world.closed(BEFORE, V35).0, "ChecksTooMany");
    assert_eq!(world.status().reason.as_deref(), Some("ChecksTooMany"));
    assert!(
        !world.read.contains(&"DaemonSet cilium".to_owned()),
        "{:?}",
        world.read
    );
    for name in ["a", "e"] {
        assert_eq!(holding(&world, ("UpgradeGate", "team-a", name)), 1, "{name}");
    }
    world.remove(("UpgradeGate", "team-a", "e"));
    world.remove(GATE);
    world.after(2);
    assert_eq!(world.waits_for(), wait("a/agent-0", "NotAtVersion"));
}

/// A tenant chooses the number of UpgradeGates.
#[test]
fn too_many_gates_hold_and_are_not_read() {
    let mut world = World::new();
    let names: Vec<&'static str> = (0..50).map(|number| &*format!("other-{number}").leak()).collect();
    for name in &names {
        let mut other = gate_with(&rows(), &json!([agent()]));
        other["spec"]["clusterSelector"] = json!({"matchLabels": {"cni": "other"}});
        world.put(("UpgradeGate", "team-a", name), other);
    }
    world.after(1);
    world.target(V35);
    world.after(2);
    assert_eq!(world.closed(BEFORE, V35).0, "ChecksTooMany");
    assert!(
        !world.read.contains(&"DaemonSet cilium".to_owned()),
        "{:?}",
        world.read
    );
    world.remove(("UpgradeGate", "team-a", "other-7"));
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
}

/// The record of each Cluster stays small, and its gates that hold stay in it.
#[test]
fn a_record_of_too_many_gates_lists_those_that_hold_first() {
    let mut world = held();
    world.roll_out(AGENT, "v1.18.2");
    let names: Vec<&'static str> = (0..5000)
        .map(|number| &*format!("a-{number:04}").leak())
        .collect();
    for (number, name) in names.iter().enumerate() {
        let mut other = gate_with(&rows(), &json!([agent()]));
        other["spec"]["mode"] = json!(if number < 4900 { "Audit" } else { "Enforce" });
        world.put(("UpgradeGate", "team-a", name), other);
    }
    world.after(2);
    assert_eq!(world.closed(BEFORE, V35).0, "ChecksTooMany");
    let record = world.record();
    assert_eq!(record.selected.len(), 50);
    let mut modes = record.selected.iter().map(|gate| gate.mode);
    assert!(modes.all(|mode| mode == GateMode::Enforce));
    let last = record.selected.last().map(|gate| gate.name.as_str());
    assert_eq!(last, Some("cni"), "it was listed before, and they are by name");
    let size = serde_json::to_vec(&record).unwrap().len();
    assert!(size <= 16 * 1024, "{size}");

    for name in names {
        world.remove(("UpgradeGate", "team-a", name));
    }
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

fn relabel_at_rest(world: &mut World) {
    world.target(V34);
    relabel(world);
}

/// It is created again, and holds until then. It stays where it may list a gate that a new record would lack.
#[rstest]
#[case::of_a_selected_cluster(|_: &mut World| {}, true)]
#[case::without_gates(delete_gate, true)]
#[case::of_a_deselected_cluster(relabel, false)]
#[case::of_a_deselected_cluster_at_rest(relabel_at_rest, true)]
fn an_undecodable_record_is_deleted_if_no_gate_is_lost(
    #[case] change: fn(&mut World),
    #[case] is_deleted: bool,
) {
    let mut world = held();
    world.edit(UPGRADE, |upgrade| upgrade["status"]["checks"] = json!(1));
    change(&mut world);
    world.after(2);
    let deleted: &[&str] = if is_deleted {
        &["Delete ClusterUpgrade one"]
    } else {
        &[]
    };
    assert_eq!(world.written, deleted);
    let is_reported =
        |event: &Event| matches!(event, Event::Held(hold) if hold.reason == GateReason::ObjectUndecodable);
    assert!(world.effects.events.iter().any(is_reported));

    world.put(GATE, gate_with(&rows(), &json!([agent()])));
    restore_label(&mut world);
    world.target(V35);
    world.after(2);
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

/// An open gate closes a minute after the last response.
#[test]
fn a_silent_workload_withdraws_the_proof_after_a_minute() {
    let mut world = released();
    world.is_silent = true;
    world.after(5);
    assert!(world.is_open(BEFORE, V35));
    world.after(50);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    world.after(20);
    assert_eq!(world.closed(BEFORE, V35).0, "WorkloadUnreachable");
    assert_eq!(world.record().checks[0].state, CheckState::Waiting);
    let Done::RequeueAfter(next) = world.after(300) else {
        panic!("it is requeued");
    };
    assert!(
        (Duration::from_secs(10)..=Duration::from_mins(1)).contains(&next),
        "{next:?}"
    );
    world.is_silent = false;
    world.after(60);
    assert!(world.is_open(BEFORE, V35));
}

/// A process that has just started does not know how long the workload has been silent.
#[test]
fn a_restarted_process_trusts_no_silent_workload() {
    let mut world = released();
    world.local = GateLocalState::default();
    world.is_silent = true;
    world.after(5);
    assert!(!world.is_open(BEFORE, V35));
}

/// Nothing is held and nothing is written while the workload of a settled Cluster does not respond.
#[test]
fn a_silent_workload_between_upgrades_writes_nothing() {
    let mut world = World::settled();
    world.is_silent = true;
    world.after(601);
    assert_eq!(world.written, Vec::<String>::new());
    assert!(!world.is_held());
}

/// A wrong reference shows up before the first upgrade, and holds nothing.
#[test]
fn a_drift_check_reports_an_unproven_check() {
    let mut world = World::settled();
    world.workload.remove(&stored(AGENT));
    world.after(601);
    assert_eq!(world.waits_for(), wait("cni/agent (audit)", "ObjectNotFound"));
    assert!(!world.is_held());
    assert_eq!(world.record().outcome, Some(Outcome::Completed));
    world.after(1);
    assert_eq!((&world.written, &world.read), (&Vec::new(), &Vec::new()));
}

/// A Job of the next version does not exist between upgrades.
#[test]
fn checks_of_a_hop_are_skipped_between_upgrades() {
    let mut world = World::new();
    let job = json!({
        "name": "backup", "cluster": "Workload",
        "object": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "kube-system", "name": "backup-${hop}"},
    });
    world.put(GATE, gate_with(&rows(), &json!([agent(), job])));
    world.settle();
    assert_eq!(world.status().checks.as_deref(), Some("1/1"));
    assert_eq!(world.waits_for(), (None, None));
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/backup", "ObjectNotFound"));
    let complete = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {},
        "status": {"succeeded": 1, "conditions": [
            {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"},
        ]},
    });
    let place = ("Job", "kube-system", "backup-v1.35.4");
    world.workload.put(stored(place), complete);
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    // Its TTL deletes the Job in the foreground: the recorded completion stands for this hop.
    world.edit_workload(place, |job| {
        job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    world.workload.remove(&stored(place));
    world.control_plane(V35, V35);
    world.after(5);
    assert!(world.is_open(AFTER, V35), "{:?}", world.record());
    world.workers = V35;
    world.after(5);
    world.after(601);
    assert_eq!(world.written, Vec::<String>::new(), "the entry of the Job stays");
}

#[rstest]
#[case::by_its_spec(json!({"spec": {"paused": true}}), "ClusterPaused")]
#[case::by_annotation(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}), "ClusterPaused")]
#[case::at_its_start(
    json!({"metadata": {"annotations": {"before-upgrade.hook.cluster.cluster.x-k8s.io/a": ""}}}),
    "StartHeldByAnnotation"
)]
fn a_pause_holds(#[case] patch: Value, #[case] reason: &str) {
    let mut world = World::settled();
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.edit(CLUSTER, |cluster| sluice_test_store::merge(cluster, &patch));
    let Done::RequeueAfter(next) = world.after(2) else {
        panic!("it is requeued");
    };
    assert_eq!(world.status().reason.as_deref(), Some(reason));
    assert!(next >= Duration::from_secs(5), "{next:?}");
    assert_eq!(
        world.status().checks.as_deref(),
        Some("1/1"),
        "objects are still judged"
    );
    world.edit(CLUSTER, |cluster| {
        cluster["spec"]["paused"] = json!(false);
        cluster["metadata"]["annotations"] = json!({});
    });
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
}

#[test]
fn a_deleted_cluster_is_left_alone() {
    let mut world = held();
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    assert_eq!(world.after(2), Done::Forget);
    assert_eq!((&world.written, &world.read), (&Vec::new(), &Vec::new()));
}

#[test]
fn a_record_of_an_earlier_cluster_is_replaced() {
    let mut world = held();
    world.roll_out(AGENT, "v1.18.2");
    world.edit(CLUSTER, |cluster| cluster["metadata"]["uid"] = json!("again"));
    assert!(soon(world.after(2)));
    assert_eq!(world.written, ["Delete ClusterUpgrade one"]);
    world.after(2);
    assert_eq!(world.record().cluster_uid, "again");
}

/// Events may requeue a Cluster many times a second.
#[test]
fn objects_are_read_five_times_in_a_row_and_then_once_a_second() {
    let mut world = held();
    world.after(10);
    let reads = |world: &World| world.read.contains(&"DaemonSet cilium".to_owned());
    assert!(reads(&world));
    let reconcile = |world: &mut World| match world.reconcile().unwrap() {
        Done::RequeueAfter(left) => left,
        done => panic!("it is requeued, not {done:?}"),
    };
    for _ in 0..4 {
        reconcile(&mut world);
        assert!(reads(&world));
    }
    for _ in 0..5 {
        let left = reconcile(&mut world);
        assert!(left <= Duration::from_secs(1) && !left.is_zero(), "{left:?}");
        assert_eq!(world.read, Vec::<String>::new());
    }
    world.after(1);
    assert!(reads(&world));
    reconcile(&mut world);
    assert_eq!(world.read, Vec::<String>::new());
}

/// A message that changes costs Cluster API a reconcile, and delays its next call.
#[test]
fn a_passing_state_is_not_written() {
    let mut world = held();
    world.after(60);
    let nothing = Vec::<String>::new();
    let edit = |world: &mut World, labels: serde_json::Value| {
        world.edit_workload(AGENT, |agent| agent["metadata"]["deletionTimestamp"] = labels);
    };
    edit(&mut world, json!("2026-01-01T00:00:00Z"));
    world.after(1);
    assert_eq!(world.written, nothing);
    edit(&mut world, json!(null));
    world.after(1);
    edit(&mut world, json!("2026-01-01T00:00:00Z"));
    world.after(1);
    assert_eq!(world.written, nothing, "it has not lasted for two seconds");
    world.after(2);
    assert_eq!(world.written, ["ReplaceStatus ClusterUpgrade one"]);
}

/// A gate may hold for weeks.
#[test]
fn a_hold_without_progress_is_judged_less_often() {
    let mut world = held();
    let passes = |world: &mut World| {
        for (seconds, next) in [(2, 1000), (28, 3000), (30, 5000), (604_800, 5000)] {
            let next = Done::RequeueAfter(Duration::from_millis(next));
            assert_eq!(world.after(seconds), next, "after {seconds} s");
            assert_eq!(world.written, Vec::<String>::new());
        }
    };
    passes(&mut world);
    fail(&mut world);
    world.roll_out(AGENT, "v1.18.2");
    assert!(soon(world.lasts(5)), "its status has changed");
    assert_eq!(world.waits_for(), wait("cni/agent", "NotRolledOut"));
    passes(&mut world);
    // Another process takes over.
    world.local = GateLocalState::default();
    assert!(soon(world.after(5)));
    passes(&mut world);
}

/// Progress that changes no gate waits for its write.
#[test]
fn progress_is_written_after_five_seconds() {
    let mut world = World::new();
    world.put(GATE, gate_with(&rows(), &json!([agent(), operator()])));
    world.settle();
    world.target(V35);
    world.after(2);
    world.edit_workload(AGENT, |agent| {
        agent["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    world.after(1);
    assert_eq!(
        world.written,
        Vec::<String>::new(),
        "the message of a closed gate waits"
    );
    world.roll_out(OPERATOR, "v1.18.2");
    world.after(1);
    assert_eq!(world.written, Vec::<String>::new(), "a further proof waits");
    world.after(5);
    assert_eq!(world.written, ["ReplaceStatus ClusterUpgrade one"]);
    assert_eq!(world.status().checks.as_deref(), Some("1/2"));
}

/// A deadline reports, and releases nothing.
#[test]
fn a_deadline_is_reported() {
    let mut world = World::new();
    world.edit(GATE, |gate| gate["spec"]["deadline"] = json!("1m"));
    world.settle();
    world.target(V35);
    world.after(2);
    let late = |world: &World| {
        let conditions = world.status().conditions;
        conditions
            .iter()
            .any(|condition| condition.type_ == "DeadlineExceeded")
    };
    assert!(!late(&world));
    world.lasts(61);
    assert!(late(&world) && !world.is_open(BEFORE, V35));
    let warns = |event: &Event| matches!(event, Event::Warned("DeadlineExceeded", _));
    assert!(world.effects.events.iter().any(warns));
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(!late(&world) && world.is_open(BEFORE, V35));
}

/// An unreadable control plane closes open gates, and keeps the record.
#[test]
fn too_little_knowledge_closes_gates() {
    let mut world = released();
    let mut facts = world.facts();
    let hold = Hold::new(GateReason::ControlPlaneKindUnreadable, "no such kind");
    facts.unknown = Some(Unknown::Unreadable(hold));
    let local = world.local.clone();
    world.pass(2);
    world.reconcile_with(&facts, &local).unwrap();
    assert_eq!(world.closed(BEFORE, V35).0, "ControlPlaneKindUnreadable");
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
}

/// Writes per hop: the target, the proof, the control plane, its settling, and the end.
#[test]
fn an_upgrade_costs_few_writes() {
    let mut world = World::settled();
    let mut writes = 0;
    world.target(V35);
    for second in 0..60 {
        match second {
            10 => world.roll_out(AGENT, "v1.18.2"),
            20 => world.control_plane(V35, V34),
            30 => world.control_plane(V35, V35),
            40 => world.workers = V35,
            _ => {}
        }
        world.after(1);
        writes += world.written.len();
    }
    assert_eq!(world.record().outcome, Some(Outcome::Completed));
    assert!(writes <= 6, "{writes}");
}

/// The list beside an object is read again, too.
#[test]
fn a_drift_check_of_a_chart_writes_nothing() {
    let mut world = World::with_chart();
    world.settle();
    world.after(601);
    assert!(
        world.read.contains(&"list HelmReleaseProxy".to_owned()),
        "{:?}",
        world.read
    );
    assert_eq!(world.written, Vec::<String>::new());
}
