//! The entry for the next version, and its release.

use sluice_crds::foreign::cluster::Topology;

use super::*;

const NEXT: &str = "v1.36.3";
const RELEASE: &str = "v1.36.3---a.11";

fn topology(object: &Value) -> Topology {
    cluster(object).spec.topology.unwrap()
}

/// Returns a Cluster with machines of v1.35.4: pools with the image of the control plane, and with another one.
fn made(world: &World) -> Value {
    world.made(
        "v1.35.4",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    )
}

/// Returns the Cluster with the missing entries of a release.
fn completed(world: &World, object: &Value, release: &str) -> Value {
    let class = world.class.as_ref().unwrap();
    let render = |object: &Value| {
        let cached = serde_json::to_value(cluster(object)).unwrap();
        let cluster = cluster(&cached);
        let machines = release_machines(&cluster, class, &world.releases, &world.images, release).unwrap();
        render_missing(&cluster, &machines.release, &machines.images)
    };
    let mut after = object.clone();
    for step in &render(object) {
        apply(&mut after, step);
    }
    assert!(!lacks_entry(&topology(&after), NEXT), "{after}");
    assert_eq!(render(&after), Vec::<Value>::new(), "nothing is missing any more");
    after
}

fn data(entries: &Value) -> Value {
    json!({"overrides": [{"name": "x", "value": 1}, {"name": "TKR_DATA", "value": entries}]})
}

#[test]
fn entries_are_those_of_a_request_for_the_version() {
    let world = World::new();
    let stored = made(&world);
    assert!(lacks_entry(&topology(&stored), NEXT));
    assert!(!lacks_entry(&topology(&stored), "v1.35.4"));
    let mut request = stored.clone();
    request["spec"]["topology"]["version"] = json!(NEXT);
    let (mut expected, _) = world.becomes(Some(&stored), &request);
    expected["spec"]["topology"]["version"] = json!("v1.35.4");
    assert_eq!(completed(&world, &stored, RELEASE)["spec"], expected["spec"]);
}

/// The cache knows how many variables of others there are.
#[rstest]
#[case::none(json!(null), 0)]
#[case::of_others(json!([{"name": "other", "value": 1}, {"name": "another", "value": 2}]), 2)]
fn a_cluster_without_the_variable_gets_it(#[case] variables: Value, #[case] others: usize) {
    let world = World::new();
    let mut stored = new("v1.35.4", &json!([{"name": "b", "class": "photon"}]));
    if variables.is_array() {
        stored["spec"]["topology"]["variables"] = variables.clone();
    }
    let after = completed(&world, &stored, RELEASE);
    assert_eq!(common(&after, NEXT), format!("{RELEASE}-ubuntu"));
    assert_eq!(override_of(&after, 0, NEXT), format!("{RELEASE}-photon"));
    let all = after["spec"]["topology"]["variables"].as_array().unwrap();
    assert_eq!(all.len(), others + 1, "{all:?}");
    assert_eq!(
        all[..others],
        variables.as_array().cloned().unwrap_or_default()[..]
    );
}

#[test]
fn an_entry_without_an_image_is_completed_and_others_stay() {
    let world = World::new();
    let mut stored = made(&world);
    let own = json!({"osImageRef": {"name": "own"}});
    let entries = &mut stored["spec"]["topology"]["variables"][0]["value"];
    entries[NEXT] = json!({"labels": {label::TKR: RELEASE}});
    entries["v1.37.1"] = own.clone();
    assert!(lacks_entry(&topology(&stored), NEXT));
    let after = completed(&world, &stored, RELEASE);
    assert_eq!(common(&after, NEXT), format!("{RELEASE}-ubuntu"));
    assert_eq!(after["spec"]["topology"]["variables"][0]["value"]["v1.37.1"], own);
    let before = &stored["spec"]["topology"]["variables"][0]["value"]["v1.35.4"];
    assert_eq!(
        after["spec"]["topology"]["variables"][0]["value"]["v1.35.4"],
        *before
    );
}

/// Own entries hide those of the Cluster, so each part needs one.
#[test]
fn an_entry_of_a_user_stays_and_parts_with_own_entries_get_theirs() {
    let world = World::new();
    let mut stored = made(&world);
    let own = json!({"osImageRef": {"name": "own"}, "labels": {label::TKR: RELEASE}});
    let other = json!({"v1.34.1": own});
    let topology = &mut stored["spec"]["topology"];
    topology["variables"][0]["value"][NEXT] = own.clone();
    topology["controlPlane"]["variables"] = data(&other);
    topology["workers"]["machineDeployments"][0]["variables"] = data(&json!({NEXT: own}));
    let after = completed(&world, &stored, RELEASE);
    assert_eq!(common(&after, NEXT), "own");
    assert_eq!(override_of(&after, 0, NEXT), "own");
    assert_eq!(override_of(&after, 1, NEXT), format!("{RELEASE}-photon"));
    let overrides = &after["spec"]["topology"]["controlPlane"]["variables"]["overrides"];
    assert_eq!(image_of(overrides, NEXT), format!("{RELEASE}-ubuntu"));
    assert_eq!(image_of(overrides, "v1.34.1"), "own");
}

#[rstest]
#[case::no_data(json!(null), None)]
#[case::entries(json!([{"name": "TKR_DATA", "value": {}}]), None)]
#[case::text(json!([{"name": "TKR_DATA", "value": "v1.36.3"}]), Some("spec.topology.variables[TKR_DATA]"))]
fn a_variable_that_takes_no_entry_is_named(#[case] variables: Value, #[case] field: Option<&str>) {
    let mut stored = new("v1.35.4", &json!([]));
    if variables.is_array() {
        stored["spec"]["topology"]["variables"] = variables;
    }
    assert_eq!(odd_entries(&topology(&stored)).as_deref(), field);
}

#[rstest]
#[case::requested(json!({annotation::RESOLVE_TKR: ""}), json!({}), true, true)]
#[case::requested_by_nobody(json!({}), json!({}), true, false)]
#[case::named_by_an_entry(json!({}), json!({"v1.34.1": {"labels": {label::TKR: "v1.34.1---a.1"}}}), true, true)]
#[case::entries_of_a_user(json!({}), json!({"v1.34.1": {"osImageRef": {}}}), true, false)]
#[case::not_declared(json!({annotation::RESOLVE_TKR: ""}), json!({}), false, false)]
fn entries_are_written_by_request_or_for_named_releases(
    #[case] annotations: Value,
    #[case] entries: Value,
    #[case] declares: bool,
    #[case] expected: bool,
) {
    let mut stored = new("v1.35.4", &json!([]));
    stored["metadata"]["annotations"] = annotations;
    stored["spec"]["topology"]["variables"] = json!([{"name": "TKR_DATA", "value": entries}]);
    let mut class = class(&json!({}));
    if !declares {
        class.spec.variables.clear();
    }
    assert_eq!(has_entries(&cluster(&stored), &class), expected);
}

#[test]
fn a_class_may_request_entries() {
    let mut stored = new("v1.35.4", &json!([]));
    stored["metadata"]["annotations"] = json!({});
    let class = class(&json!({annotation::RESOLVE_TKR: ""}));
    assert!(has_entries(&cluster(&stored), &class));
}

type Change = fn(&mut World);

/// The releases of the other version are newer.
#[rstest]
#[case::newest(|_: &mut World| {}, Ok("v1.35.4---a.10"))]
#[case::newest_is_deactivated(|world: &mut World| world.label("v1.35.4---a.10", label::DEACTIVATED), Ok("v1.35.4---a.9"))]
#[case::newest_has_no_image(
    |world: &mut World| drop(world.images.remove("v1.35.4---a.10-photon")),
    Ok("v1.35.4---a.9")
)]
#[case::none_is_usable(
    |world: &mut World| {
        world.label("v1.35.4---a.9", label::INCOMPATIBLE);
        drop(world.images.remove("v1.35.4---a.10-photon"));
    },
    Err("v1.35.4---a.10 has no OSImage for machineDeployments[b], v1.35.4---a.9 is incompatible")
)]
fn the_newest_usable_release_of_a_version(#[case] change: Change, #[case] expected: Result<&str, &str>) {
    let mut world = World::new();
    change(&mut world);
    let stored = cluster(&new("v1.36.3", &json!([{"name": "b", "class": "photon"}])));
    let class = world.class.as_ref().unwrap();
    let objects = (&world.releases, Some(&world.images));
    let found = newest_release(&stored, class, objects, "v1.35.4");
    assert_eq!(found.as_deref().map_err(String::as_str), expected);
}

/// Without entries, machines need no image of a release, unless a part selects one.
#[test]
fn images_that_were_not_listed_are_waited_for() {
    let world = World::new();
    let stored = cluster(&new("v1.36.3", &json!([])));
    let newest = |class: &ClusterClass| newest_release(&stored, class, (&world.releases, None), "v1.35.4");
    let mut class = class(&json!({}));
    assert_eq!(
        newest(&class).unwrap_err(),
        "Sluice has not listed all OSImages yet"
    );
    class.spec.variables.clear();
    class.spec.control_plane = None;
    assert_eq!(newest(&class).as_deref(), Ok("v1.35.4---a.10"));
}

/// A pin may name a release that is not usable for other Clusters, as at admission.
#[test]
fn a_pin_needs_images_only() {
    let mut world = World::new();
    world.label(RELEASE, label::DEACTIVATED);
    let stored = cluster(&made(&world));
    let class = world.class.as_ref().unwrap();
    let (releases, images) = (&world.releases, &world.images);
    assert!(release_machines(&stored, class, releases, images, RELEASE).is_err());
    let machines = pinned_machines(&stored, class, releases, images, RELEASE).unwrap();
    let images: Vec<String> = machines.images.iter().map(|image| image.name_any()).collect();
    let ubuntu = format!("{RELEASE}-ubuntu");
    assert_eq!(images, [ubuntu.clone(), ubuntu, format!("{RELEASE}-photon")]);
}

#[rstest]
#[case::all(json!([{"name": "a"}]), None)]
#[case::a_pool_with_the_same_label(
    json!([{"name": "a", "variables": data(&json!({NEXT: {"labels": {label::TKR: RELEASE}}}))}]),
    None
)]
#[case::a_pool_with_another_label(
    json!([{"name": "a", "variables": data(&json!({NEXT: {"labels": {label::TKR: "v1.36.3---a.2"}}}))}]),
    Some("spec.topology.workers.machineDeployments[a].variables.overrides[TKR_DATA]")
)]
#[case::a_pool_without_the_entry(
    json!([{"name": "a", "variables": data(&json!({}))}]),
    Some("spec.topology.workers.machineDeployments[a].variables.overrides[TKR_DATA]")
)]
fn nodes_of_all_parts_get_the_label(#[case] pools: Value, #[case] expected: Option<&str>) {
    let entry = json!({"labels": {label::TKR: RELEASE}});
    let variables = json!([{"name": "TKR_DATA", "value": {NEXT: entry}}]);
    let topology = json!({"version": NEXT, "variables": variables, "workers": {"machineDeployments": pools}});
    let topology: Topology = serde_json::from_str(&topology.to_string()).unwrap();
    assert_eq!(unlabelled_nodes(&topology, NEXT, RELEASE).as_deref(), expected);
    let of_cluster = Some("spec.topology.variables[TKR_DATA]");
    assert_eq!(
        unlabelled_nodes(&topology, "v1.37.1", RELEASE).as_deref(),
        of_cluster
    );
    assert_eq!(
        unlabelled_nodes(&topology, NEXT, "v1.36.3---a.3").as_deref(),
        of_cluster
    );
}
