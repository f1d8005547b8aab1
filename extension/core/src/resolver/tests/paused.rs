//! Edits of entries on a paused Cluster.

use super::*;

/// A paused Cluster whose machines run v1.35.4, with an entry for v1.36.3.
fn world() -> (World, Value) {
    let mut world = World::new();
    let mut stored = world.made(
        "v1.35",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    stored["spec"]["paused"] = json!(true);
    stored["spec"]["topology"]["variables"][0]["value"]["v1.36.3"] = json!({"osImageRef": {"name": "next"}});
    world.runs("v1.35.4");
    (world, stored)
}

fn annotated(cluster: &mut Value, version: &str) {
    cluster["metadata"]["annotations"][annotation::EDIT_TKR_DATA] = json!(version);
}

type Edit = fn(&mut Value);

const IMAGE: Edit =
    |topology| topology["variables"][0]["value"]["v1.35.4"]["osImageRef"]["name"] = json!("other");

fn other() -> Value {
    json!({"overrides": [{"name": "TKR_DATA", "value": {"v1.35.4": {"osImageRef": {"name": "other"}}}}]})
}

#[rstest]
#[case::nothing(|_: &mut Value| {}, "")]
#[case::replicas(|topology: &mut Value| topology["controlPlane"]["replicas"] = json!(3), "")]
#[case::image(IMAGE, "spec.topology.variables[TKR_DATA]")]
#[case::removal_of_the_entry(
    |topology: &mut Value| drop(topology["variables"][0]["value"].as_object_mut().unwrap().remove("v1.35.4")),
    "spec.topology.variables[TKR_DATA]"
)]
#[case::removal_of_the_variable(
    |topology: &mut Value| topology["variables"] = json!([]),
    "spec.topology.variables[TKR_DATA]"
)]
#[case::another_shape(
    |topology: &mut Value| topology["variables"][0]["value"] = json!([]),
    "spec.topology.variables[TKR_DATA]"
)]
#[case::override_of_the_control_plane(
    |topology: &mut Value| topology["controlPlane"]["variables"] = other(),
    "spec.topology.controlPlane.variables.overrides[TKR_DATA]"
)]
#[case::new_override_of_a_pool(
    |topology: &mut Value| topology["workers"]["machineDeployments"][0]["variables"] = other(),
    "spec.topology.workers.machineDeployments[a].variables.overrides[TKR_DATA]"
)]
#[case::override_of_a_pool(
    |topology: &mut Value| topology["workers"]["machineDeployments"][1]["variables"] = other(),
    "spec.topology.workers.machineDeployments[b].variables.overrides[TKR_DATA]"
)]
#[case::removal_of_an_override(
    |topology: &mut Value| drop(topology["workers"]["machineDeployments"][1].as_object_mut().unwrap().remove("variables")),
    "spec.topology.workers.machineDeployments[b].variables.overrides[TKR_DATA]"
)]
#[case::new_pool(
    |topology: &mut Value| topology["workers"]["machineDeployments"].as_array_mut().unwrap().push(
        json!({"name": "c", "class": "default", "variables": other()})
    ),
    ""
)]
#[case::removed_pool(
    |topology: &mut Value| drop(topology["workers"]["machineDeployments"].as_array_mut().unwrap().remove(1)),
    ""
)]
#[case::version_that_no_machine_runs(
    |topology: &mut Value| topology["variables"][0]["value"]["v1.36.3"]["osImageRef"]["name"] = json!("other"),
    ""
)]
fn an_entry_of_machines_is_edited_only_with_the_annotation(#[case] edit: Edit, #[case] field: &str) {
    let (mut world, stored) = world();
    let mut edited = stored.clone();
    edit(&mut edited["spec"]["topology"]);
    // Its pause may begin with the edit.
    let mut running = stored.clone();
    running["spec"]["paused"] = json!(false);
    for before in [&stored, &running] {
        let refusal = world.refusal(Some(before), &edited);
        assert_eq!(refusal.is_empty(), field.is_empty(), "{refusal}");
        let says = [
            "Invalid value: \"v1.35.4\": machines may run v1.35.4",
            "set annotation lifecycle.sluice.dev/edit-tkr-data",
        ];
        let is_named = refusal.starts_with(field) && says.iter().all(|says| refusal.contains(says));
        assert!(is_named || field.is_empty(), "{refusal}");
    }
    let mut annotated = edited.clone();
    self::annotated(&mut annotated, "v1.35.4");
    assert_eq!(world.resolve(Some(&stored), &annotated), Resolution::default());
    assert_eq!(world.resolve(None, &edited), Resolution::default(), "it is moved");

    // The versions of machines are looked up only for an edit.
    let asked = Asked {
        old: Some(cluster(&stored)),
        new: cluster(&edited),
    };
    let not_looked_up = ResolverInputs {
        running: None,
        ..world.known()
    };
    let is_looked_up = resolve(&asked, not_looked_up) == Err(Unknown::Running);
    assert!(is_looked_up || field.is_empty());
    let mut without_machines = stored.clone();
    drop(
        without_machines["spec"]
            .as_object_mut()
            .unwrap()
            .remove("controlPlaneRef"),
    );
    assert_eq!(
        world.resolve(Some(&without_machines), &edited),
        Resolution::default()
    );
    world.runs("v1.34.1");
    assert_eq!(world.resolve(Some(&stored), &edited), Resolution::default());
}

#[test]
fn versions_are_looked_up_only_for_an_edit() {
    let (world, stored) = world();
    let mut paused_twice = stored.clone();
    paused_twice["metadata"]["annotations"][annotation::PAUSED] = json!("");
    let asked = Asked {
        old: Some(cluster(&stored)),
        new: cluster(&paused_twice),
    };
    let not_looked_up = ResolverInputs {
        running: None,
        ..world.known()
    };
    assert_eq!(resolve(&asked, not_looked_up), Ok(Resolution::default()));
}

/// An annotation that stays, or that a manifest sets again, permits no later edit.
#[test]
fn the_annotation_permits_one_edit_of_one_version() {
    let (mut world, mut stored) = world();
    let mut edited = stored.clone();
    IMAGE(&mut edited["spec"]["topology"]);
    annotated(&mut edited, "v1.36.3");
    assert!(
        world
            .refusal(Some(&stored), &edited)
            .contains("machines may run v1.35.4"),
        "it names another version"
    );
    annotated(&mut edited, "v1.35.4");
    annotated(&mut stored, "v1.35.4");
    assert!(
        world
            .refusal(Some(&stored), &edited)
            .contains("if the annotation has that value already, remove it first"),
        "it was set before"
    );
    annotated(&mut stored, "v1.36.3");
    assert_eq!(world.refusal(Some(&stored), &edited), "");
    // Any version may run.
    world.running = None;
    edited["spec"]["topology"]["variables"] = json!([]);
    let refusal = world.refusal(Some(&stored), &edited);
    assert!(refusal.contains("machines may run v1.36.3"), "{refusal}");
}

/// Once the pause ends, the edited entry is the one of the machines.
#[test]
fn the_edited_entry_stays_when_the_pause_ends() {
    let (world, stored) = world();
    let mut edited = stored;
    IMAGE(&mut edited["spec"]["topology"]);
    let mut unpaused = edited.clone();
    unpaused["spec"]["paused"] = json!(false);
    assert_eq!(world.becomes(Some(&edited), &unpaused), (unpaused, Vec::new()));
}

#[test]
fn entries_of_a_cluster_that_never_had_a_release_belong_to_its_user() {
    let (world, mut stored) = world();
    stored["metadata"] = json!({"name": "one", "namespace": "ns"});
    let mut edited = stored.clone();
    IMAGE(&mut edited["spec"]["topology"]);
    assert_eq!(world.resolve(Some(&stored), &edited), Resolution::default());
}
