//! A step is made without the proof of a package, because a user has asked for that.

use serde_json::{Value, json};

use super::story::{NEW, NEXT, OLD, Story};
use crate::observer::{Event, Rule};

const KEY: &str = "/mgmt/lifecycle.sluice.dev/upgradeoverrides/a/early";
const PENDING: &str = "AfterClusterUpgrade,AfterControlPlaneUpgrade";
const BEFORE_CONTROL_PLANE: &str = "BeforeControlPlaneUpgrade";
const BEFORE_WORKERS: &str = "BeforeWorkersUpgrade";
const AFTER_CONTROL_PLANE: &str = "AfterControlPlaneUpgrade";

/// Expires after an hour.
fn object(gate: &str) -> Value {
    json!({
        "metadata": {"uid": "o", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {
            "clusterName": "one",
            "clusterUID": "c",
            "target": {"kubernetesVersion": NEW, "release": "r2"},
            "gate": gate,
            "packages": ["antrea"],
            "reason": "not used here",
            "requestedBy": "alice",
            "expiresAt": "1970-01-01T01:00:00Z",
        },
    })
}

const HOUR: i64 = 60 * 60 * 1000;

/// The record has the gate open by the override with this UID.
fn record(story: &mut Story, hook: &str, uid: &str) {
    let gate =
        json!({"hook": hook, "version": NEW, "open": true, "overriddenBy": {"name": "early", "uid": uid}});
    story.bootstrap_with(json!({
        "metadata": {"generation": 1},
        "spec": {"cni": {"refName": "antrea.a.test.2.0.0"}},
        "status": {"upgrade": {"observedBootstrapGeneration": 1, "hop": NEW, "gates": [gate]}},
    }));
}

/// The target is [`NEW`], whose package is not proven.
fn bumped() -> Story {
    let mut story = Story::created();
    story.aim(NEW, "r2", (2, 1));
    story
}

/// The same with an override that has opened the gate of the control plane.
fn opened(object: Value) -> Story {
    let mut story = bumped();
    story.write(KEY, object);
    record(&mut story, BEFORE_CONTROL_PLANE, "o");
    story
}

/// The control plane has taken the version by an override, and workers wait. They get another override.
fn taken(object: Value) -> Story {
    let mut story = opened(self::object("ControlPlane"));
    story.pool("machinepools", OLD);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.is_in_order();
    let mut object = object;
    object["metadata"]["uid"] = json!("w");
    story.write("/mgmt/lifecycle.sluice.dev/upgradeoverrides/a/workers", object);
    record(&mut story, BEFORE_WORKERS, "w");
    story
}

fn overridden(story: &Story) -> Vec<(&str, &str, &str)> {
    let events = story.ledger.milestones().iter().map(|milestone| &milestone.event);
    events
        .filter_map(|event| match event {
            Event::Overridden { name, gate, version } => Some((name.as_str(), *gate, version.as_str())),
            _ => None,
        })
        .collect()
}

#[track_caller]
fn is_invalid(story: &Story, because: &str) {
    let violations = story.ledger.violations();
    assert_eq!(violations.len(), 1, "{violations:#?}");
    assert_eq!(violations[0].rule, Rule::InvalidOverride);
    assert!(violations[0].write.contains(because), "{violations:#?}");
    assert!(overridden(story).is_empty());
}

#[test]
fn the_control_plane_goes_without_the_proof_of_a_package_that_is_named() {
    let mut story = opened(object("ControlPlane"));
    story.control_plane(NEW, OLD);
    story.is_in_order();
    assert_eq!(overridden(&story), [("early", "ControlPlane", NEW)]);
}

#[test]
fn a_record_alone_excuses_nothing() {
    let mut story = bumped();
    record(&mut story, BEFORE_CONTROL_PLANE, "o");
    story.control_plane(NEW, OLD);
    is_invalid(&story, "by an override");
}

#[test]
fn an_override_that_no_record_names_excuses_nothing() {
    let mut story = bumped();
    story.write(KEY, object("ControlPlane"));
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "ReleasedBeforePackages");

    let mut story = bumped();
    story.write(KEY, object("ControlPlane"));
    record(&mut story, BEFORE_CONTROL_PLANE, "another");
    story.control_plane(NEW, OLD);
    is_invalid(&story, "no record names it");
}

#[test]
fn an_override_for_something_else_excuses_nothing() {
    let table = [
        ("/spec/clusterUID", json!("another"), "it is for"),
        ("/spec/clusterUID", Value::Null, "it is for"),
        ("/spec/clusterName", json!("two"), "by an override ()"),
        ("/spec/target/kubernetesVersion", json!(NEXT), "it is for"),
        ("/spec/target/release", json!("r3"), "it is for"),
        ("/spec/gate", json!("Workers"), "it is for"),
        ("/spec/packages", json!(["metrics"]), "it does not pass antrea"),
        (
            "/spec/packages",
            json!(["antrea.a.test"]),
            "it does not pass antrea",
        ),
        ("/spec/requestedBy", Value::Null, "no user"),
        ("/spec/expiresAt", Value::Null, "more than seven days"),
        (
            "/spec/expiresAt",
            json!("1970-01-08T00:00:01Z"),
            "more than seven days",
        ),
        ("/spec/expiresAt", json!("1969-12-31T23:59:50Z"), "expired"),
    ];
    for (pointer, value, because) in table {
        let mut object = object("ControlPlane");
        *object.pointer_mut(pointer).unwrap() = value;
        let mut story = opened(object);
        story.control_plane(NEW, OLD);
        is_invalid(&story, because);
    }
}

#[test]
fn every_package_is_passed_by_a_star() {
    let mut object = object("ControlPlane");
    object["spec"]["packages"] = json!(["*"]);
    let mut story = opened(object);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_star_passes_proofs_only() {
    let mut all = object("Workers");
    all["spec"]["packages"] = json!(["*"]);
    all["metadata"]["uid"] = json!("w");
    let mut story = opened(object("ControlPlane"));
    story.control_plane(NEW, OLD);
    story.write("/mgmt/lifecycle.sluice.dev/upgradeoverrides/a/workers", all);
    record(&mut story, BEFORE_WORKERS, "w");
    story.workers(NEW);
    let violations = story.ledger.violations();
    assert_eq!(violations.len(), 1, "{violations:#?}");
    assert!(
        violations[0].write.contains("a control plane that runs"),
        "{violations:#?}"
    );
}

#[test]
fn an_override_from_before_the_upgrade_excuses_nothing() {
    let mut story = Story::created();
    story.write(KEY, object("ControlPlane"));
    story.aim(NEW, "r2", (2, 1));
    record(&mut story, BEFORE_CONTROL_PLANE, "o");
    story.control_plane(NEW, OLD);
    is_invalid(&story, "the upgrade from");
}

#[test]
fn so_does_one_from_before_a_cancellation() {
    let mut story = bumped();
    story.write(KEY, object("ControlPlane"));
    story.aim(OLD, "r1", (3, 3));
    story.aim(NEW, "r2", (4, 3));
    record(&mut story, BEFORE_CONTROL_PLANE, "o");
    story.control_plane(NEW, OLD);
    is_invalid(&story, "the upgrade from");
}

#[test]
fn an_edit_changes_no_override() {
    let mut other = object("ControlPlane");
    other["spec"]["packages"] = json!(["metrics"]);
    let mut story = opened(other);
    story.write(KEY, object("ControlPlane"));
    story.control_plane(NEW, OLD);
    is_invalid(&story, "it does not pass antrea");
}

/// An answer from before may be on its way.
#[test]
fn an_override_ends_when_it_is_deleted_or_has_expired() {
    let after = |milliseconds, delete: bool| {
        let mut story = opened(object("ControlPlane"));
        if delete {
            story.delete(KEY);
        }
        story.milliseconds_pass(milliseconds);
        story.control_plane(NEW, OLD);
        story
    };
    after(9_900, true).is_in_order();
    is_invalid(&after(10_000, true), "deleted");
    after(HOUR + 9_900, false).is_in_order();
    is_invalid(&after(HOUR + 10_000, false), "expired");
}

#[test]
fn one_of_the_same_name_is_another_override() {
    let mut story = opened(object("ControlPlane"));
    story.delete(KEY);
    let mut again = object("ControlPlane");
    again["metadata"]["uid"] = json!("p");
    story.write(KEY, again);
    story.milliseconds_pass(10_000);
    story.control_plane(NEW, OLD);
    is_invalid(&story, "early: no record names it");
}

#[test]
fn workers_need_an_override_of_their_own() {
    let mut story = taken(object("Workers"));
    story.workers(NEW);
    story.is_in_order();
    let both = [("early", "ControlPlane", NEW), ("workers", "Workers", NEW)];
    assert_eq!(overridden(&story), both);

    let mut story = taken(object("ControlPlane"));
    story.workers(NEW);
    assert_eq!(story.ledger.violations()[0].rule, Rule::InvalidOverride);
}

#[test]
fn the_other_pools_follow_the_first_one() {
    let mut story = taken(object("Workers"));
    story.workers(NEW);
    story.milliseconds_pass(2 * HOUR);
    story.pool("machinepools", NEW);
    story.is_in_order();

    let mut story = taken(object("Workers"));
    story.milliseconds_pass(2 * HOUR);
    story.pool("machinepools", NEW);
    assert_eq!(story.ledger.violations()[0].rule, Rule::InvalidOverride);
}

#[test]
fn the_hook_after_the_control_plane_is_passed_by_the_override_of_workers() {
    let mut story = taken(object("Workers"));
    record(&mut story, AFTER_CONTROL_PLANE, "w");
    story.pending("AfterClusterUpgrade");
    story.is_in_order();

    let mut story = taken(object("ControlPlane"));
    story.pending("AfterClusterUpgrade");
    let violations = story.ledger.violations();
    assert_eq!(violations.len(), 1, "{violations:#?}");
    assert!(
        violations[0]
            .write
            .contains("AfterControlPlaneUpgrade was passed"),
        "{violations:#?}"
    );
}

#[test]
fn machines_of_another_release_are_made_by_an_override_for_it() {
    let entry = |release: &str| json!({OLD: {"labels": {"run.tanzu.vmware.com/tkr": release}}});
    let topology = |release: &str| json!({"variables": [{"name": "TKR_DATA", "value": entry(release)}]});
    let swapped = |release: &str| {
        let mut story = Story::created();
        story.release("r3", OLD, "1.0.1");
        story.topology(topology("r1"));
        story.label("r3");
        let mut object = object("Machines");
        object["spec"]["target"] = json!({"kubernetesVersion": OLD, "release": release});
        story.write(KEY, object);
        let swap =
            json!({"version": OLD, "to": "r3", "open": true, "overriddenBy": {"name": "early", "uid": "o"}});
        story.bootstrap_with(json!({
            "spec": {"cni": {"refName": "antrea.a.test.1.0.1"}},
            "status": {"upgrade": {"swap": swap}},
        }));
        story.topology(topology("r3"));
        story
    };
    swapped("r3").is_in_order();
    is_invalid(&swapped("r1"), "it is for");
}
