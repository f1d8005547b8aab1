//! `TKR_DATA`: machines roll when it changes for a version that they run, and no hook covers it.

use serde_json::{Value, json};

use super::story::{NEW, OLD, Story};
use crate::observer::milestone::Event;

/// An entry of a release.
fn entry(release: &str) -> Value {
    let labels = json!({"run.tanzu.vmware.com/tkr": release});
    json!({"osImageRef": {"name": format!("{release}-image")}, "labels": labels})
}

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
fn swapped(kind: &str, own: Option<&Value>) -> Story {
    let mut story = Story::created();
    story.package("1.0.1");
    story.release("r3", OLD, "1.0.1");
    story.topology(topology(&json!({OLD: entry("r1")}), kind, own));
    story.label("r3");
    story.is_in_order();
    story
}

/// The same with a pool that has an entry of its own, which stays.
fn of_one_part() -> (Story, Value) {
    let own = json!({OLD: entry("r1")});
    (swapped("machineDeployments", Some(&own)), own)
}

fn writes_of_release_data(story: &Story) -> Vec<(&str, &str)> {
    let events = story.ledger.milestones().iter().map(|milestone| &milestone.event);
    events
        .filter_map(|event| match event {
            Event::ReleaseDataWritten { version, release } => Some((version.as_str(), release.as_str())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_swap_under_the_running_version_needs_proof() {
    let mut story = swapped("machineDeployments", None);
    story.topology(topology(&json!({OLD: entry("r3")}), "machineDeployments", None));
    let violations = story.ledger.violations();
    assert_eq!(violations.len(), 2, "{violations:#?}");
    assert!(violations[0].write.contains("TKR_DATA of MachineDeployment md"));
    assert!(violations[1].write.contains("TKR_DATA of the control plane"));
    assert!(violations[1].to_string().contains("antrea.a.test.1.0.1"));
}

#[test]
fn a_swap_after_the_proof_is_in_order() {
    let mut story = swapped("machineDeployments", None);
    story.prove("1.0.1", 2);
    story.topology(topology(&json!({OLD: entry("r3")}), "machineDeployments", None));
    // The label moves on while machines roll.
    story.release("r4", OLD, "1.0.2");
    story.label("r4");
    story.is_in_order();
    let writes = writes_of_release_data(&story);
    assert_eq!(writes, [(OLD, "r1"), (OLD, "r3")], "one for each write");
}

#[test]
fn a_swap_to_another_release_than_that_of_the_label_is_early() {
    let (mut story, own) = of_one_part();
    story.release("r4", OLD, "1.0.1");
    story.prove("1.0.1", 2);
    story.topology(topology(
        &json!({OLD: entry("r4")}),
        "machineDeployments",
        Some(&own),
    ));
    story.is_early(
        "TKR_DATA of the control plane",
        "label's release \"r3\", it is of \"r4\"",
    );
}

#[test]
fn a_swap_that_the_label_has_left_is_early() {
    let (mut story, own) = of_one_part();
    story.release("r4", OLD, "1.0.1");
    story.prove("1.0.1", 2);
    story.label("r4");
    story.topology(topology(
        &json!({OLD: entry("r3")}),
        "machineDeployments",
        Some(&own),
    ));
    story.is_early(
        "TKR_DATA of the control plane",
        "label's release \"r4\", it is of \"r3\"",
    );
}

#[test]
fn an_entry_without_a_release_is_early() {
    let (mut story, own) = of_one_part();
    story.prove("1.0.1", 2);
    let nameless = json!({OLD: {"osImageRef": {"name": "r3-image"}}});
    story.topology(topology(&nameless, "machineDeployments", Some(&own)));
    story.is_early("TKR_DATA of the control plane", "it is of \"\"");
}

#[test]
fn the_packages_of_the_release_of_the_entry_count() {
    // Those of the label are proven.
    let (mut story, own) = of_one_part();
    story.release("r4", OLD, "1.0.2");
    story.prove("1.0.1", 2);
    story.topology(topology(
        &json!({OLD: entry("r4")}),
        "machineDeployments",
        Some(&own),
    ));
    let violations = story.ledger.violations();
    assert_eq!(violations.len(), 1, "{violations:#?}");
    let missing = &violations[0].missing;
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing[0].contains("\"r4\""), "{missing:?}");
    assert!(missing[1].contains("antrea.a.test.1.0.2"), "{missing:?}");
}

#[test]
fn the_proof_of_a_release_that_the_label_has_left_does_not_count() {
    let (mut story, own) = of_one_part();
    story.release("r4", OLD, "1.0.2");
    story.prove("1.0.1", 2);
    story.label("r4");
    story.topology(topology(
        &json!({OLD: entry("r4")}),
        "machineDeployments",
        Some(&own),
    ));
    story.is_early("TKR_DATA of the control plane", "antrea.a.test.1.0.2");
}

#[test]
fn data_of_a_version_that_nothing_runs_may_come_early() {
    let mut story = swapped("machineDeployments", None);
    story.topology(topology(
        &json!({OLD: entry("r1"), NEW: entry("r2")}),
        "machineDeployments",
        None,
    ));
    story.is_in_order();
}

#[test]
fn data_that_is_left_out_is_a_swap() {
    let (mut story, own) = of_one_part();
    story.topology(topology(&json!({}), "machineDeployments", Some(&own)));
    story.is_early("TKR_DATA of the control plane", "antrea.a.test.1.0.1");
}

#[test]
fn the_override_of_a_pool_is_a_swap_of_that_pool() {
    for (kind, part) in [
        ("machineDeployments", "MachineDeployment md"),
        ("machinePools", "MachinePool md"),
    ] {
        let (before, after) = (json!({OLD: entry("r1")}), json!({OLD: entry("r3")}));
        let mut story = swapped(kind, Some(&before));
        story.topology(topology(&before, kind, Some(&after)));
        story.is_early(&format!("TKR_DATA of {part}"), "antrea.a.test.1.0.1");
    }
}

#[test]
fn workers_that_still_run_a_version_are_rolled_by_its_data() {
    let before = json!({OLD: entry("r1")});
    let mut story = Story::created();
    story.topology(topology(&before, "machineDeployments", None));
    story.label("r2");
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.topology(topology(&json!({}), "machineDeployments", Some(&before)));
    story.is_early(
        "TKR_DATA of the control plane was changed for v1.35.4",
        "antrea.a.test.1.0.0",
    );
}
