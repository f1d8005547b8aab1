//! Entries of passed versions are removed when the version of a Cluster changes.

use super::*;

/// A whole entry.
fn entry(image: &str) -> Value {
    json!({"osImageRef": {"name": image}, "labels": {label::TKR: "old"}})
}

fn entries(variables: &Value) -> Vec<String> {
    let data = variables
        .as_array()
        .into_iter()
        .flatten()
        .find(|variable| variable["name"] == "TKR_DATA");
    let entries = data.and_then(|data| data["value"].as_object());
    entries
        .into_iter()
        .flatten()
        .map(|(version, _)| version.clone())
        .collect()
}

/// Returns the versions with entries: of the Cluster, of the control plane, and of the second pool.
fn versions(cluster: &Value) -> [Vec<String>; 3] {
    let topology = &cluster["spec"]["topology"];
    let pool = &topology["workers"]["machineDeployments"][1];
    [
        &topology["variables"],
        &topology["controlPlane"]["variables"]["overrides"],
        &pool["variables"]["overrides"],
    ]
    .map(entries)
}

/// A Cluster whose machines run v1.35.4, and whose lists have entries for two earlier versions and one ahead. The earliest only pins a
/// release.
fn world() -> (World, Value) {
    let mut world = World::new();
    let mut stored = world.made(
        "v1.35",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    let topology = &mut stored["spec"]["topology"];
    let common = topology["variables"][0].clone();
    topology["controlPlane"]["variables"] = json!({"overrides": [common]});
    for list in [
        "/variables",
        "/controlPlane/variables/overrides",
        "/workers/machineDeployments/1/variables/overrides",
    ] {
        let data = &mut topology.pointer_mut(list).unwrap()[0]["value"];
        data["v1.33.9"] = json!({"labels": {label::TKR: "old"}});
        data["v1.34.1"] = entry("old");
        data["v1.37.1"] = entry("ahead");
    }
    world.runs("v1.35.4");
    (world, stored)
}

fn bumped(stored: &Value) -> Value {
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36.3");
    bumped
}

#[test]
fn entries_of_a_passed_version_are_removed_from_all_parts() {
    let (world, stored) = world();
    let (after, warnings) = world.becomes(Some(&stored), &bumped(&stored));
    let left = ["v1.33.9", "v1.35.4", "v1.36.3", "v1.37.1"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(versions(&after), [left.clone(), left.clone(), left]);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(common(&after, "v1.36.3"), "v1.36.3---a.11-ubuntu");
    assert_eq!(override_of(&after, 1, "v1.36.3"), "v1.36.3---a.11-photon");
    assert_eq!(override_of(&after, 1, "v1.35.4"), "v1.35.4---a.10-photon");
    // The first pool has the entries of the Cluster, and its class another image of the next version.
    let mut moved = bumped(&stored);
    moved["spec"]["topology"]["workers"]["machineDeployments"][0]["class"] = json!("photon");
    let (after, _) = world.becomes(Some(&stored), &moved);
    assert_eq!(override_of(&after, 0, "v1.36.3"), "v1.36.3---a.11-photon");
    assert_eq!(override_of(&after, 0, "v1.34.1"), Value::Null);
}

/// Without the annotation, users write the entries, and the leader those of steps.
#[test]
fn a_cluster_without_a_request_loses_the_same_entries() {
    let (world, mut stored) = world();
    stored["metadata"]["annotations"] = json!({});
    let (after, warnings) = world.becomes(Some(&stored), &bumped(&stored));
    let left = ["v1.33.9", "v1.35.4", "v1.37.1"].map(str::to_owned).to_vec();
    assert_eq!(versions(&after), [left.clone(), left.clone(), left]);
    assert_eq!(warnings, Vec::<String>::new());
    stored["metadata"]["labels"] = json!({});
    assert_eq!(
        world.resolve(Some(&stored), &bumped(&stored)),
        Resolution::default(),
        "Sluice does not manage the entries of a Cluster without a release"
    );
}

type Change = fn(&mut World, &mut Value, &mut Value);

#[rstest]
#[case::the_version_stays(|_: &mut World, stored: &mut Value, new: &mut Value| {
    new["spec"]["topology"]["version"] = stored["spec"]["topology"]["version"].clone();
    new["spec"]["topology"]["controlPlane"]["replicas"] = json!(3);
})]
#[case::unknown_versions(|world: &mut World, _: &mut Value, _: &mut Value| world.running = None)]
#[case::no_control_plane(|_: &mut World, stored: &mut Value, _: &mut Value| {
    drop(stored["spec"].as_object_mut().unwrap().remove("controlPlaneRef"));
})]
#[case::earlier_target(|_: &mut World, stored: &mut Value, _: &mut Value| {
    stored["spec"]["topology"]["version"] = json!("v1.34.1");
})]
#[case::another_build_of_the_earlier_target(|_: &mut World, stored: &mut Value, _: &mut Value| {
    stored["spec"]["topology"]["version"] = json!("v1.34.1+a.2");
})]
#[case::earlier_target_without_a_patch(|_: &mut World, stored: &mut Value, _: &mut Value| {
    stored["spec"]["topology"]["version"] = json!("v1.35");
})]
#[case::new_target(|world: &mut World, stored: &mut Value, new: &mut Value| {
    stored["metadata"]["annotations"] = json!({});
    new["metadata"]["annotations"] = json!({});
    new["spec"]["topology"]["version"] = json!("v1.34.1");
    world.runs("v1.35.4");
})]
#[case::paused(|_: &mut World, _: &mut Value, new: &mut Value| new["spec"]["paused"] = json!(true))]
fn entries_stay(#[case] change: Change, #[values(true, false)] asks: bool) {
    let (mut world, mut stored) = world();
    if !asks {
        stored["metadata"]["annotations"] = json!({});
    }
    let mut new = bumped(&stored);
    change(&mut world, &mut stored, &mut new);
    let (after, _) = world.becomes(Some(&stored), &new);
    for versions in versions(&after) {
        assert!(versions.contains(&"v1.34.1".to_owned()), "{versions:?}");
    }
}

/// A restore, or a move of the Cluster, brings entries together with their machines.
#[test]
fn a_created_cluster_keeps_its_entries() {
    let (world, mut stored) = world();
    drop(stored["spec"].as_object_mut().unwrap().remove("controlPlaneRef"));
    let (after, _) = world.becomes(None, &stored);
    assert_eq!(versions(&after), versions(&stored));
}

/// A user may write an entry together with the version.
#[test]
fn an_entry_of_the_request_stays() {
    let (world, stored) = world();
    let mut new = bumped(&stored);
    new["spec"]["topology"]["variables"][0]["value"]["v1.34.9"] = entry("mine");
    let (after, _) = world.becomes(Some(&stored), &new);
    assert_eq!(common(&after, "v1.34.9"), "mine");
    assert_eq!(common(&after, "v1.34.1"), Value::Null);
}

/// An old manifest neither restores an unused entry nor is warned about it.
#[test]
fn an_unused_entry_is_not_restored() {
    let (world, stored) = world();
    let mut new = bumped(&stored);
    let data = &mut new["spec"]["topology"]["variables"][0]["value"];
    drop(data.as_object_mut().unwrap().remove("v1.34.1"));
    let (after, warnings) = world.becomes(Some(&stored), &new);
    assert_eq!(common(&after, "v1.34.1"), Value::Null);
    assert_eq!(warnings, Vec::<String>::new());
}

/// An empty override still hides the entries of the Cluster: without it the machines of the pool would be replaced.
#[test]
fn an_override_without_entries_stays() {
    let (world, mut stored) = world();
    stored["metadata"]["annotations"] = json!({});
    let override_ = json!({"overrides": [{"name": "TKR_DATA", "value": {"v1.34.1": entry("old")}}]});
    stored["spec"]["topology"]["workers"]["machineDeployments"][1]["variables"] = override_;
    let (after, _) = world.becomes(Some(&stored), &bumped(&stored));
    let pool = &after["spec"]["topology"]["workers"]["machineDeployments"][1];
    assert_eq!(
        pool["variables"],
        json!({"overrides": [{"name": "TKR_DATA", "value": {}}]})
    );
}

#[test]
fn versions_are_looked_up_only_for_entries_that_may_be_unused() {
    let (world, stored) = world();
    let resolution = |stored: &Value| {
        let asked = Asked {
            old: Some(cluster(stored)),
            new: cluster(&bumped(stored)),
        };
        let known = ResolverInputs {
            running: None,
            ..world.known()
        };
        resolve(&asked, known).map(|_| ())
    };
    assert_eq!(resolution(&stored), Err(Unknown::Unused));
    let plain = world.made("v1.35", &json!([{"name": "b", "class": "photon"}]));
    assert_eq!(resolution(&plain), Ok(()));
}
