//! Entry for the next Kubernetes version of an upgrade, and the release of that version.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::{
    foreign::{
        Cluster, ClusterClass,
        cluster::{Topology, Variables},
    },
    labels::{label, name},
    run::{OSImage, TanzuKubernetesRelease},
};

use super::{
    asks, data,
    part::{image_selectors, pools},
    steps::{control_plane_overrides, overrides, variable_lists},
    swap::{Replaced, query, render},
};
use crate::cache::stores::{Images, Releases};

/// Whether machines of a Cluster are made of entries that Sluice writes: the class declares the variable, and a release is requested or an
/// entry names one.
#[must_use]
pub fn has_entries(cluster: &Cluster, class: &ClusterClass) -> bool {
    let names_release = |topology: &Topology| {
        let mut entries = data::entries_in(&topology.variables).into_iter().flatten();
        entries.any(|(_, entry)| data::label_of(&entry, label::TKR).is_some())
    };
    class.spec.declares(name::TKR_DATA)
        && (asks(&cluster.metadata, Some(class)).is_some()
            || cluster.spec.topology.as_ref().is_some_and(names_release))
}

/// Whether the machines of a part could not be made at a Kubernetes version: its entry is missing, or has no image.
#[must_use]
pub fn lacks_entry(topology: &Topology, version: &str) -> bool {
    let lacks = |variables: &Variables| {
        let entries = data::entries_in(variables);
        let entry = entries.as_ref().and_then(|entries| entries.get(version));
        !entry.is_some_and(data::is_whole)
    };
    let of_pools = pools(topology).map(|(_, _, pool)| overrides(pool.variables.as_ref()));
    // Own entries hide those of the Cluster.
    let mut own = of_pools
        .chain([control_plane_overrides(topology)])
        .filter(|own| own.get(name::TKR_DATA).is_some());
    lacks(&topology.variables) || own.any(lacks)
}

/// Whether a Cluster requests a resolution, or a part of it selects its image, so that releases describe its machines.
#[must_use]
pub fn describes_images(cluster: &Cluster, class: &ClusterClass) -> bool {
    let of_parts = |topology| image_selectors(topology, class);
    let selectors = cluster.spec.topology.as_ref().and_then(of_parts);
    asks(&cluster.metadata, Some(class)).is_some()
        || selectors.is_some_and(|selectors| selectors.iter().any(Option::is_some))
}

/// Returns the field of the first variable to which no entry can be added, because its value is not an object.
#[must_use]
pub fn odd_entries(topology: &Topology) -> Option<String> {
    let (field, _) = variable_lists(topology)
        .find(|(_, variables)| data::value_in(variables).is_some_and(|value| !value.is_object()))?;
    Some(format!("{field}[{}]", name::TKR_DATA))
}

/// Returns the field of the first variable whose entry for a Kubernetes version does not give the label of a release to Nodes, if any. Own
/// entries of a part hide those of the Cluster.
#[must_use]
pub fn unlabelled_nodes(topology: &Topology, version: &str, release: &str) -> Option<String> {
    let is_labelled = |variables: &Variables| {
        let entries = data::entries_in(variables);
        let entry = entries.as_ref().and_then(|entries| entries.get(version));
        entry.and_then(|entry| data::label_of(entry, label::TKR)) == Some(release)
    };
    let mut lists = variable_lists(topology).enumerate();
    let (_, (field, _)) = lists.find(|(index, (_, variables))| {
        let has_entries = *index == 0 || variables.get(name::TKR_DATA).is_some();
        has_entries && !is_labelled(variables)
    })?;
    Some(format!("{field}[{}]", name::TKR_DATA))
}

/// Renders the operations of RFC 6902 that add the entries of a release for its Kubernetes version, which no machine runs: to the Cluster,
/// which may not have the variable yet, and to each part with its own entries or another image. Entries with an image stay.
#[must_use]
pub fn render_missing(
    cluster: &Cluster,
    release: &TanzuKubernetesRelease,
    images: &[Arc<OSImage>],
) -> Vec<Value> {
    render(cluster, release, images, Replaced::Incomplete)
}

/// Returns the newest usable release of a Kubernetes version on the way to another one.
///
/// # Errors
/// One line that says why no release of the version is usable, the newest first.
pub fn newest_release(
    cluster: &Cluster,
    class: &ClusterClass,
    (releases, images): (&Releases, Option<&Images>),
    version: &str,
) -> Result<String, String> {
    let of_version: Releases = releases
        .iter()
        .filter(|(_, release)| release.spec.kubernetes.version == version)
        .map(|(name, release)| (name.clone(), Arc::clone(release)))
        .collect();
    let (mut query, parts) = query(cluster, class, (&of_version, images), version)?;
    if !class.spec.declares(name::TKR_DATA) && parts.iter().all(|part| part.text.is_none()) {
        query.images = None;
    } else if images.is_none() {
        return Err("Sluice has not listed all OSImages yet".to_owned());
    }
    Ok(query.newest(&parts)?.release.name_any())
}
