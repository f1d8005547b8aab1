//! Objects that are watched while a check holds the Cluster.

use super::*;

const OF_AGENT: &str = "DaemonSet kube-system/cilium";
const OF_OPERATOR: &str = "Deployment kube-system/operator";

/// Returns a Cluster whose upgrade to v1.35.4 waits for these checks of a gate.
fn waiting_for(checks: &Value) -> World {
    let mut world = World::new();
    world.put(GATE, gate_with(&rows(), checks));
    world.after(1);
    world.target(V35);
    world.after(2);
    assert!(world.is_held());
    world
}

fn both() -> World {
    waiting_for(&json!([operator(), agent()]))
}

fn same_object() -> World {
    let mut again = agent();
    again["name"] = json!("again");
    waiting_for(&json!([agent(), again]))
}

fn many() -> World {
    let checks = (0..10).map(|number| {
        let mut agent = agent();
        agent["name"] = json!(format!("agent-{number}"));
        agent["object"]["name"] = json!(format!("agent-{number}"));
        agent
    });
    waiting_for(&checks.collect())
}

/// A second gate waits for the operator before the workers.
fn before_workers() -> World {
    let mut world = World::new();
    let mut late = gate_with(&rows(), &json!([operator()]));
    late["spec"]["before"] = json!("Workers");
    world.put(("UpgradeGate", "team-a", "late"), late);
    world.after(1);
    world.target(V35);
    world.after(2);
    world
}

fn chart() -> World {
    let mut world = World::with_chart();
    world.settle();
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world
}

fn nothing(_: &mut World) {}

fn prove_agent(world: &mut World) {
    world.roll_out(AGENT, "v1.18.2");
}

fn prove_operator(world: &mut World) {
    world.roll_out(OPERATOR, "v1.18.2");
}

fn take_version(world: &mut World) {
    prove_agent(world);
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
    world.control_plane(V35, V35);
}

fn pause(world: &mut World) {
    world.edit(CLUSTER, |cluster| cluster["spec"]["paused"] = json!(true));
}

fn unserve_operator(world: &mut World) {
    world.unserved = Some("Deployment");
}

fn forbid_operator(world: &mut World) {
    world.fails = Some(("Deployment", code(403)));
}

fn forbid_operator_for_long(world: &mut World) {
    forbid_operator(world);
    world.after(2);
    world.after(700);
}

#[rstest]
#[case::of_a_cluster_at_rest(World::settled, nothing, &[])]
#[case::of_a_hold(held, nothing, &[OF_AGENT])]
#[case::that_do_not_exist(held, delete, &[OF_AGENT])]
#[case::in_the_order_of_checks(both, nothing, &[OF_OPERATOR, OF_AGENT])]
#[case::without_proven_ones(both, prove_operator, &[OF_AGENT])]
#[case::once_for_two_checks(same_object, nothing, &[OF_AGENT])]
#[case::of_the_step_that_is_next(before_workers, nothing, &[OF_AGENT])]
#[case::of_the_step_of_workers(before_workers, take_version, &[OF_OPERATOR])]
#[case::after_the_release(held, prove_agent, &[])]
#[case::in_a_pause(held, pause, &[])]
#[case::of_an_audit_gate(held, audit, &[])]
#[case::of_a_gate_that_was_deselected(held, relabel, &[])]
#[case::of_a_silent_cluster(held, silence, &[])]
#[case::of_served_kinds(both, unserve_operator, &[OF_AGENT])]
#[case::of_readable_kinds(both, forbid_operator, &[OF_AGENT])]
#[case::of_a_cluster_that_is_read_rarely(both, forbid_operator_for_long, &[])]
#[case::of_the_management_cluster(chart, nothing, &[])]
fn unproven_objects_of_the_workload_are_watched(
    #[case] world: fn() -> World,
    #[case] change: fn(&mut World),
    #[case] expected: &[&str],
) {
    let mut world = world();
    change(&mut world);
    world.after(2);
    assert_eq!(watched(&world), expected, "{:?}", world.status());
}

fn watched(world: &World) -> Vec<String> {
    let watched = world.effects.watched.iter();
    watched.map(ToString::to_string).collect()
}

#[test]
fn the_number_of_watched_objects_is_limited() {
    let expected: Vec<String> = (0..8)
        .map(|number| format!("DaemonSet kube-system/agent-{number}"))
        .collect();
    assert_eq!(watched(&many()), expected);
}

/// Events in a row, soon after the last read.
#[test]
fn a_reconcile_that_reads_nothing_keeps_the_watches() {
    let mut world = held();
    world.after(1);
    for _ in 0..5 {
        world.reconcile().unwrap();
    }
    assert_eq!(world.read, Vec::<String>::new());
    assert_eq!(watched(&world), [OF_AGENT]);
}

/// Events that change no verdict, each second.
#[test]
fn events_neither_write_nor_change_the_interval_of_polls() {
    let mut world = held();
    for second in 1..=30 {
        let next = Duration::from_millis(100 * second).max(UNWATCHED);
        assert_eq!(world.after(1), Done::RequeueAfter(next), "after {second} s");
        assert_eq!(world.written, Vec::<String>::new(), "after {second} s");
    }
}
