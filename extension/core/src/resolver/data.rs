//! Variable `TKR_DATA`: release and OSImage of machines, by Kubernetes version.

use serde_json::{Map, Value, json};
use sluice_crds::{
    foreign::cluster::{Topology, Variable, Variables},
    labels::{label, name},
    run::{ContainerImage, OSImage, TanzuKubernetesRelease},
};

use kube::ResourceExt as _;

use crate::{releases::of_image_itself, version::KubernetesVersion};

/// Entries by Kubernetes version.
pub(super) type Entries = Map<String, Value>;

/// Builds the entry for a release and one of its images. `repository` is the registry of all container images, if the Cluster has a
/// single one.
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

/// Returns a machine label of an entry: the release or the image.
pub(super) fn label_of<'a>(entry: &'a Value, key: &str) -> Option<&'a str> {
    entry.get("labels")?.get(key)?.as_str()
}

/// Returns the value of `TKR_DATA` among these variables, if set.
pub(super) fn value_in(variables: &Variables) -> Option<Value> {
    variables.get(name::TKR_DATA).map(Variable::value)
}

/// Returns the registry of all container images of a Cluster, if set.
pub(super) fn repository(topology: &Topology) -> Option<String> {
    let repository = topology.variable(name::IMAGE_REPOSITORY)?;
    let host = repository.get("host")?.as_str();
    host.filter(|host| !host.is_empty()).map(str::to_owned)
}

/// Returns the entries of a value.
///
/// # Errors
/// The fault of its shape, with its path.
pub(super) fn entries(value: &Value) -> Result<&Entries, String> {
    const SHAPE: &str = "TKR_DATA is an object with an object {kubernetesSpec, osImageRef, labels} for each Kubernetes version";
    let Some(entries) = value.as_object() else {
        return Err(format!("it is not an object; {SHAPE}"));
    };
    for (version, entry) in entries {
        if version.parse::<KubernetesVersion>().is_err() {
            return Err(format!("key {version:?} is not a Kubernetes version; {SHAPE}"));
        }
        let Some(entry) = entry.as_object() else {
            return Err(format!("the entry for {version} is not an object; {SHAPE}"));
        };
        for field in ["kubernetesSpec", "osImageRef", "labels"] {
            if entry.get(field).is_some_and(|value| !value.is_object()) {
                return Err(format!("{field} of {version} is not an object; {SHAPE}"));
            }
        }
        let labels = entry.get("labels").and_then(Value::as_object);
        if labels.is_some_and(|labels| labels.values().any(|value| !value.is_string())) {
            return Err(format!("a label of {version} is not a string; {SHAPE}"));
        }
    }
    Ok(entries)
}

/// Whether a change of earlier entries has to be reverted: machines may run their versions.
pub(super) fn is_put_back(before: &Entries, asked: Option<&Entries>) -> bool {
    asked.is_some_and(|asked| {
        before
            .iter()
            .any(|(version, entry)| asked.get(version) != Some(entry))
    })
}

/// Returns the requested entries with the earlier ones restored, and with an entry for `version` if there was none.
pub(super) fn with_entry(before: &Entries, asked: Option<&Entries>, version: &str, entry: &Value) -> Entries {
    let mut entries = asked.cloned().unwrap_or_default();
    entries.insert(version.to_owned(), entry.clone());
    entries.extend(before.clone());
    entries
}

/// Returns the entries among these variables, if they have the right shape.
pub(super) fn entries_in(variables: &Variables) -> Option<Entries> {
    match value_in(variables)? {
        Value::Object(entries) => Some(entries),
        _ => None,
    }
}

/// Whether an entry is enough to create machines. An entry without an image only pins a release.
pub(super) fn is_whole(entry: &Value) -> bool {
    entry.get("osImageRef").is_some()
}

/// Returns the release that the entry for a version names, if machines can be made of the entry.
pub(super) fn made_of<'a>(entries: &'a Entries, version: &str) -> Option<&'a str> {
    let entry = entries.get(version).filter(|entry| is_whole(entry))?;
    label_of(entry, label::TKR)
}

/// Returns the requested entries with the earlier ones restored, without a new entry.
pub(super) fn kept(before: &Entries, asked: Option<&Entries>) -> Entries {
    let mut entries = asked.cloned().unwrap_or_default();
    entries.extend(before.clone());
    entries
}
