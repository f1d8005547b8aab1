//! The variable `TKR_DATA`: by Kubernetes version, what machines of it are made of.

use serde_json::{Map, Value, json};
use sluice_crds::{
    foreign::cluster::{Topology, Variables},
    labels::{label, name},
    run::{ContainerImage, OSImage, TanzuKubernetesRelease},
};

use kube::ResourceExt as _;

use crate::{releases::of_image_itself, version::KubernetesVersion};

/// Entries by Kubernetes version.
pub(super) type Entries = Map<String, Value>;

/// What machines of a release are made of, from one of its images. `repository` is where all container images come from, if they come
/// from one place.
pub(super) fn entry(release: &TanzuKubernetesRelease, image: &OSImage, repository: Option<&str>) -> Value {
    let mut spec = release.spec.kubernetes.clone();
    if let Some(repository) = repository {
        repository.clone_into(&mut spec.image_repository);
    }
    let default = spec.image_repository.clone();
    let images = [
        &mut spec.etcd,
        &mut spec.pause,
        &mut spec.coredns,
        &mut spec.kube_vip,
    ];
    for ContainerImage { image_repository, .. } in images.into_iter().flatten() {
        if repository.is_some() || image_repository.is_empty() {
            default.clone_into(image_repository);
        }
    }
    let mut labels = of_image_itself(&image.spec);
    labels.insert(label::TKR.to_owned(), release.name_any());
    labels.insert(label::OS_IMAGE.to_owned(), image.name_any());
    json!({"kubernetesSpec": spec, "osImageRef": image.spec.image.ref_, "labels": labels})
}

/// A label of the machines that an entry is for: the release, or the image, that they are made of.
pub(super) fn label_of<'a>(entry: &'a Value, key: &str) -> Option<&'a str> {
    entry.get("labels")?.get(key)?.as_str()
}

/// The value among these variables, if there is one.
pub(super) fn value_in(variables: &Variables) -> Option<&Value> {
    variables.get(name::TKR_DATA).map(|variable| &variable.value)
}

/// Where all container images of a Cluster come from, if it says so.
pub(super) fn repository(topology: &Topology) -> Option<&str> {
    let host = topology.variable(name::IMAGE_REPOSITORY)?.get("host")?.as_str();
    host.filter(|host| !host.is_empty())
}

/// The entries of a value.
///
/// # Errors
/// What is wrong with its shape, and where.
pub(super) fn entries(value: &Value) -> Result<&Entries, String> {
    const SHAPE: &str = "TKR_DATA is an object with an object {kubernetesSpec, osImageRef, labels} for each Kubernetes version";
    let Some(entries) = value.as_object() else {
        return Err(format!("it is no object; {SHAPE}"));
    };
    for (version, entry) in entries {
        if version.parse::<KubernetesVersion>().is_err() {
            return Err(format!("key {version:?} is no Kubernetes version; {SHAPE}"));
        }
        let Some(entry) = entry.as_object() else {
            return Err(format!("what it has for {version} is no object; {SHAPE}"));
        };
        for field in ["kubernetesSpec", "osImageRef", "labels"] {
            if entry.get(field).is_some_and(|value| !value.is_object()) {
                return Err(format!("{field} of {version} is no object; {SHAPE}"));
            }
        }
        let labels = entry.get("labels").and_then(Value::as_object);
        if labels.is_some_and(|labels| labels.values().any(|value| !value.is_string())) {
            return Err(format!("a label of {version} is no text; {SHAPE}"));
        }
    }
    Ok(entries)
}

/// Whether a change of the entries before is put back: machines may run what they are for.
pub(super) fn is_put_back(before: &Entries, asked: Option<&Entries>) -> bool {
    asked.is_some_and(|asked| {
        before
            .iter()
            .any(|(version, entry)| asked.get(version) != Some(entry))
    })
}

/// What was asked for, with the entries before as they were, and with an entry for `version` where there was none.
pub(super) fn with_entry(before: &Entries, asked: Option<&Entries>, version: &str, entry: &Value) -> Entries {
    let mut entries = asked.cloned().unwrap_or_default();
    entries.insert(version.to_owned(), entry.clone());
    entries.extend(before.clone());
    entries
}

/// The entries of an object among these variables, as far as it has the shape.
pub(super) fn entries_in(variables: &Variables) -> Option<&Entries> {
    value_in(variables)?.as_object()
}

/// Whether machines can be made of an entry; one without an image only pins a release.
pub(super) fn is_whole(entry: &Value) -> bool {
    entry.get("osImageRef").is_some()
}

/// The same without another entry.
pub(super) fn kept(before: &Entries, asked: Option<&Entries>) -> Entries {
    let mut entries = asked.cloned().unwrap_or_default();
    entries.extend(before.clone());
    entries
}
