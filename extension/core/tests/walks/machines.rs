//! Model of machines with images: OSImages, the variable `TKR_DATA`, its webhook, and machines that Cluster API replaces.

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::Server::Management;
use sluice_crds::labels::{annotation, label, name};

use crate::{
    capi::{record, version_at},
    objects::{
        CATALOGUE, HIGHER_RELEASE, PACKAGE_VERSIONS, PACKAGES, PlannedBy, REBUILT_RELEASE, RELEASES,
        VERSIONS, a_class, a_release, a_template, class, cluster, control_plane, package, package_name,
        package_place, planned_by, release, servers, template, version_of_release, worker,
    },
    servers::{Place, Servers, place},
    truth::may_roll_back,
};

/// Distribution that each part selects: the control plane, and the pool, whose entries are an override.
const PARTS: [&str; 2] = ["ubuntu", "photon"];
const POOL: usize = 1;

/// Annotation by which a pool stays at its version.
const DEFERRED: &str = "topology.cluster.x-k8s.io/defer-upgrade";

/// Number of machines of each part.
const REPLICAS: u8 = 1;

fn places() -> [Place; 2] {
    [control_plane(), worker()]
}

fn image_name(release: usize, part: usize) -> String {
    format!("{}-{}", RELEASES[release], PARTS[part])
}

fn os_image(name: &str) -> Place {
    place(Management, "osimages", "", name)
}

/// Returns the reference of an image with this content.
pub(crate) fn reference(release: usize, part: usize, content: &str) -> Value {
    json!({"template": format!("{}-{content}", image_name(release, part))})
}

fn an_image(release: usize, part: usize, content: &str) -> Value {
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {},
        "spec": {
            "kubernetesVersion": VERSIONS[version_of_release(release)],
            "os": {"type": "linux", "name": PARTS[part], "version": "5", "arch": "amd64"},
            "image": {"type": "ova", "ref": reference(release, part, content)},
        },
    })
}

/// Returns a release; in a walk with images, with the names of its images.
pub(crate) fn release_of(servers: &Servers, index: usize) -> Value {
    let mut release = a_release(index);
    if has_images(servers) {
        release["spec"]["osImages"] = [0, POOL]
            .map(|part| json!({"name": image_name(index, part)}))
            .into();
    }
    release
}

/// Returns the ClusterClass with these steps; in a walk with images, with the selectors of its parts.
pub(crate) fn class_of(servers: &Servers, planned_by: PlannedBy, declares: bool) -> Value {
    let mut class = a_class(planned_by);
    if !has_images(servers) {
        return class;
    }
    let selects = |part: usize| json!({"annotations": {annotation::RESOLVE_OS_IMAGE: format!("os-name={}", PARTS[part])}});
    let spec = &mut class["spec"];
    spec["controlPlane"] = json!({"metadata": selects(0)});
    spec["workers"] = json!({"machineDeployments": [{"class": "default", "metadata": selects(POOL)}]});
    if declares {
        spec["variables"] = json!([{"name": name::TKR_DATA}]);
    }
    class
}

/// Returns the entry of a release with its initial image.
fn an_entry(release: usize, part: usize) -> Value {
    let (named, image) = (RELEASES[release], image_name(release, part));
    json!({
        "kubernetesSpec": {"version": VERSIONS[version_of_release(release)]},
        "osImageRef": reference(release, part, "a"),
        "labels": {label::TKR: named, label::OS_IMAGE: image},
    })
}

/// Returns the initial state of walks with images: the machines are made of the first release, and further releases of its version exist.
pub(crate) fn servers_with_images() -> Servers {
    let mut servers = servers();
    for index in 0..RELEASES.len() {
        for part in [0, POOL] {
            servers.put(os_image(&image_name(index, part)), an_image(index, part, "a"));
        }
    }
    restore_releases(&mut servers);
    let class_with_images = class_of(&servers, PlannedBy::default(), true);
    servers.put(class(), class_with_images);
    let data = |part: usize| {
        // Paths of a patch count the variables that Sluice does not read.
        let other = json!({"name": "other", "value": "any"});
        json!([other, {"name": name::TKR_DATA, "value": {VERSIONS[0]: an_entry(0, part)}}])
    };
    servers.edit(&cluster(), |cluster| {
        let topology = &mut cluster["spec"]["topology"];
        topology["variables"] = data(0);
        let pool = json!({"class": "default", "name": "md", "variables": {"overrides": data(POOL)}});
        topology["workers"] = json!({"machineDeployments": [pool]});
    });
    servers.edit(&worker(), |worker| {
        worker["metadata"]["labels"] = json!({"topology.cluster.x-k8s.io/deployment-name": "md"});
    });
    for (part, place) in places().iter().enumerate() {
        servers.edit(place, |object| {
            object["spec"]["replicas"] = json!(REPLICAS);
            *image_in(object, part) = reference(0, part, "a");
        });
        servers.edit(place, |object| {
            let generation = object["metadata"]["generation"].clone();
            let status = &mut object["status"];
            status["image"] = reference(0, part, "a");
            status["replicas"] = json!(REPLICAS);
            status["upToDateReplicas"] = json!(REPLICAS);
            status["observedGeneration"] = generation;
        });
    }
    servers
}

/// Whether this is a walk with images.
pub(crate) fn has_images(servers: &Servers) -> bool {
    servers.of(Management, "osimages").next().is_some()
}

fn data_path(part: usize) -> &'static str {
    match part {
        POOL => "/spec/topology/workers/machineDeployments/0/variables/overrides",
        _ => "/spec/topology/variables",
    }
}

/// Returns the entries of a part: of its override, otherwise of the Cluster.
fn data(cluster: &Value, part: usize) -> &Value {
    let of = |part: usize| {
        let variables = cluster.pointer(data_path(part))?.as_array()?;
        let data = variables
            .iter()
            .find(|variable| variable["name"] == name::TKR_DATA)?;
        Some(&data["value"])
    };
    of(part).or_else(|| of(0)).unwrap_or(&Value::Null)
}

/// Returns the entries of both parts for a version.
pub(crate) fn entries(cluster: &Value, version: usize) -> [&Value; 2] {
    [0, POOL].map(|part| &data(cluster, part)[VERSIONS[version]])
}

/// Returns release, image and its reference of an entry.
pub(crate) fn brief_entry(entry: &Value) -> Value {
    json!([
        entry["labels"][label::TKR],
        entry["labels"][label::OS_IMAGE],
        entry["osImageRef"]
    ])
}

/// Returns the release of an entry.
pub(crate) fn release_in(entry: &Value) -> Option<usize> {
    let named = &entry["labels"][label::TKR];
    RELEASES.iter().position(|release| named == release)
}

/// Returns the release that the entry of the Cluster for a version names.
pub(crate) fn pinned(servers: &Servers, version: usize) -> Option<usize> {
    let [common, _] = entries(servers.get(&cluster())?, version);
    release_in(common)
}

/// Returns the release of the entry for the version of the control plane.
pub(crate) fn made_of(servers: &Servers) -> Option<usize> {
    pinned(servers, version_at(servers, &control_plane(), "spec"))
}

/// Whether both parts have an entry with an image for a version, or need none: the class does not declare the variable, or no entry names a
/// release.
pub(crate) fn are_entered(servers: &Servers, version: usize) -> bool {
    let Some(cluster) = servers.get(&cluster()) else {
        return true;
    };
    let names_release = |version: usize| release_in(entries(cluster, version)[0]).is_some();
    let is_needed = is_declared(servers) && (0..VERSIONS.len()).any(names_release);
    !is_needed || entries(cluster, version).iter().all(|entry| has_image(entry))
}

/// Whether machines can be made of an entry.
pub(crate) fn has_image(entry: &Value) -> bool {
    !entry["osImageRef"].is_null()
}

/// Returns the release that the label of the Cluster names.
pub(crate) fn labelled(servers: &Servers) -> Option<usize> {
    let label = &servers.get(&cluster())?["metadata"]["labels"][label::TKR];
    RELEASES.iter().position(|release| label == release)
}

/// Whether the class declares the variable.
pub(crate) fn is_declared(servers: &Servers) -> bool {
    let class = servers.get(&class());
    let variables = class.and_then(|class| class["spec"]["variables"].as_array());
    let mut variables = variables.into_iter().flatten();
    variables.any(|variable| variable["name"] == name::TKR_DATA)
}

/// Returns release, image and its reference that the objects of the API server give for a release, by part; `None` without exactly one
/// image.
pub(crate) fn rendered(servers: &Servers, index: usize) -> [Option<Value>; 2] {
    let is_usable = |object: &&Value| object["metadata"]["labels"][label::DEACTIVATED].is_null();
    let release = servers.get(&release(index)).filter(is_usable);
    [0, POOL].map(|part| {
        let named = release?["spec"]["osImages"].as_array()?.iter();
        let mut images = named.filter_map(|named| {
            let name = named["name"].as_str()?;
            let image = servers.get(&os_image(name)).filter(is_usable)?;
            let spec = &image["spec"];
            (spec["os"]["name"] == PARTS[part]).then(|| json!([RELEASES[index], name, spec["image"]["ref"]]))
        });
        let only = images.next()?;
        images.next().is_none().then_some(only)
    })
}

fn image_in(object: &mut Value, part: usize) -> &mut Value {
    match part {
        POOL => &mut object["spec"]["template"]["spec"]["image"],
        _ => &mut object["spec"]["image"],
    }
}

/// Returns the desired image of a part.
fn wanted_image(object: &Value, part: usize) -> &Value {
    match part {
        POOL => &object["spec"]["template"]["spec"]["image"],
        _ => &object["spec"]["image"],
    }
}

/// Returns the images that machines are made of, by part.
pub(crate) fn images(servers: &Servers) -> [Value; 2] {
    places().map(|place| {
        let object = servers.get(&place);
        object
            .map(|object| object["status"]["image"].clone())
            .unwrap_or_default()
    })
}

/// Whether all machines are made of the entries of the Cluster.
pub(crate) fn are_replaced(servers: &Servers) -> bool {
    let Some(cluster) = servers.get(&cluster()) else {
        return false;
    };
    let wanted = entries(cluster, version_at(servers, &control_plane(), "spec"));
    images(servers)
        .iter()
        .zip(wanted)
        .all(|(image, entry)| *image == entry["osImageRef"])
}

/// Cluster API writes the images of the entries of a cached Cluster to both parts at the same time, and reports its generation. Without
/// images, only rollbacks depend on that report.
pub(crate) fn reconcile(servers: &mut Servers, cached: &Value) {
    let has_images = has_images(servers);
    if !has_images && !may_roll_back(servers) {
        return;
    }
    let is_declared = is_declared(servers);
    let mut is_upgrading = false;
    for (part, place) in places().iter().enumerate() {
        let version = version_at(servers, place, "spec");
        let is_at_target = cached["spec"]["topology"]["version"] == VERSIONS[version];
        is_upgrading |= !is_at_target || version_at(servers, place, "status") != version;
        let entry = entries(cached, version)[part];
        let image = &entry["osImageRef"];
        if is_declared && !image.is_null() {
            servers.edit(place, |object| image_in(object, part).clone_from(image));
        }
    }
    let status = if (is_declared || !has_images) && !is_upgrading {
        "True"
    } else {
        "False"
    };
    servers.edit(&cluster(), |cluster| {
        let generation = cached["metadata"]["generation"].clone();
        cluster["status"]["conditions"] =
            json!([{"type": name::TOPOLOGY_RECONCILED, "status": status, "observedGeneration": generation}]);
    });
}

/// The machines of an object at its version are those of its image.
pub(crate) fn take_image(servers: &mut Servers, place: &Place) {
    set_machines(servers, place, true);
}

/// The controller of an object observes another image, or has replaced the machines of an observed one. Returns whether anything changed.
pub(crate) fn replace(servers: &mut Servers, place: &Place) -> bool {
    let Some(object) = servers.get(place) else {
        return false;
    };
    let status = &object["status"];
    if status["image"].is_null() {
        return false;
    }
    let is_observed = status["observedGeneration"] == object["metadata"]["generation"];
    let is_replaced = status["image"] == *wanted_image(object, part_of(place));
    if is_observed && is_replaced {
        return false;
    }
    set_machines(servers, place, is_observed || is_replaced);
    true
}

fn part_of(place: &Place) -> usize {
    usize::from(place.1 == "machinedeployments")
}

fn set_machines(servers: &mut Servers, place: &Place, are_replaced: bool) {
    servers.edit(place, |object| {
        if object["status"]["image"].is_null() {
            return;
        }
        let generation = object["metadata"]["generation"].clone();
        let wanted = wanted_image(object, part_of(place)).clone();
        let status = &mut object["status"];
        status["observedGeneration"] = generation;
        status["upToDateReplicas"] = json!(if are_replaced { REPLICAS } else { 0 });
        if are_replaced {
            status["image"] = wanted;
        }
    });
}

/// Whether the webhook refuses the label: a release below that of the machines.
pub(crate) fn is_refused(servers: &Servers, label: usize) -> bool {
    let is_lower = |pinned: usize| label < pinned && version_of_release(label) == version_of_release(pinned);
    has_images(servers) && made_of(servers).is_some_and(is_lower)
}

/// The webhook puts the entry of the label's release into a changed Cluster, unless machines may run its version.
pub(crate) fn review(servers: &mut Servers) {
    let Some(release) = labelled(servers).filter(|_| has_images(servers)) else {
        return;
    };
    let version = version_of_release(release);
    let is_target = |object: &Value| object["spec"]["topology"]["version"] == VERSIONS[version];
    let runs = |place: &Place| {
        ["spec", "status"]
            .iter()
            .any(|part| version_at(servers, place, part) == version)
    };
    let opens = record(servers).is_some_and(|record| {
        let mut gates = record.gates.iter();
        gates.any(|gate| gate.open && gate.version == VERSIONS[version])
    });
    if !servers.get(&cluster()).is_some_and(is_target) || places().iter().any(runs) || opens {
        return;
    }
    servers.edit(&cluster(), |cluster| {
        for part in [0, POOL] {
            let variables = cluster.pointer_mut(data_path(part)).and_then(Value::as_array_mut);
            let is_data = |variable: &&mut Value| variable["name"] == name::TKR_DATA;
            for variable in variables.into_iter().flatten().filter(is_data) {
                variable["value"][VERSIONS[version]] = an_entry(release, part);
            }
        }
    });
}

/// Stores an edited Cluster with the operations of the webhook. Asserts that each part keeps the entry of its versions.
pub(crate) fn admit(servers: &mut Servers, before: &Value, patch: Vec<Value>) {
    if patch.is_empty() {
        return;
    }
    servers
        .json_patch(&cluster(), &patch.into())
        .expect("operations of the webhook");
    let after = servers.get(&cluster()).expect("a Cluster");
    for place in places() {
        for of in ["spec", "status"] {
            let version = version_at(servers, &place, of);
            let [old, new] = [before, after].map(|cluster| entries(cluster, version)[part_of(&place)]);
            assert!(
                old.is_null() || !new.is_null(),
                "pruned: the entry of {} is removed, and {of} of {place:?} has this version",
                VERSIONS[version],
            );
        }
    }
}

/// The pool stays at its version while Cluster API upgrades the others, or does not.
pub(crate) fn defer(servers: &mut Servers, defers: bool) {
    let annotations = if defers { json!({DEFERRED: ""}) } else { json!({}) };
    servers.edit(&cluster(), |cluster| {
        let pool = &mut cluster["spec"]["topology"]["workers"]["machineDeployments"][0];
        pool["metadata"] = json!({"annotations": annotations});
    });
}

/// Whether the pool stays at its version.
pub(crate) fn is_deferred(cluster: &Value) -> bool {
    let pool = &cluster["spec"]["topology"]["workers"]["machineDeployments"][0];
    !pool["metadata"]["annotations"][DEFERRED].is_null()
}

/// Removes all entries.
pub(crate) fn remove_entries(servers: &mut Servers) {
    servers.edit(&cluster(), |cluster| {
        for part in [0, POOL] {
            let variables = cluster.pointer_mut(data_path(part)).and_then(Value::as_array_mut);
            if let Some(variables) = variables {
                variables.retain(|variable| variable["name"] != name::TKR_DATA);
            }
        }
    });
}

/// Sets or removes the label that deactivates a release.
pub(crate) fn deactivate(servers: &mut Servers, index: usize, sets: bool) {
    servers.edit(&release(index), |release| {
        let metadata = &mut release["metadata"];
        if sets {
            metadata["labels"] = json!({label::DEACTIVATED: ""});
        } else if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("labels");
        }
    });
}

/// Removes the image of the control plane from a release.
pub(crate) fn remove_image(servers: &mut Servers, release: usize) {
    servers.remove(&os_image(&image_name(release, 0)));
}

/// Sets the content of both images of a release.
pub(crate) fn replace_images(servers: &mut Servers, release: usize, content: &str) {
    for part in [0, POOL] {
        let place = os_image(&image_name(release, part));
        servers.edit(&place, |image| {
            image["spec"]["image"]["ref"] = reference(release, part, content);
        });
    }
}

/// Returns the place of an object that stands for a webhook of a user: it refuses JSON patches of Clusters.
pub(crate) fn refusing() -> Place {
    place(Management, "validatingwebhookconfigurations", "", "refuses")
}

/// Restores releases with their images and packages, images that do not exist, and the class.
pub(crate) fn restore(servers: &mut Servers) {
    if !has_images(servers) {
        return;
    }
    for index in 0..RELEASES.len() {
        deactivate(servers, index, false);
        for part in [0, POOL] {
            let place = os_image(&image_name(index, part));
            if servers.get(&place).is_none() {
                servers.put(place, an_image(index, part, "a"));
            }
        }
    }
    restore_releases(servers);
    let restored = class_of(servers, planned_by(servers), true);
    servers.edit(&class(), |class| class["spec"] = restored["spec"].clone());
    servers.remove(&refusing());
}

fn restore_releases(servers: &mut Servers) {
    let existing = (0..RELEASES.len()).filter(|index| servers.get(&release(*index)).is_some());
    let mut indexes: Vec<usize> = existing.chain(HIGHER_RELEASE..=REBUILT_RELEASE).collect();
    indexes.sort_unstable();
    indexes.dedup();
    for index in indexes {
        let objects = [
            (release(index), release_of(servers, index)),
            (template(index), a_template(index)),
        ];
        for (place, object) in objects {
            put_spec(servers, place, object);
        }
    }
    for version in CATALOGUE..PACKAGE_VERSIONS.len() {
        for which in PACKAGES {
            let place = package_place(&package_name(which, version));
            put_spec(servers, place, package(which, version, "a"));
        }
    }
}

/// Creates an object, or restores its spec.
fn put_spec(servers: &mut Servers, place: Place, mut object: Value) {
    if servers.get(&place).is_none() {
        servers.put(place, object);
    } else {
        let spec = object["spec"].take();
        servers.edit(&place, |found| found["spec"] = spec);
    }
}
