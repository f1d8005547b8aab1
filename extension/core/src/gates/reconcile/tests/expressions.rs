//! Expressions of checks: what they hold, what ends it, and what is counted.

use rstest::rstest;
use serde_json::{Value, json};

use super::server::{AGENT, GATE, V35, World, agent, gate_with, row, rows};
use super::{BEFORE, GateCount, wait};
use crate::{gates::expression::is_compiled, reasons::CheckReason};

/// Returns the check of the agent with an expression.
fn agent_with(expression: &str) -> Value {
    let mut check = agent();
    check["cel"] = json!(expression);
    check
}

/// Returns a Cluster whose agent runs at the version of the hop, with a gate of this expression.
fn with_expression(expression: &str) -> World {
    let mut world = World::new();
    world.put(GATE, gate_with(&rows(), &json!([agent_with(expression)])));
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    world
}

fn errors(world: &World) -> Vec<CheckReason> {
    let counts = world.effects.counts.iter();
    counts
        .filter_map(|count| match count {
            GateCount::ExpressionError(reason) => Some(*reason),
            _ => None,
        })
        .collect()
}

#[test]
fn an_expression_that_is_true_releases() {
    let mut world =
        with_expression("object.status.numberAvailable >= 1 && version == 'v1.18.2' && hop.minor == '1.35'");
    assert!(errors(&world).is_empty());
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    assert!(errors(&world).is_empty());
}

#[test]
fn an_expression_that_fails_is_counted_once_and_ends_with_its_correction() {
    let mut world = with_expression("object.status.phase == 'Ready'");
    assert_eq!(world.waits_for(), wait("cni/agent", "ExpressionFailed"));
    let message = world.status().message.unwrap();
    assert!(
        message.ends_with("the expression fails for DaemonSet kube-system/cilium"),
        "{message}"
    );
    assert!(world.record().checks[0].detail.starts_with("phase is missing; "));
    assert_eq!(errors(&world), [CheckReason::ExpressionFailed]);
    for _ in 0..3 {
        world.after(5);
        assert!(errors(&world).is_empty(), "a hold that stays is counted once");
    }
    world.edit(GATE, |gate| {
        gate["spec"]["checks"] = json!([agent_with("!has(object.status.phase)")]);
    });
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

/// A wrong expression shows up before the first upgrade, and holds nothing.
#[test]
fn a_drift_check_reports_an_expression_that_fails() {
    let mut world = World::new();
    let check = agent_with("object.status.phase == 'Ready'");
    world.put(GATE, gate_with(&rows(), &json!([check])));
    world.edit_workload(AGENT, |agent| agent["status"]["phase"] = json!("Ready"));
    world.settle();
    assert_eq!(world.waits_for(), (None, None));
    world.edit_workload(AGENT, |agent| {
        agent["status"].as_object_mut().unwrap().remove("phase");
    });
    world.after(601);
    assert_eq!(world.waits_for(), wait("cni/agent (audit)", "ExpressionFailed"));
    assert_eq!(errors(&world), [CheckReason::ExpressionFailed]);
    assert!(!world.is_held());
    world.after(1);
    assert_eq!((&world.written, &world.read), (&Vec::new(), &Vec::new()));
}

#[test]
fn an_expression_that_costs_too_much_is_counted_as_such() {
    let check = agent_with("object.status.list.all(a, object.status.list.all(b, a == b))");
    let mut world = World::new();
    world.put(GATE, gate_with(&rows(), &json!([check])));
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.edit_workload(AGENT, |agent| agent["status"]["list"] = json!(vec![1; 1_000]));
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "ExpressionTooCostly"));
    assert_eq!(errors(&world), [CheckReason::ExpressionTooCostly]);
    world.after(5);
    assert!(errors(&world).is_empty());
    world.edit_workload(AGENT, |agent| agent["status"]["list"] = json!([1, 1]));
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

/// The row that an expression is true for is that of all checks.
#[test]
fn an_expression_is_judged_by_each_row() {
    let mut world = World::new();
    let rows = json!([
        row("1.34", "1.17.4"),
        row("1.35", "1.18.3"),
        row("1.35", "1.18.2")
    ]);
    let check = agent_with("version == 'v1.18.2' || object.metadata.name == 'calico'");
    world.put(GATE, gate_with(&rows, &json!([check])));
    world.target(V35);
    world.roll_out(AGENT, "v1.18.3");
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "ExpressionFalse"));
    world.roll_out(AGENT, "v1.18.2");
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

#[test]
fn an_expression_that_does_not_compile_holds_as_an_invalid_gate() {
    let world = with_expression("object.status ==");
    assert_eq!(world.waits_for(), wait("cni", "GateInvalid"));
    assert!(!world.is_open(BEFORE, V35));
}

/// An Audit gate comes first, and its expressions cost more than all of a Cluster may.
#[test]
fn expressions_of_an_audit_gate_do_not_exhaust_those_of_another_gate() {
    let mut world = World::new();
    let checks: Vec<Value> = (0..16)
        .map(|number| {
            let mut check = agent_with("object.status.list.all(a, a == 1) && version != ''");
            check["name"] = json!(format!("agent-{number}"));
            check
        })
        .collect();
    for (place, mode) in [(GATE, "Enforce"), (("UpgradeGate", "team-a", "audited"), "Audit")] {
        let checks = if mode == "Audit" {
            &checks[..]
        } else {
            &checks[..1]
        };
        let mut gate = gate_with(&rows(), &json!(checks));
        gate["spec"]["mode"] = json!(mode);
        world.put(place, gate);
    }
    world.target(V35);
    world.edit_workload(AGENT, |agent| agent["status"]["list"] = json!(vec![1; 10_000]));
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(errors(&world).contains(&CheckReason::ExpressionTooCostly));
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    let by = world.status().held_by.unwrap_or_default();
    assert!(by.starts_with("audited/") && by.ends_with(" (audit)"), "{by}");
    assert_eq!(world.status().reason.as_deref(), Some("ExpressionTooCostly"));

    // Several Enforce gates share one bound.
    world.edit(("UpgradeGate", "team-a", "audited"), |gate| {
        gate["spec"]["mode"] = json!("Enforce");
    });
    world.after(2);
    assert!(!world.is_open(BEFORE, V35), "{:?}", world.record().gates);
}

/// A tenant chooses the number of gates and checks.
#[rstest]
#[case::gates_that_hold("Enforce")]
#[case::audits("Audit")]
fn gates_beyond_the_limit_of_checks_are_not_compiled(#[case] mode: &str) {
    let text = |gate: usize, check: usize| format!("object.metadata.name != '{mode} {gate} {check}'");
    let names: Vec<&'static str> = (0..49)
        .map(|number| &*format!("other-{number:02}").leak())
        .collect();
    let mut world = World::new();
    for (number, name) in names.iter().enumerate() {
        let checks: Vec<Value> = (0..16)
            .map(|check| {
                let mut agent = agent_with(&text(number, check));
                agent["name"] = json!(format!("agent-{check}"));
                agent
            })
            .collect();
        let mut gate = gate_with(&rows(), &json!(checks));
        gate["spec"]["mode"] = json!(mode);
        world.put(("UpgradeGate", "team-a", name), gate);
    }
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    world.after(5);
    let compiled = |number: usize| (0..16).any(|check| is_compiled(&text(number, check)));
    let numbers: Vec<usize> = (0..49).filter(|number| compiled(*number)).collect();
    if mode == "Audit" {
        // The gate that holds has one check, so three of the others fit.
        assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
        assert_eq!(numbers, [0, 1, 2]);
    } else {
        assert_eq!(world.closed(BEFORE, V35).0, "ChecksTooMany");
        assert!(numbers.is_empty(), "{numbers:?}");
        for name in &names[3..] {
            world.remove(("UpgradeGate", "team-a", name));
        }
        world.after(2);
        assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
        assert!(compiled(0));
    }
}
