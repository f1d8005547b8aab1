//! `TKR_DATA`: machines roll when it changes for a version that they run, and no hook covers it.

use serde_json::{Value, json};

use super::story::{NEW, OLD, Story};

/// A topology with `TKR_DATA` of the Cluster, and with an override for one pool where there is one.
fn topology(data: &Value, kind: &str, own: Option<&Value>) -> Value {
    let variables = |data: &Value| json!([{"name": "TKR_DATA", "value": data}]);
    let mut pool = json!({"name": "md"});
    if let Some(own) = own {
        pool["variables"] = json!({"overrides": variables(own)});
    }
    json!({"variables": variables(data), "workers": {kind: [pool]}})
}

/// A Cluster whose label asks for other packages at the same Kubernetes version, which nothing has asked for yet.
fn swapped(data: &Value, kind: &str, own: Option<&Value>) -> Story {
    let mut story = Story::created();
    story.package("1.0.1");
    story.release("r3", OLD, "1.0.1");
    story.topology(topology(data, kind, own));
    story.label("r3");
    story.is_in_order();
    story
}

#[test]
fn a_swap_under_the_running_version_needs_proof() {
    let mut story = swapped(&json!({OLD: "old"}), "machineDeployments", None);
    story.topology(topology(&json!({OLD: "new"}), "machineDeployments", None));
    let violations = story.ledger.violations();
    assert_eq!(violations.len(), 2, "{violations:#?}");
    assert!(violations[0].write.contains("TKR_DATA of MachineDeployment md"));
    assert!(violations[1].write.contains("TKR_DATA of the control plane"));
    assert!(violations[1].to_string().contains("antrea.a.test.1.0.1"));
}

#[test]
fn a_swap_after_the_proof_is_in_order() {
    let mut story = swapped(&json!({OLD: "old"}), "machineDeployments", None);
    story.prove("1.0.1", 2);
    story.topology(topology(&json!({OLD: "new"}), "machineDeployments", None));
    story.is_in_order();
}

#[test]
fn data_of_a_version_that_nothing_runs_may_come_early() {
    let mut story = swapped(&json!({OLD: "old"}), "machineDeployments", None);
    story.topology(topology(
        &json!({OLD: "old", NEW: "new"}),
        "machineDeployments",
        None,
    ));
    story.is_in_order();
}

#[test]
fn data_that_is_left_out_is_a_swap() {
    let mut story = swapped(
        &json!({OLD: "old"}),
        "machineDeployments",
        Some(&json!({OLD: "own"})),
    );
    story.topology(topology(
        &json!({}),
        "machineDeployments",
        Some(&json!({OLD: "own"})),
    ));
    story.is_early("TKR_DATA of the control plane", "antrea.a.test.1.0.1");
}

#[test]
fn the_override_of_a_pool_is_a_swap_of_that_pool() {
    for (kind, part) in [
        ("machineDeployments", "MachineDeployment md"),
        ("machinePools", "MachinePool md"),
    ] {
        let mut story = swapped(&json!({OLD: "old"}), kind, Some(&json!({OLD: "old"})));
        story.topology(topology(&json!({OLD: "old"}), kind, Some(&json!({OLD: "new"}))));
        story.is_early(&format!("TKR_DATA of {part}"), "antrea.a.test.1.0.1");
    }
}

#[test]
fn workers_that_still_run_a_version_are_rolled_by_its_data() {
    let mut story = Story::until_bump();
    story.topology(topology(&json!({OLD: "old"}), "machineDeployments", None));
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.topology(topology(
        &json!({OLD: "new"}),
        "machineDeployments",
        Some(&json!({OLD: "old"})),
    ));
    story.is_early(
        "TKR_DATA of the control plane was changed for v1.35.4",
        "antrea.a.test.1.0.0",
    );
}
