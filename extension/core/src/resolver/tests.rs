use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    labels::{annotation, label},
    run::{OSImage, TanzuKubernetesRelease},
};

use super::*;
use crate::{
    hop::ControlPlaneFacts,
    stores::tests::{Given, undecodable},
};

/// Releases and images of one test.
#[derive(Default)]
struct World {
    releases: Releases,
    images: Images,
    class: Option<ClusterClass>,
    /// The versions that machines run; any where it is not known.
    running: Option<Running>,
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

    fn known(&self) -> Known<'_> {
        Known {
            class: Ok(self.class.as_ref()),
            releases: &self.releases,
            images: Some(&self.images),
            running: Some(self.running.as_ref().unwrap_or(&Running::UNKNOWN)),
        }
    }

    /// Machines of a Cluster run this version alone.
    fn runs(&mut self, version: &str) {
        let control_plane = ControlPlaneFacts {
            spec_version: Some(version.to_owned()),
            status_version: Some(version.to_owned()),
        };
        self.running = Some(Running::of("ns", "one", Some(control_plane), &Given::default()));
    }

    /// A Cluster that was resolved and whose machines were made.
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

    /// What the Cluster becomes.
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

/// One step of RFC 6902 as it is used.
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

/// Its entry says what machines are made of, and who made them.
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
    // Merged, as a server-side apply does it; and replaced, without anything that was added.
    let mut merged = stored.clone();
    merged["spec"]["topology"]["version"] = json!("v1.35");
    for again in [&merged, &manifest] {
        let (after, _) = world.becomes(Some(&stored), again);
        assert_eq!(after, stored);
    }
    // A Cluster of a release that is not taken any more stays on it as well.
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

    // Pools that come later are made of what the others are made of.
    let stored = world.made(
        "v1.35",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    let mut more = stored.clone();
    more["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.9");
    let list = more["spec"]["topology"]["workers"]["machineDeployments"]
        .as_array_mut()
        .unwrap();
    list.push(
        json!({"name": "c", "class": "photon", "variables": {"overrides": [{"name": "x", "value": 1}]}}),
    );
    list.push(json!({"name": "d", "class": "default"}));
    let (after, warnings) = world.becomes(Some(&stored), &more);
    assert_eq!(override_of(&after, 2, "v1.35.4"), "v1.35.4---a.10-photon");
    assert_eq!(
        after["spec"]["topology"]["workers"]["machineDeployments"][3].get("variables"),
        None
    );
    assert!(
        warnings[0]
            .starts_with("TKRDataKept: machines of v1.35.4 stay as TanzuKubernetesRelease v1.35.4---a.10")
    );
}

/// Nothing of a version that machines run is changed: neither by a label of the same Kubernetes version, nor by hand.
#[test]
fn entries_stay_as_they_were() {
    let world = World::new();
    let pools = json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]);
    let stored = world.made("v1.35", &pools);
    let mut relabelled = stored.clone();
    relabelled["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.9");
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

    // A pin for a version on the way is a user's own.
    let mut pinned = stored.clone();
    pinned["spec"]["topology"]["variables"][0]["value"]["v1.36.3"] =
        json!({"labels": {label::TKR: "v1.36.3---a.11"}});
    let (after, warnings) = world.becomes(Some(&stored), &pinned);
    assert_eq!((after, warnings), (pinned, Vec::new()));
}

/// A Cluster that ran before anything was resolved: an entry would roll its machines, and no hook would be asked.
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

    // Nothing was made yet.
    let held = new("v1.35.4", &json!([]));
    let (after, _) = world.becomes(Some(&held), &held);
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
}

/// What was stored before is created again as it was, though the catalogue has moved on.
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
fn what_asks_for_nothing_is_left_alone() {
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

/// Without the variable an image is asked for only by those who select one.
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

#[test]
fn images_that_were_not_read_are_waited_for() {
    let world = World::new();
    let asked = Asked {
        old: None,
        new: cluster(&new("v1.35", &json!([]))),
    };
    let known = Known {
        images: None,
        ..world.known()
    };
    assert_eq!(resolve(&asked, known), Err(Unknown::Images));
}

/// Only a release that every part can be made of is taken.
#[test]
fn a_release_without_an_image_for_a_pool_is_passed_over() {
    let mut world = World::new();
    world.release("v1.35.8", 14, &["ubuntu"]);
    let (both, _) = world.becomes(None, &new("v1.35", &json!([{"name": "b", "class": "photon"}])));
    assert_eq!(label_of(&both), "v1.35.4---a.10");
    let (one, _) = world.becomes(None, &new("v1.35", &json!([])));
    assert_eq!(label_of(&one), "v1.35.8---a.14");
}

#[rstest]
#[case::set_to_an_older_one("v1.35", "v1.35.4---a.9", Ok("v1.35.4---a.9"))]
#[case::of_another_version(
    "v1.35",
    "v1.36.3---a.11",
    Err("does not begin with v1.35; v1.35.4---a.10 can be taken")
)]
#[case::of_none("v1.35", "v1.35.4---none", Err("v1.35.4---none does not exist"))]
fn a_label_that_is_set_is_taken_or_refused(
    #[case] version: &str,
    #[case] name: &str,
    #[case] expected: Result<&str, &str>,
) {
    let world = World::new();
    let mut labelled = new(version, &json!([]));
    labelled["metadata"]["labels"] = json!({label::TKR: name});
    match expected {
        Ok(release) => assert_eq!(label_of(&world.becomes(None, &labelled).0), release),
        Err(says) => {
            let refusal = world.refusal(None, &labelled);
            assert!(refusal.contains(says), "{refusal}");
        }
    }
}

#[test]
fn a_release_that_is_gone_is_not_replaced() {
    let mut world = World::new();
    let (stored, _) = world.becomes(None, &new("v1.35", &json!([])));
    world.releases.remove("v1.35.4---a.10");
    let refusal = world.refusal(Some(&stored), &stored);
    assert!(
        refusal.contains("does not exist any more; set the label to another one"),
        "{refusal}"
    );
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    assert_eq!(
        label_of(&world.becomes(Some(&stored), &bumped).0),
        "v1.36.3---a.11"
    );
}

#[rstest]
#[case::no_version("v1.37", &[], "no version begins so, the nearest are v1.36.3---a.11, v1.35.4---a.10, v1.35.4---a.9")]
#[case::deactivated("v1.36", &[("v1.36.3---a.11", label::DEACTIVATED)], "v1.36.3---a.11 is deactivated")]
#[case::incompatible("v1.36", &[("v1.36.3---a.11", label::INCOMPATIBLE)], "v1.36.3---a.11 is incompatible")]
#[case::legacy("v1.36", &[("v1.36.3---a.11", label::LEGACY_TKR)], "v1.36.3---a.11 is marked legacy")]
#[case::invalid("v1.36", &[("v1.36.3---a.11", label::INVALID)], "v1.36.3---a.11 is invalid")]
#[case::named("v1.36.3+a.11", &[("v1.36.3---a.11", label::INVALID)], "v1.36.3---a.11 is invalid")]
#[case::all(
    "v1.35",
    &[("v1.35.4---a.9", label::INVALID), ("v1.35.4---a.10", label::DEACTIVATED)],
    "v1.35.4---a.10 is deactivated, v1.35.4---a.9 is invalid"
)]
fn what_cannot_be_resolved_is_refused(
    #[case] version: &str,
    #[case] labels: &[(&str, &str)],
    #[case] says: &str,
) {
    let mut world = World::new();
    for (release, key) in labels {
        world.label(release, key);
    }
    let refusal = world.refusal(None, &new(version, &json!([])));
    let begin = format!(
        "spec.topology.version: Invalid value: {version:?}: could not resolve TKR/OSImage for controlPlane, machineDeployments: [], \
         query: {{version {}, releases \"\", OSImages of controlPlane \"os-name=ubuntu\"}}, result: ",
        crate::releases::version_label(version)
    );
    assert!(
        refusal.starts_with(&begin) && refusal.ends_with(says),
        "{refusal}"
    );
}

#[test]
fn an_image_is_needed_and_only_one() {
    let mut world = World::new();
    let flatcar = json!({"annotations": {annotation::RESOLVE_OS_IMAGE: "os-name=flatcar"}});
    let pool = json!([{"name": "md", "class": "default", "metadata": flatcar}]);
    let refusal = world.refusal(None, &new("v1.36", &pool));
    assert!(
        refusal.contains("v1.36.3---a.11 has no OSImage for machineDeployments[md]"),
        "{refusal}"
    );
    world.release("v1.36.9", 15, &["ubuntu", "photon"]);
    let image = world.images["v1.36.9---a.15-photon"].as_ref().clone();
    let mut second = image.clone();
    second.spec.os.name = "ubuntu".to_owned();
    world
        .images
        .insert("v1.36.9---a.15-photon".to_owned(), Arc::new(second));
    let refusal = world.refusal(None, &new("v1.36", &json!([])));
    let says =
        "v1.36.9---a.15 has 2 OSImages for controlPlane (v1.36.9---a.15-ubuntu, v1.36.9---a.15-photon)";
    assert!(refusal.contains(says), "{refusal}");
}

#[test]
fn selectors_are_of_labels_that_nothing_has_written_yet() {
    let world = World::new();
    let mut selecting = new("v1", &json!([]));
    selecting["metadata"]["annotations"][annotation::RESOLVE_TKR] = json!("v1.35,!v1.35.4---a.10");
    assert_eq!(label_of(&world.becomes(None, &selecting).0), "v1.35.4---a.9");
}

#[rstest]
#[case::selector(json!({"metadata": {"annotations": {annotation::RESOLVE_TKR: "a in"}}}), "metadata.annotations[run.tanzu.vmware.com/resolve-tkr]")]
#[case::class_of_a_pool(
    json!({"spec": {"topology": {"workers": {"machineDeployments": [{"name": "md", "class": "none"}]}}}}),
    "spec.topology.workers.machineDeployments[md].class: Invalid value: \"none\": ClusterClass class has no such class of workers; it has default, photon"
)]
#[case::data(json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": [1]}]}}}), "spec.topology.variables[TKR_DATA]: Invalid value: \"[1]\": it is no object")]
#[case::data_of_no_version(json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": {"a": {}}}]}}}), "key \"a\" is no Kubernetes version")]
#[case::data_without_objects(json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": {"v1.35.4": 1}}]}}}), "what it has for v1.35.4 is no object")]
#[case::labels_of_data(
    json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": {"v1.35.4": {"labels": {"a": 1}}}}]}}}),
    "a label of v1.35.4 is no text"
)]
fn bad_input_is_named(#[case] change: Value, #[case] says: &str) {
    let mut bad = new("v1.35", &json!([]));
    merge(&mut bad, &change);
    let refusal = World::new().refusal(None, &bad);
    assert!(refusal.contains(says), "{refusal}");
}

#[test]
fn a_class_that_is_missing_is_named() {
    let world = World {
        class: None,
        ..World::new()
    };
    let refusal = world.refusal(None, &new("v1.35", &json!([])));
    assert!(
        refusal.contains("spec.topology.classRef.name: Invalid value: \"class\": ClusterClass not found"),
        "{refusal}"
    );
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

/// A tenant's Cluster, however large, must not keep the reviews of others waiting.
#[test]
fn a_resolution_has_bounds() {
    let world = World::new();
    let pools = |count: usize, selector: &dyn Fn(usize) -> String| {
        let pool = |index| {
            let annotations = json!({"annotations": {annotation::RESOLVE_OS_IMAGE: selector(index)}});
            json!({"name": format!("pool-{index}"), "class": "default", "metadata": annotations})
        };
        (0..count).map(pool).collect::<Value>()
    };
    let ubuntu = |_| "os-name=ubuntu".to_owned();
    let refusal = |pools: &Value| world.refusal(None, &new("v1", pools));
    let says = refusal(&pools(2_001, &ubuntu));
    assert!(
        says.contains("a topology of more than 2000 pools is not resolved"),
        "{says}"
    );
    let says = refusal(&pools(1, &|_| "a".repeat(1_025)));
    assert!(
        says.contains("a selector has 1024 bytes at most") && says.len() < 400,
        "{says}"
    );
    let says = refusal(&pools(100, &|index| {
        format!("os-name=ubuntu,!{}", format!("{index:04}").repeat(15))
    }));
    assert!(
        says.contains("have more than 4096 bytes together") && says.len() < 4_000,
        "{} bytes",
        says.len()
    );
    let mut selecting = new("v1", &json!([]));
    selecting["metadata"]["annotations"][annotation::RESOLVE_TKR] = json!("a".repeat(1_025));
    let says = world.refusal(None, &selecting);
    assert!(
        says.contains("a selector has 1024 bytes at most") && says.len() < 400,
        "{says}"
    );

    let none = |index| {
        if index == 99 {
            "none".to_owned()
        } else {
            ubuntu(index)
        }
    };
    let says = refusal(&pools(100, &none));
    assert!(says.contains("pool-7 and 92 more], query:"), "{says}");
    assert!(
        says.contains("has no OSImage for machineDeployments[pool-99]"),
        "{says}"
    );
    assert!(says.len() < 600, "{} bytes", says.len());
    let unknown = |index| json!({"name": format!("pool-{index}"), "class": "none"});
    let faults = world
        .resolve(None, &new("v1", &(0..100).map(unknown).collect::<Value>()))
        .faults;
    assert_eq!(faults.len(), 8);

    let many = cluster(&new("v1", &pools(100, &none)));
    let topology = many.spec.topology.as_ref().unwrap();
    let parts = part::parts(topology, world.class.as_ref().unwrap()).unwrap();
    assert_eq!(
        (parts.all.len(), parts.selectors.len()),
        (101, 2),
        "each selector is compared once"
    );
}

/// What machines are made of depends on the class, so nothing is stored unresolved while that is not known.
#[test]
fn a_class_that_is_not_known_yet_is_waited_for() {
    let world = World::new();
    let stored = world.made("v1.35", &json!([]));
    let unknown = |old: Option<&Value>, new: &Value| {
        let asked = Asked {
            old: old.map(cluster),
            new: cluster(new),
        };
        let known = Known {
            class: Ok(None),
            ..world.known()
        };
        resolve(&asked, known)
    };
    let class = Err(Unknown::Class("class".to_owned()));
    assert_eq!(unknown(Some(&stored), &stored), class);
    let mut without_label = stored.clone();
    without_label["metadata"] = json!({"name": "one", "namespace": "ns"});
    assert_eq!(
        unknown(Some(&without_label), &without_label),
        class,
        "it has TKR_DATA"
    );
    let mut labelled = new("v1.35.4", &json!([]));
    labelled["metadata"] =
        json!({"name": "one", "namespace": "ns", "labels": {label::TKR: "v1.35.4---a.10"}});
    assert_eq!(unknown(None, &labelled), class);
    labelled["metadata"] = json!({"name": "one", "namespace": "ns"});
    assert_eq!(
        unknown(None, &labelled),
        Ok(Resolution::default()),
        "hooks hold it if the class asks"
    );
}

#[rstest]
#[case::asks(true)]
#[case::asks_for_nothing(false)]
fn a_class_that_cannot_be_decoded_is_named(#[case] asks: bool) {
    let mut class = undecodable("ClusterClass", Some("ns"), "class", &json!({}));
    let annotations = asks.then(|| (annotation::RESOLVE_TKR.to_owned(), String::new()));
    Arc::make_mut(&mut class).metadata.annotations = Some(annotations.into_iter().collect());
    let world = World::new();
    let mut plain = new("v1.35.4", &json!([]));
    plain["metadata"]["annotations"] = json!({});
    let asked = Asked {
        old: None,
        new: cluster(&plain),
    };
    let known = Known {
        class: Err(&class),
        ..world.known()
    };
    let faults = resolve(&asked, known).unwrap().faults;
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), usize::from(asks), "{said:?}");
    assert!(
        said.iter()
            .all(|said| said.contains("ClusterClass ns/class cannot be decoded")),
        "{said:?}"
    );
}

/// The packages of a release are never ready, so that its upgrade is held. One that is repaired may take its place, as nothing runs it.
#[test]
fn a_held_upgrade_moves_to_another_release_of_the_version() {
    let mut world = World::new();
    let stored = world.made(
        "v1.35",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (held, _) = world.becomes(Some(&stored), &bumped);
    world.release("v1.36.3", 12, &["ubuntu", "photon"]);
    let mut repaired = held.clone();
    repaired["metadata"]["labels"][label::TKR] = json!("v1.36.3---a.12");

    // It has to be looked up, once.
    let asked = Asked {
        old: Some(cluster(&held)),
        new: cluster(&repaired),
    };
    let not_looked_up = Known {
        running: None,
        ..world.known()
    };
    assert_eq!(resolve(&asked, not_looked_up), Err(Unknown::Running));
    world.runs("v1.35.4");
    let (after, warnings) = world.becomes(Some(&held), &repaired);
    assert_eq!(common(&after, "v1.36.3"), "v1.36.3---a.12-ubuntu");
    assert_eq!(override_of(&after, 1, "v1.36.3"), "v1.36.3---a.12-photon");
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
    assert_eq!(override_of(&after, 1, "v1.35.4"), "v1.35.4---a.10-photon");
    assert_eq!(override_of(&after, 0, "v1.36.3"), Value::Null);
    assert_eq!(warnings, Vec::<String>::new());

    world.runs("v1.36.3");
    let (after, warnings) = world.becomes(Some(&held), &repaired);
    assert_eq!((after, warnings.len()), (repaired.clone(), 1), "machines run it");
    assert!(warnings[0].starts_with("TKRDataKept"), "{warnings:?}");

    // Before anything is made.
    let (new, _) = world.becomes(None, &new("v1.36.3+a.11", &json!([])));
    let mut moved = new.clone();
    moved["metadata"]["labels"][label::TKR] = json!("v1.36.3---a.12");
    assert_eq!(
        common(&world.becomes(Some(&new), &moved).0, "v1.36.3"),
        "v1.36.3---a.12-ubuntu"
    );
}

/// An old manifest is applied: without the annotation, and without what was added.
#[test]
fn a_cluster_that_asks_no_more_keeps_its_entries() {
    let world = World::new();
    let stored = world.made(
        "v1.35",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    let mut plain = stored.clone();
    plain["metadata"]["annotations"] = json!({});
    assert_eq!(
        world.resolve(Some(&stored), &plain),
        Resolution::default(),
        "it changes nothing"
    );

    let drops: [fn(&mut Value); 4] = [
        |topology| topology["variables"] = json!([]),
        |topology| topology["variables"][0]["value"]["v1.35.4"]["osImageRef"]["name"] = json!("old"),
        |topology| {
            topology["workers"]["machineDeployments"][1]
                .as_object_mut()
                .unwrap()
                .remove("variables");
        },
        |topology| {
            let old = json!([{"name": "TKR_DATA", "value": {"v1.35.4": {"osImageRef": {"name": "old"}}}}]);
            topology["workers"]["machineDeployments"][0]["variables"] = json!({"overrides": old});
            topology["controlPlane"]["variables"] = json!({"overrides": old});
        },
    ];
    // With the annotation, or after it was dropped.
    for before in [&stored, &plain] {
        for drop in &drops {
            let mut applied = plain.clone();
            drop(&mut applied["spec"]["topology"]);
            let (after, warnings) = world.becomes(Some(before), &applied);
            assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
            assert_eq!(override_of(&after, 1, "v1.35.4"), "v1.35.4---a.10-photon");
            for part in [
                &after["spec"]["topology"]["workers"]["machineDeployments"][0],
                &after["spec"]["topology"]["controlPlane"],
            ] {
                let own = image_of(&part["variables"]["overrides"], "v1.35.4");
                assert!(own.is_null() || own == "v1.35.4---a.10-ubuntu", "{own}");
            }
            assert!(
                warnings[0].contains("pause the Cluster, edit it, and go on"),
                "{warnings:?}"
            );
        }
    }
    // What a user wrote for a version on the way, and what nothing runs, is the user's own.
    let mut pinned = plain.clone();
    pinned["spec"]["topology"]["variables"][0]["value"]["v1.36.3"] = json!({"labels": {label::TKR: "x"}});
    assert_eq!(world.resolve(Some(&pinned), &plain), Resolution::default());
    let mut empty = plain.clone();
    empty["spec"]["topology"]["variables"] = json!([]);
    let mut running = World::new();
    running.runs("v1.34.1");
    assert_eq!(
        override_of(&running.becomes(Some(&plain), &empty).0, 1, "v1.35.4"),
        "v1.35.4---a.10-photon"
    );
    assert_eq!(
        common(&running.becomes(Some(&plain), &empty).0, "v1.35.4"),
        Value::Null
    );
    // Entries of a Cluster that never had to do with a release are none of ours.
    plain["metadata"]["labels"] = json!({});
    empty["metadata"]["labels"] = json!({});
    assert_eq!(world.resolve(Some(&plain), &empty), Resolution::default());
}

#[test]
fn a_control_plane_has_the_entries_of_its_cluster() {
    let world = World::new();
    let of_its_own = |value: Value| {
        let mut own = new("v1.35", &json!([]));
        own["spec"]["topology"]["controlPlane"]["variables"] =
            json!({"overrides": [{"name": "TKR_DATA", "value": value}]});
        own
    };
    let refusal = world.refusal(None, &of_its_own(json!([1])));
    let field = "spec.topology.controlPlane.variables.overrides[TKR_DATA]";
    assert!(refusal.contains(field), "{refusal}");
    let odd = json!({"v1.35.4": {"osImageRef": {"name": "odd"}}});
    let (after, warnings) = world.becomes(None, &of_its_own(odd.clone()));
    assert_eq!(after["spec"]["topology"]["controlPlane"], json!({}));
    assert!(warnings[0].contains("not of its own"), "{warnings:?}");

    // One that was there before the webhook was is kept, and completed as that of a pool is.
    let mut stored = world.made("v1.35", &json!([]));
    stored["spec"]["topology"]["controlPlane"]["variables"] =
        json!({"overrides": [{"name": "TKR_DATA", "value": odd}]});
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let mut without = bumped.clone();
    without["spec"]["topology"]
        .as_object_mut()
        .unwrap()
        .remove("controlPlane");
    for bumped in [&bumped, &without] {
        let (after, _) = world.becomes(Some(&stored), bumped);
        let own = &after["spec"]["topology"]["controlPlane"]["variables"]["overrides"];
        assert_eq!(image_of(own, "v1.35.4"), "odd");
        assert_eq!(image_of(own, "v1.36.3"), "v1.36.3---a.11-ubuntu");
    }
}

/// A backup is older than the catalogue: its release was deactivated, or deleted, or has other images.
#[test]
fn a_cluster_that_is_restored_needs_no_release_that_can_be_taken() {
    let mut world = World::new();
    let pools = json!([{"name": "b", "class": "photon"}]);
    let (stored, _) = world.becomes(None, &new("v1.35", &pools));
    world.images.clear();
    let (after, warnings) = world.becomes(None, &stored);
    assert_eq!(after, stored);
    assert!(
        warnings[0].contains("v1.35.4---a.10, which has no OSImage for controlPlane"),
        "{warnings:?}"
    );
    world.label("v1.35.4---a.10", label::DEACTIVATED);
    assert_eq!(world.becomes(None, &stored).0, stored);
    world.releases.remove("v1.35.4---a.10");
    assert_eq!(world.becomes(None, &stored).0, stored);
    let mut other = stored.clone();
    other["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.8");
    assert!(
        world.refusal(None, &other).contains("does not exist"),
        "the entry names another release"
    );
}

#[test]
fn a_label_that_is_put_back_is_said() {
    let world = World::new();
    let stored = world.made("v1.35", &json!([]));
    let mut removed = stored.clone();
    removed["metadata"]["labels"] = json!({});
    let (after, warnings) = world.becomes(Some(&stored), &removed);
    assert_eq!(after, stored);
    assert!(warnings[0].contains("put back, because"), "{warnings:?}");
}

/// A version that was written while no replica answered has no entry, and a pin has no image: machines are made of neither.
#[test]
fn what_nothing_runs_is_completed() {
    let mut world = World::new();
    world.release("v1.36.3", 12, &["ubuntu", "photon"]);
    world.runs("v1.35.4");
    let stored = world.made("v1.35", &json!([{"name": "b", "class": "photon"}]));
    let mut missed = stored.clone();
    missed["spec"]["topology"]["version"] = json!("v1.36.3");
    let mut labelled = missed.clone();
    labelled["metadata"]["labels"][label::TKR] = json!("v1.36.3---a.11");
    let (after, warnings) = world.becomes(Some(&missed), &labelled);
    assert_eq!(common(&after, "v1.36.3"), "v1.36.3---a.11-ubuntu");
    assert_eq!(override_of(&after, 0, "v1.36.3"), "v1.36.3---a.11-photon");
    assert_eq!(warnings, Vec::<String>::new());

    let mut pinned = stored.clone();
    pinned["spec"]["topology"]["variables"][0]["value"]["v1.36.3"] =
        json!({"labels": {label::TKR: "v1.36.3---a.11"}});
    let mut bumped = pinned.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    for before in [&stored, &pinned] {
        let (after, _) = world.becomes(Some(before), &bumped);
        assert_eq!(
            common(&after, "v1.36.3"),
            "v1.36.3---a.11-ubuntu",
            "explicit beats newest"
        );
        assert_eq!(override_of(&after, 0, "v1.36.3"), "v1.36.3---a.11-photon");
    }
}
