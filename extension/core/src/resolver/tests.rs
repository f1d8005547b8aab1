mod hop;
mod paused;
mod refused;
mod relabelled;
mod reverted;
mod running;
mod swap;
mod unused;

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    labels::{annotation, label},
    run::{OSImage, TanzuKubernetesRelease},
};

use super::*;
use crate::{
    cache::stores::tests::{Given, undecodable},
    upgrade::hop::ControlPlaneFacts,
};

/// Releases and images of one test.
#[derive(Default)]
struct World {
    releases: Releases,
    images: Images,
    class: Option<ClusterClass>,
    /// The versions that machines run; `None` if unknown.
    running: Option<Running>,
    /// The release that a ClusterBootstrap pins.
    pinned: Option<&'static str>,
    /// The snapshot of a ClusterBootstrap.
    rollback_to: Option<&'static str>,
}

impl World {
    /// Two releases of v1.35.4 and one of v1.36.3, each with an image of ubuntu and one of photon.
    fn new() -> Self {
        let mut world = Self {
            class: Some(class(&json!({}))),
            ..Self::default()
        };
        for (kubernetes, build) in [("v1.35.4", 9), ("v1.35.4", 10), ("v1.36.3", 11)] {
            world.release(kubernetes, build, &["ubuntu", "photon"]);
        }
        world
    }

    fn release(&mut self, kubernetes: &str, build: u32, distributions: &[&str]) {
        let name = format!("{kubernetes}---a.{build}");
        let images = distributions
            .iter()
            .map(|distribution| format!("{name}-{distribution}"));
        let images: Vec<String> = images.collect();
        for (image, distribution) in images.iter().zip(distributions) {
            let object: OSImage = serde_json::from_value(json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {"name": image},
                "spec": {
                    "kubernetesVersion": kubernetes,
                    "os": {"type": "linux", "name": distribution, "version": "5", "arch": "amd64"},
                    "image": {"type": "ova", "ref": {"name": image}},
                },
            }))
            .unwrap();
            self.images.insert(image.clone(), Arc::new(object));
        }
        let named: Vec<Value> = images.iter().map(|name| json!({"name": name})).collect();
        let object: TanzuKubernetesRelease = serde_json::from_value(json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {"name": name},
            "spec": {
                "version": format!("{kubernetes}+a.{build}"),
                "kubernetes": {"version": kubernetes, "imageRepository": "r.test", "etcd": {"imageTag": "v3"}},
                "osImages": named, "bootstrapPackages": [],
            },
        }))
        .unwrap();
        self.releases.insert(name, Arc::new(object));
    }

    fn label(&mut self, release: &str, key: &str) {
        let release = Arc::make_mut(self.releases.get_mut(release).unwrap());
        release.labels_mut().insert(key.to_owned(), String::new());
    }

    fn known(&self) -> ResolverInputs<'_> {
        ResolverInputs {
            class: Ok(self.class.as_ref()),
            releases: &self.releases,
            images: Some(&self.images),
            running: Some(self.running.as_ref().unwrap_or(&Running::UNKNOWN)),
            pinned: self.pinned,
            rollback_to: self.rollback_to,
        }
    }

    /// Sets the only version that machines run.
    fn runs(&mut self, version: &str) {
        let control_plane = ControlPlaneFacts {
            spec_version: Some(version.to_owned()),
            status_version: Some(version.to_owned()),
        };
        self.running = Some(Running::of("ns", "one", Some(control_plane), &Given::default()));
    }

    /// A resolved Cluster with machines.
    fn made(&self, version: &str, pools: &Value) -> Value {
        let (mut stored, _) = self.becomes(None, &new(version, pools));
        stored["spec"]["controlPlaneRef"] = json!({"kind": "X", "name": "one"});
        stored
    }

    fn resolve(&self, old: Option<&Value>, new: &Value) -> Resolution {
        let asked = Asked {
            old: old.map(cluster),
            new: cluster(new),
        };
        resolve(&asked, self.known()).unwrap()
    }

    /// Returns the resolved Cluster and the warnings.
    fn becomes(&self, old: Option<&Value>, new: &Value) -> (Value, Vec<String>) {
        let resolution = self.resolve(old, new);
        assert_eq!(resolution.faults, Vec::new());
        let mut object = new.clone();
        for step in &resolution.patch {
            apply(&mut object, step);
        }
        (object, resolution.warnings)
    }

    fn refusal(&self, old: Option<&Value>, new: &Value) -> String {
        let faults = self.resolve(old, new).faults;
        faults
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// Applies one operation of RFC 6902.
fn apply(object: &mut Value, step: &Value) {
    let path: Vec<String> = step["path"]
        .as_str()
        .unwrap()
        .split('/')
        .skip(1)
        .map(str::to_owned)
        .collect();
    let (leaf, parents) = path.split_last().unwrap();
    let mut at = object;
    for part in parents {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => at
                .get_mut(part.as_str())
                .unwrap_or_else(|| panic!("no {part} for {step}")),
        };
    }
    let key = leaf.replace("~1", "/");
    match (step["op"].as_str().unwrap(), at) {
        ("test", Value::Object(map)) => assert_eq!(map.get(&key), step.get("value"), "{step}"),
        ("remove", Value::Object(map)) => assert!(map.remove(&key).is_some(), "{step}"),
        ("remove", Value::Array(list)) => drop(list.remove(key.parse().unwrap())),
        ("add", Value::Array(list)) if key == "-" => list.push(step["value"].clone()),
        ("replace", Value::Object(map)) => {
            assert!(map.insert(key, step["value"].clone()).is_some(), "{step}");
        }
        ("add", Value::Object(map)) => drop(map.insert(key, step["value"].clone())),
        other => panic!("{other:?}"),
    }
}

fn cluster(object: &Value) -> Cluster {
    serde_json::from_value(object.clone()).unwrap()
}

fn class(annotations: &Value) -> ClusterClass {
    let photon = json!({"annotations": {annotation::RESOLVE_OS_IMAGE: "os-name=photon"}});
    serde_json::from_value(json!({
        "metadata": {"name": "class", "namespace": "ns", "annotations": annotations},
        "spec": {
            "controlPlane": {"metadata": {"annotations": {annotation::RESOLVE_OS_IMAGE: "os-name=ubuntu"}}},
            "workers": {"machineDeployments": [
                {"class": "default", "metadata": {"annotations": {annotation::RESOLVE_OS_IMAGE: "os-name=ubuntu"}}},
                {"class": "photon", "metadata": photon},
            ]},
            "variables": [{"name": "TKR_DATA"}],
        },
    }))
    .unwrap()
}

fn new(version: &str, pools: &Value) -> Value {
    json!({
        "metadata": {"name": "one", "namespace": "ns", "annotations": {annotation::RESOLVE_TKR: ""}},
        "spec": {"topology": {
            "classRef": {"name": "class"}, "version": version, "controlPlane": {},
            "workers": {"machineDeployments": pools},
        }},
    })
}

fn label_of(cluster: &Value) -> &Value {
    &cluster["metadata"]["labels"][label::TKR]
}

fn image_of(variables: &Value, version: &str) -> Value {
    let found = variables.as_array().into_iter().flatten();
    let mut found = found.filter(|variable| variable["name"] == "TKR_DATA");
    found.next().map_or(Value::Null, |found| {
        found["value"][version]["osImageRef"]["name"].clone()
    })
}

fn override_of(cluster: &Value, pool: usize, version: &str) -> Value {
    let pools = &cluster["spec"]["topology"]["workers"]["machineDeployments"];
    image_of(&pools[pool]["variables"]["overrides"], version)
}

fn common(cluster: &Value, version: &str) -> Value {
    image_of(&cluster["spec"]["topology"]["variables"], version)
}

#[rstest]
#[case::minor("v1.35", "v1.35.4---a.10")]
#[case::without_v("1.35", "v1.35.4---a.10")]
#[case::major("v1", "v1.36.3---a.11")]
#[case::kubernetes("v1.35.4", "v1.35.4---a.10")]
#[case::release("v1.35.4+a.9", "v1.35.4---a.9")]
#[case::label("v1.35.4---a.9", "v1.35.4---a.9")]
fn a_prefix_becomes_the_newest_release_of_it(#[case] version: &str, #[case] release: &str) {
    let (cluster, warnings) = World::new().becomes(None, &new(version, &json!([])));
    assert_eq!(label_of(&cluster), release);
    let kubernetes = release.split("---").next().unwrap();
    assert_eq!(cluster["spec"]["topology"]["version"], kubernetes);
    assert_eq!(common(&cluster, kubernetes), format!("{release}-ubuntu"));
    assert_eq!(warnings, Vec::<String>::new());
}

/// A catalogue that grows changes nothing for manifests that pin a release.
#[test]
fn the_release_that_a_bootstrap_pins_is_taken() {
    let mut world = World::new();
    world.pinned = Some("v1.35.4---a.9");
    let (cluster, warnings) = world.becomes(None, &new("v1.35.4", &json!([])));
    assert_eq!(label_of(&cluster), "v1.35.4---a.9");
    assert_eq!(common(&cluster, "v1.35.4"), "v1.35.4---a.9-ubuntu");
    assert_eq!(warnings, Vec::<String>::new());
    // A Cluster keeps its release, whatever a ClusterBootstrap pins later.
    world.pinned = Some("v1.35.4---a.10");
    assert_eq!(world.becomes(Some(&cluster), &cluster).0, cluster);
}

#[rstest]
#[case::does_not_exist("v1.35.4---a.8", None, "does not exist")]
#[case::deactivated("v1.35.4---a.9", Some(label::DEACTIVATED), "is deactivated")]
fn a_pinned_release_that_cannot_be_taken_is_named(
    #[case] pinned: &'static str,
    #[case] marked: Option<&str>,
    #[case] why: &str,
) {
    let mut world = World::new();
    world.pinned = Some(pinned);
    if let Some(marked) = marked {
        world.label(pinned, marked);
    }
    let refusal = world.refusal(None, &new("v1.35.4", &json!([])));
    let says = format!("pins TanzuKubernetesRelease {pinned}, which {why}");
    assert!(refusal.contains(&says), "{refusal}");
}

/// A ClusterBootstrap that is created after its Cluster pins a release, too.
#[test]
fn a_cluster_without_machines_moves_to_the_pinned_release() {
    let mut world = World::new();
    let (newest, _) = world.becomes(None, &new("v1.35.4", &json!([{"name": "b", "class": "photon"}])));
    assert_eq!(label_of(&newest), "v1.35.4---a.10");
    world.pinned = Some("v1.35.4---a.9");
    let mut relabelled = newest.clone();
    relabelled["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.9");
    let (moved, warnings) = world.becomes(Some(&newest), &relabelled);
    assert_eq!(label_of(&moved), "v1.35.4---a.9");
    assert_eq!(common(&moved, "v1.35.4"), "v1.35.4---a.9-ubuntu");
    assert_eq!(override_of(&moved, 0, "v1.35.4"), "v1.35.4---a.9-photon");
    assert_eq!(warnings, Vec::<String>::new());

    let refusal = world.refusal(Some(&moved), &newest);
    assert!(
        refusal.starts_with("metadata.labels[run.tanzu.vmware.com/tkr]: Invalid value: \"v1.35.4---a.10\"")
            && refusal.contains("write the same release in both"),
        "{refusal}"
    );
    // The label of a Cluster with an API server is a choice of its user.
    let mut made = moved.clone();
    made["spec"]["controlPlaneRef"] = json!({"kind": "X", "name": "one"});
    made["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
    let mut relabelled = made.clone();
    relabelled["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.10");
    assert_eq!(world.refusal(Some(&made), &relabelled), "");
}

#[rstest]
#[case::by_its_own_annotation(|_: &mut Value| {}, false, Some("v1.35.4"))]
#[case::by_its_class(|cluster: &mut Value| cluster["metadata"]["annotations"] = json!({}), true, Some("v1.35.4"))]
#[case::without_a_request(|cluster: &mut Value| cluster["metadata"]["annotations"] = json!({}), false, None)]
#[case::without_a_release(|cluster: &mut Value| cluster["metadata"]["labels"] = json!({}), false, None)]
#[case::with_a_control_plane(
    |cluster: &mut Value| cluster["spec"]["controlPlaneRef"] = json!({"kind": "X", "name": "one"}),
    false,
    Some("v1.35.4")
)]
#[case::with_an_api_server(
    |cluster: &mut Value| cluster["status"] = json!({"initialization": {"controlPlaneInitialized": true}}),
    false,
    None
)]
#[case::being_deleted(
    |cluster: &mut Value| cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
    false,
    None
)]
#[case::without_a_topology(|cluster: &mut Value| cluster["spec"] = json!({}), false, None)]
fn the_release_of_a_new_cluster_follows_its_bootstrap(
    #[case] edit: fn(&mut Value),
    #[case] class_asks: bool,
    #[case] version: Option<&str>,
) {
    let mut object = new("v1.35.4", &json!([]));
    object["metadata"]["labels"] = json!({label::TKR: "v1.35.4---a.10"});
    edit(&mut object);
    let annotations = if class_asks {
        json!({annotation::RESOLVE_TKR: ""})
    } else {
        json!({})
    };
    let (cluster, class) = (cluster(&object), class(&annotations));
    assert_eq!(follows_bootstrap(&cluster, Some(&class)), version);
}

#[rstest]
#[case::of_another_version(
    "v1.36",
    None,
    "spec.topology.version: Invalid value: \"v1.36\"",
    "which does not begin with v1.36"
)]
#[case::of_another_label(
    "v1.35.4",
    Some("v1.35.4---a.10"),
    "metadata.labels[run.tanzu.vmware.com/tkr]",
    "write the same release in both"
)]
fn a_cluster_that_a_pinned_release_does_not_fit_is_refused(
    #[case] version: &str,
    #[case] label: Option<&str>,
    #[case] begins: &str,
    #[case] says: &str,
) {
    let mut world = World::new();
    world.pinned = Some("v1.35.4---a.9");
    let mut cluster = new(version, &json!([]));
    if let Some(label) = label {
        cluster["metadata"]["labels"] = json!({label::TKR: label});
    }
    let refusal = world.refusal(None, &cluster);
    assert!(
        refusal.starts_with(begins)
            && refusal.contains(says)
            && refusal.contains("pins TanzuKubernetesRelease v1.35.4---a.9"),
        "{refusal}"
    );
}

/// The entry names release, image and origin of machines.
#[test]
fn the_entry_of_a_version() {
    let (cluster, _) = World::new().becomes(None, &new("v1.35", &json!([])));
    assert_eq!(
        cluster["spec"]["topology"]["variables"][0],
        json!({"name": "TKR_DATA", "value": {"v1.35.4": {
            "kubernetesSpec": {
                "version": "v1.35.4", "imageRepository": "r.test", "etcd": {"imageRepository": "r.test", "imageTag": "v3"},
            },
            "osImageRef": {"name": "v1.35.4---a.10-ubuntu"},
            "labels": {
                "run.tanzu.vmware.com/tkr": "v1.35.4---a.10", "run.tanzu.vmware.com/os-image": "v1.35.4---a.10-ubuntu",
                "os-type": "linux", "os-name": "ubuntu", "os-version": "5", "os-arch": "amd64", "image-type": "ova",
                "ova-name": "v1.35.4---a.10-ubuntu",
            },
        }}})
    );
    let mut own = new("v1.35", &json!([]));
    own["spec"]["topology"]["variables"] =
        json!([{"name": "imageRepository", "value": {"host": "own.test"}}]);
    let (cluster, _) = World::new().becomes(None, &own);
    let spec = &cluster["spec"]["topology"]["variables"][1]["value"]["v1.35.4"]["kubernetesSpec"];
    assert_eq!(spec["imageRepository"], "own.test");
    assert_eq!(spec["etcd"]["imageRepository"], "own.test");
}

#[test]
fn the_same_manifest_upgrades_nothing() {
    let mut world = World::new();
    let manifest = new("v1.35", &json!([{"name": "md", "class": "photon"}]));
    let (stored, _) = world.becomes(None, &manifest);
    world.release("v1.35.7", 12, &["ubuntu", "photon"]);
    // Merged, as by a server-side apply; and replaced, without any addition.
    let mut merged = stored.clone();
    merged["spec"]["topology"]["version"] = json!("v1.35");
    for again in [&merged, &manifest] {
        let (after, _) = world.becomes(Some(&stored), again);
        assert_eq!(after, stored);
    }
    // A Cluster of an excluded release stays on it.
    world.label("v1.35.4---a.10", label::DEACTIVATED);
    assert_eq!(world.becomes(Some(&stored), &merged).0, stored);
    let (another, _) = world.becomes(None, &manifest);
    assert_eq!(label_of(&another), "v1.35.7---a.12");
}

#[test]
fn another_prefix_is_another_release_and_old_entries_stay() {
    let world = World::new();
    let (stored, _) = world.becomes(None, &new("v1.35", &json!([{"name": "md", "class": "photon"}])));
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (after, warnings) = world.becomes(Some(&stored), &bumped);
    assert_eq!(label_of(&after), "v1.36.3---a.11");
    assert_eq!(common(&after, "v1.36.3"), "v1.36.3---a.11-ubuntu");
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
    assert_eq!(override_of(&after, 0, "v1.36.3"), "v1.36.3---a.11-photon");
    assert_eq!(override_of(&after, 0, "v1.35.4"), "v1.35.4---a.10-photon");
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn each_pool_has_its_image_and_only_another_one_is_an_override() {
    let world = World::new();
    let pools = json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]);
    let (stored, _) = world.becomes(None, &new("v1.35", &pools));
    let pools = &stored["spec"]["topology"]["workers"]["machineDeployments"];
    assert_eq!(pools[0].get("variables"), None);
    assert_eq!(override_of(&stored, 1, "v1.35.4"), "v1.35.4---a.10-photon");

    // Later pools get the release of the others.
    let stored = world.made(
        "v1.35.4+a.9",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    let mut more = stored.clone();
    more["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.10");
    let list = more["spec"]["topology"]["workers"]["machineDeployments"]
        .as_array_mut()
        .unwrap();
    list.push(
        json!({"name": "c", "class": "photon", "variables": {"overrides": [{"name": "x", "value": 1}]}}),
    );
    list.push(json!({"name": "d", "class": "default"}));
    let (after, warnings) = world.becomes(Some(&stored), &more);
    assert_eq!(override_of(&after, 2, "v1.35.4"), "v1.35.4---a.9-photon");
    assert_eq!(
        after["spec"]["topology"]["workers"]["machineDeployments"][3].get("variables"),
        None
    );
    let says = "TKR_DATA: packages are upgraded to TanzuKubernetesRelease v1.35.4---a.10 first; then Sluice replaces the machines of v1.35.4";
    assert!(warnings[0].starts_with(says), "{warnings:?}");
}

/// Neither a label of the same Kubernetes version nor a user changes the entry of a version that machines run.
#[test]
fn entries_stay_as_they_were() {
    let world = World::new();
    let pools = json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]);
    let stored = world.made("v1.35.4+a.9", &pools);
    let mut relabelled = stored.clone();
    relabelled["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.10");
    let (after, warnings) = world.becomes(Some(&stored), &relabelled);
    assert_eq!(after, relabelled);
    assert_eq!(warnings.len(), 1, "{warnings:?}");

    let edits: [fn(&mut Value); 6] = [
        |topology| topology["variables"][0]["value"]["v1.35.4"]["osImageRef"]["name"] = json!("bad"),
        |topology| topology["variables"][0]["value"] = json!({}),
        |topology| topology["variables"] = json!([]),
        |topology| topology["workers"]["machineDeployments"][1]["variables"] = Value::Null,
        |topology| {
            let overrides =
                json!([{"name": "TKR_DATA", "value": {"v1.35.4": {"osImageRef": {"name": "bad"}}}}]);
            topology["workers"]["machineDeployments"][0]["variables"] = json!({"overrides": overrides});
        },
        |topology| {
            let overrides =
                json!([{"name": "TKR_DATA", "value": {"v1.35.4": {"osImageRef": {"name": "bad"}}}}]);
            topology["controlPlane"]["variables"] = json!({"overrides": overrides});
        },
    ];
    for edit in edits {
        let mut edited = stored.clone();
        edit(&mut edited["spec"]["topology"]);
        let (mut after, _) = world.becomes(Some(&stored), &edited);
        let pools = &after["spec"]["topology"]["workers"]["machineDeployments"];
        assert!(!pools[1]["variables"].is_null(), "the override is gone: {after}");
        for pool in after["spec"]["topology"]["workers"]["machineDeployments"]
            .as_array_mut()
            .unwrap()
        {
            pool.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        }
        assert_eq!(after["spec"], stored["spec"]);
    }

    // A user may pin the release of an intermediate version.
    let mut pinned = stored.clone();
    pinned["spec"]["topology"]["variables"][0]["value"]["v1.36.3"] =
        json!({"labels": {label::TKR: "v1.36.3---a.11"}});
    let (after, warnings) = world.becomes(Some(&stored), &pinned);
    assert_eq!((after, warnings), (pinned, Vec::new()));
}

/// A Cluster from before the webhook: an entry would roll its machines without a hook call.
#[test]
fn machines_that_were_made_without_an_entry_get_none() {
    let world = World::new();
    let mut running = new("v1.35.4", &json!([{"name": "b", "class": "photon"}]));
    running["spec"]["controlPlaneRef"] = json!({"kind": "X", "name": "one"});
    let (after, warnings) = world.becomes(Some(&running), &running);
    assert_eq!(label_of(&after), "v1.35.4---a.10");
    assert_eq!(after["spec"], running["spec"]);
    assert!(warnings[0].starts_with("TKRDataKept"), "{warnings:?}");

    let mut bumped = after.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (after, _) = world.becomes(Some(&after), &bumped);
    assert_eq!(common(&after, "v1.36.3"), "v1.36.3---a.11-ubuntu");
    assert_eq!(override_of(&after, 0, "v1.36.3"), "v1.36.3---a.11-photon");

    // No machine exists yet.
    let held = new("v1.35.4", &json!([]));
    let (after, _) = world.becomes(Some(&held), &held);
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
}

/// A restored Cluster does not change, although the catalogue has.
#[test]
fn a_cluster_that_is_restored_keeps_its_images() {
    let mut world = World::new();
    let (mut stored, _) = world.becomes(None, &new("v1.35", &json!([{"name": "b", "class": "photon"}])));
    let entry = &mut stored["spec"]["topology"]["variables"][0]["value"]["v1.35.4"];
    entry["osImageRef"]["name"] = json!("renamed");
    world.release("v1.35.9", 13, &["ubuntu", "photon"]);
    assert_eq!(world.becomes(None, &stored).0, stored);
}

#[test]
fn clusters_without_a_request_stay_unchanged() {
    let mut world = World::new();
    let mut plain = new("v1.35", &json!([]));
    plain["metadata"]["annotations"] = json!({});
    assert_eq!(world.resolve(None, &plain), Resolution::default());
    world.class = None;
    assert_eq!(world.resolve(None, &plain), Resolution::default());
    world.class = Some(class(&json!({annotation::RESOLVE_TKR: ""})));
    assert_eq!(label_of(&world.becomes(None, &plain).0), "v1.35.4---a.10");
    plain["spec"]["paused"] = json!(true);
    assert_eq!(world.resolve(None, &plain), Resolution::default());
    plain["spec"] = json!({});
    assert_eq!(world.resolve(None, &plain), Resolution::default());
}

/// Without the variable only parts with a selector need an image.
#[test]
fn a_class_without_the_variable_needs_no_image() {
    let mut world = World::new();
    world.images.clear();
    let mut class = class(&json!({}));
    class.spec.variables.clear();
    class.spec.control_plane = None;
    world.class = Some(class);
    let (cluster, _) = world.becomes(None, &new("v1.35", &json!([])));
    assert_eq!(label_of(&cluster), "v1.35.4---a.10");
    assert_eq!(cluster["spec"]["topology"].get("variables"), None);
    let refusal = world.refusal(None, &new("v1.35", &json!([{"name": "md", "class": "photon"}])));
    assert!(refusal.contains("has no OSImage for controlPlane"), "{refusal}");
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
