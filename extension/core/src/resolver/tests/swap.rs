//! The patch that replaces the machines of a Cluster.

use super::*;

const ENTRY: &str = "/spec/topology/variables/0/value/v1.35.4";

/// Operations, and the objects that they are rendered from.
#[derive(Debug)]
struct Rendered {
    patch: Vec<Value>,
    release: Arc<TanzuKubernetesRelease>,
    images: Vec<Arc<OSImage>>,
}

fn render(world: &World, object: &Value, to: &str) -> Result<Rendered, String> {
    let class = world.class.as_ref().unwrap();
    let cluster = cluster(object);
    let machines = release_machines(&cluster, class, &world.releases, &world.images, to)?;
    Ok(Rendered {
        patch: render_swap(&cluster, &machines.release, &machines.images),
        images: machines.distinct_images().cloned().collect(),
        release: machines.release,
    })
}

/// Returns the Cluster after its swap to `v1.35.4---a.10`.
fn swapped(world: &World, object: &Value) -> Value {
    let mut after = object.clone();
    for step in &render(world, object, "v1.35.4---a.10").unwrap().patch {
        apply(&mut after, step);
    }
    let again = render(world, &after, "v1.35.4---a.10").unwrap();
    assert_eq!(again.patch, Vec::<Value>::new(), "nothing differs any more");
    after
}

/// Returns a Cluster with machines of `v1.35.4---a.9`.
fn made(world: &World, pools: &Value) -> Value {
    world.made("v1.35.4+a.9", pools)
}

#[test]
fn all_entries_of_the_version_are_replaced() {
    let world = World::new();
    let pools = json!([
        {"name": "a", "class": "default"}, {"name": "b", "class": "photon"}, {"name": "c", "class": "photon"},
    ]);
    let stored = made(&world, &pools);
    assert_eq!(
        swapped(&world, &stored)["spec"],
        world.made("v1.35.4+a.10", &pools)["spec"]
    );

    let rendered = render(&world, &stored, "v1.35.4---a.10").unwrap();
    let images: Vec<_> = rendered.images.iter().map(|image| image.name_any()).collect();
    assert_eq!(images, ["v1.35.4---a.10-ubuntu", "v1.35.4---a.10-photon"]);
    assert_eq!(rendered.release.name_any(), "v1.35.4---a.10");
    let lists = [
        "/spec/topology/variables/0".to_owned(),
        "/spec/topology/workers/machineDeployments/1/variables/overrides/0".to_owned(),
        "/spec/topology/workers/machineDeployments/2/variables/overrides/0".to_owned(),
    ];
    let paths = lists
        .iter()
        .flat_map(|list| [format!("{list}/name"), format!("{list}/value/v1.35.4")]);
    let paths: Vec<_> = paths.collect();
    let rendered: Vec<_> = rendered
        .patch
        .iter()
        .map(|step| step["path"].as_str().unwrap())
        .collect();
    assert_eq!(rendered, paths);
}

/// The new entry is a new one throughout, whatever a user has written into the old one.
#[test]
fn nothing_but_the_entry_changes() {
    let world = World::new();
    let mut stored = made(&world, &json!([]));
    let variables = &mut stored["spec"]["topology"]["variables"];
    variables[0]["value"]["v1.34.1"] = json!({"osImageRef": {"name": "old"}, "number": 1.50});
    variables[0]["value"]["v1.36.3"] = json!({"labels": {label::TKR: "v1.36.3---a.11"}});
    variables[0]["value"]["v1.35.4"]["odd"] = json!(true);
    let known = variables.as_array_mut().unwrap();
    known.insert(0, json!({"name": "other", "value": [1]}));
    known.push(json!({"name": "imageRepository", "value": {"host": "own.test"}}));
    let after = swapped(&world, &stored);
    let entry = &after["spec"]["topology"]["variables"][1]["value"]["v1.35.4"];
    assert_eq!(entry["osImageRef"]["name"], "v1.35.4---a.10-ubuntu");
    assert_eq!(entry["kubernetesSpec"]["imageRepository"], "own.test");
    assert_eq!(entry.get("odd"), None);
    stored["spec"]["topology"]["variables"][1]["value"]["v1.35.4"] = entry.clone();
    assert_eq!(after, stored);
}

fn data(entries: &Value) -> Value {
    json!({"overrides": [{"name": "x", "value": 1}, {"name": "TKR_DATA", "value": entries}]})
}

#[test]
fn overrides_stay_and_have_the_new_entry() {
    let world = World::new();
    let mut stored = made(
        &world,
        &json!([
            {"name": "same", "class": "default"}, {"name": "another-version", "class": "default"},
            {"name": "was-the-same", "class": "photon"},
        ]),
    );
    let odd = json!({"osImageRef": {"name": "odd"}});
    stored["spec"]["topology"]["variables"][0]["value"]["v1.34.1"] = odd.clone();
    let pools = &mut stored["spec"]["topology"]["workers"]["machineDeployments"];
    pools[0]["variables"] = data(&json!({"v1.34.1": odd, "v1.35.4": odd}));
    pools[1]["variables"] = data(&json!({"v1.34.1": odd}));
    drop(pools[2].as_object_mut().unwrap().remove("variables"));
    stored["spec"]["topology"]["controlPlane"]["variables"] = data(&json!({"v1.34.1": odd, "v1.35.4": odd}));

    let after = swapped(&world, &stored);
    let entry = after.pointer(ENTRY).unwrap();
    assert_eq!(entry["osImageRef"]["name"], "v1.35.4---a.10-ubuntu");
    let topology = &after["spec"]["topology"];
    let expected = data(&json!({"v1.34.1": odd, "v1.35.4": entry}));
    assert_eq!(topology["controlPlane"]["variables"], expected);
    let pools = &topology["workers"]["machineDeployments"];
    assert_eq!(pools[0]["variables"], expected, "it is not removed");
    assert_eq!(
        pools[1]["variables"], expected,
        "it hides the entries of the Cluster"
    );
    assert_eq!(override_of(&after, 2, "v1.35.4"), "v1.35.4---a.10-photon");
    assert_eq!(override_of(&after, 2, "v1.34.1"), "odd");
}

/// A control plane whose own entries have other versions was made without one.
#[test]
fn an_override_of_the_control_plane_gets_no_new_version() {
    let world = World::new();
    let mut stored = made(&world, &json!([]));
    let own = data(&json!({"v1.34.1": {"osImageRef": {"name": "odd"}}}));
    stored["spec"]["topology"]["controlPlane"]["variables"] = own.clone();
    let after = swapped(&world, &stored);
    assert_eq!(after["spec"]["topology"]["controlPlane"]["variables"], own);
}

/// A cached Cluster keeps the indexes of its variables, although those that Sluice does not read are missing.
#[test]
fn each_variable_is_tested_for_its_name() {
    let world = World::new();
    let mut stored = made(&world, &json!([]));
    let variables = stored["spec"]["topology"]["variables"].as_array_mut().unwrap();
    variables.insert(0, json!({"name": "other", "value": {}}));
    let cached = serde_json::to_value(cluster(&stored)).unwrap();
    for object in [stored, cached] {
        let patch = render(&world, &object, "v1.35.4---a.10").unwrap().patch;
        let name = "/spec/topology/variables/1/name";
        assert_eq!(patch[0], json!({"op": "test", "path": name, "value": "TKR_DATA"}));
        assert_eq!(patch[1]["path"], "/spec/topology/variables/1/value/v1.35.4");
    }
}

/// The cache has no variable of the pool, but knows how many there are.
#[test]
fn other_overrides_of_a_pool_stay() {
    let world = World::new();
    let mut stored = made(&world, &json!([{"name": "md", "class": "photon"}]));
    let pool = "/spec/topology/workers/machineDeployments/0/variables";
    *stored.pointer_mut(pool).unwrap() = json!({"overrides": [{"name": "other", "value": 1}]});
    let cached = serde_json::to_value(cluster(&stored)).unwrap();
    for step in &render(&world, &cached, "v1.35.4---a.10").unwrap().patch {
        apply(&mut stored, step);
    }
    let overrides = stored.pointer(pool).unwrap()["overrides"].clone();
    assert_eq!(overrides[0], json!({"name": "other", "value": 1}));
    assert_eq!(overrides[1]["name"], "TKR_DATA");
}

type Change = fn(&mut World, &mut Value);

#[rstest]
#[case::gone(|world: &mut World, _: &mut Value| drop(world.releases.remove("v1.35.4---a.10")), "does not exist")]
#[case::deactivated(|world: &mut World, _: &mut Value| world.label("v1.35.4---a.10", label::DEACTIVATED), "is deactivated")]
#[case::incompatible(|world: &mut World, _: &mut Value| world.label("v1.35.4---a.10", label::INCOMPATIBLE), "is incompatible")]
#[case::unselected(
    |_: &mut World, cluster: &mut Value| cluster["metadata"]["annotations"][annotation::RESOLVE_TKR] = json!("!v1.35.4---a.10"),
    "is not selected by \"!v1.35.4---a.10\""
)]
#[case::unselected_by_the_class(
    |world: &mut World, cluster: &mut Value| {
        cluster["metadata"]["annotations"] = json!({});
        world.class = Some(class(&json!({annotation::RESOLVE_TKR: "none"})));
    },
    "is not selected by \"none\""
)]
#[case::no_image(
    |world: &mut World, _: &mut Value| drop(world.images.remove("v1.35.4---a.10-photon")),
    "has no OSImage for machineDeployments[md]"
)]
#[case::two_images(
    |_: &mut World, cluster: &mut Value| {
        let all = json!({"annotations": {annotation::RESOLVE_OS_IMAGE: ""}});
        cluster["spec"]["topology"]["workers"]["machineDeployments"][0]["metadata"] = all;
    },
    "has 2 OSImages for machineDeployments[md] (v1.35.4---a.10-ubuntu, v1.35.4---a.10-photon)"
)]
fn a_release_that_machines_cannot_be_made_of_is_named(#[case] change: Change, #[case] why: &str) {
    let mut world = World::new();
    let mut stored = made(&world, &json!([{"name": "md", "class": "photon"}]));
    change(&mut world, &mut stored);
    let refusal = render(&world, &stored, "v1.35.4---a.10").unwrap_err();
    assert_eq!(refusal, format!("TanzuKubernetesRelease v1.35.4---a.10 {why}"));
}

#[rstest]
#[case::no_topology(json!({"topology": null}), "the Cluster has no topology")]
#[case::class_of_a_pool(
    json!({"topology": {"workers": {"machineDeployments": [{"name": "md", "class": "none"}]}}}),
    "spec.topology.workers.machineDeployments[md].class: Invalid value: \"none\": ClusterClass class has no such class of workers; it has \
     default, photon"
)]
fn a_cluster_that_cannot_be_swapped_is_named(#[case] change: Value, #[case] says: &str) {
    let world = World::new();
    let mut stored = made(&world, &json!([]));
    merge(&mut stored["spec"], &change);
    assert_eq!(render(&world, &stored, "v1.35.4---a.10").unwrap_err(), says);
}

/// No request is asked for: users may write entries that name a release.
#[test]
fn a_cluster_without_a_request_is_swapped() {
    let world = World::new();
    let mut stored = made(&world, &json!([]));
    stored["metadata"]["annotations"] = json!({});
    assert_eq!(
        common(&swapped(&world, &stored), "v1.35.4"),
        "v1.35.4---a.10-ubuntu"
    );
}
