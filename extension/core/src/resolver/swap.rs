//! Replacement of the entries for a Kubernetes version by those of another release, and the order of these releases.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{Cluster, ClusterClass, cluster::Variables},
    labels::name,
    run::{OSImage, TanzuKubernetesRelease},
};

use super::{
    asks,
    data::{self, Entries},
    part::{Part, is_short, parts, pools},
    pick::{Picked, Query},
    running::Machines,
    selector,
    steps::{control_plane_overrides, overrides, put, put_pool},
};
use crate::{
    cache::stores::{Images, Releases},
    releases::{from_label, version_label},
    version::order,
};

/// Release for the machines of a Cluster, with the only matching image of each part.
#[derive(Debug, Clone)]
pub struct ReleaseMachines {
    /// The release.
    pub release: Arc<TanzuKubernetesRelease>,
    /// The images: of the control plane, then of each pool in the order of the topology.
    pub images: Vec<Arc<OSImage>>,
}

impl ReleaseMachines {
    /// Returns the images, each once.
    pub fn distinct_images(&self) -> impl Iterator<Item = &Arc<OSImage>> {
        let mut known = BTreeSet::new();
        self.images
            .iter()
            .filter(move |image| known.insert(image.name_any()))
    }
}

/// Returns the images of release `to` for the machines of a Cluster.
///
/// # Errors
/// One line that says why no machine can be made of the release.
pub fn release_machines(
    cluster: &Cluster,
    class: &ClusterClass,
    releases: &Releases,
    images: &Images,
    to: &str,
) -> Result<ReleaseMachines, String> {
    machines(cluster, class, (releases, images), to, |query, release, parts| {
        query.taken(release, parts)
    })
}

/// Returns the images of release `to`, which an entry without an image pins, for the machines of a Cluster. As at admission, it may be a
/// release that is not usable for other Clusters.
///
/// # Errors
/// One line that says why no machine can be made of the release.
pub fn pinned_machines(
    cluster: &Cluster,
    class: &ClusterClass,
    releases: &Releases,
    images: &Images,
    to: &str,
) -> Result<ReleaseMachines, String> {
    machines(cluster, class, (releases, images), to, |query, release, parts| {
        query.images_in(release, parts)
    })
}

fn machines(
    cluster: &Cluster,
    class: &ClusterClass,
    (releases, images): (&Releases, &Images),
    to: &str,
    pick: impl FnOnce(&Query<'_>, &Arc<TanzuKubernetesRelease>, &[Part]) -> Result<Picked, String>,
) -> Result<ReleaseMachines, String> {
    let cannot = |why: &str| format!("TanzuKubernetesRelease {to} {why}");
    let release = releases.get(to).ok_or_else(|| cannot("does not exist"))?;
    let version = &release.spec.kubernetes.version;
    let (query, parts) = query(cluster, class, (releases, Some(images)), version)?;
    let picked = pick(&query, release, &parts);
    let Picked { release, images } = picked.map_err(|why| cannot(&why))?;
    Ok(ReleaseMachines { release, images })
}

/// Builds the query for releases of a Kubernetes version. Returns it with the parts of the Cluster.
pub(super) fn query<'a>(
    cluster: &'a Cluster,
    class: &'a ClusterClass,
    (releases, images): (&'a Releases, Option<&'a Images>),
    version: &str,
) -> Result<(Query<'a>, Vec<Part>), String> {
    let topology = cluster.spec.topology.as_ref();
    let topology = topology.ok_or("the Cluster has no topology")?;
    let text = asks(&cluster.metadata, Some(class)).unwrap_or_default();
    is_short(text)?;
    let parts = parts(topology, class).map_err(|faults| {
        let first = faults.first().map(ToString::to_string);
        first.unwrap_or_default()
    })?;
    let query = Query {
        prefix: version_label(version),
        text,
        selector: selector::parse(text).map_err(|error| error.to_string())?,
        releases,
        images,
        of_images: parts.selectors,
        keys: parts.keys,
    };
    Ok((query, parts.all))
}

/// Entries that a patch replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    /// All entries for the version, which machines run.
    All,
    /// Entries without an image, and missing ones.
    Incomplete,
}

impl Replaced {
    /// Whether another entry stays.
    fn keeps(self, entry: &Value) -> bool {
        self == Self::Incomplete && data::is_whole(entry)
    }
}

/// Renders the operations of RFC 6902 that replace the machines of a Cluster by those of a release: the entries for its Kubernetes version of
/// the Cluster, of the control plane if it has one of its own, and of each pool with its own entries or another image. All other entries
/// and variables stay. There are no operations if nothing differs.
///
/// Each operation on a list of variables follows a test of the name of its variable.
#[must_use]
pub fn render_swap(
    cluster: &Cluster,
    release: &TanzuKubernetesRelease,
    images: &[Arc<OSImage>],
) -> Vec<Value> {
    render(cluster, release, images, Replaced::All)
}

/// Renders the operations that write entries of a release for its Kubernetes version.
pub(super) fn render(
    cluster: &Cluster,
    release: &TanzuKubernetesRelease,
    images: &[Arc<OSImage>],
    replaced: Replaced,
) -> Vec<Value> {
    let (Some(topology), Some((common, of_pools))) = (&cluster.spec.topology, images.split_first()) else {
        return Vec::new();
    };
    let version = release.spec.kubernetes.version.as_str();
    let repository = data::repository(topology);
    let entry = |image: &OSImage| data::entry(release, image, repository.as_deref());
    let entries = data::entries_in(&topology.variables).unwrap_or_default();
    let mut operations = Vec::new();
    let path = "/spec/topology/variables";
    if replaced == Replaced::Incomplete && topology.variables.get(name::TKR_DATA).is_none() {
        let only = Entries::from_iter([(version.to_owned(), entry(common))]);
        let present = !topology.variables.is_empty();
        put(&topology.variables, present, path, &only, &mut operations);
    } else {
        put_entry(
            &topology.variables,
            path,
            (version, &entry(common)),
            replaced,
            &mut operations,
        );
    }
    let is_written = !operations.is_empty();
    let own = control_plane_overrides(topology);
    let has_own = data::entries_in(own)
        .is_some_and(|own| replaced == Replaced::Incomplete || own.contains_key(version));
    if has_own {
        let path = "/spec/topology/controlPlane/variables/overrides";
        put_entry(own, path, (version, &entry(common)), replaced, &mut operations);
    }
    for ((list, index, pool), image) in pools(topology).zip(of_pools) {
        let own = overrides(pool.variables.as_ref());
        // Own entries hide those of the Cluster, whatever their versions.
        if own.get(name::TKR_DATA).is_some() {
            let path = format!("/spec/topology/workers/{list}/{index}/variables/overrides");
            put_entry(own, &path, (version, &entry(image)), replaced, &mut operations);
        } else if !Arc::ptr_eq(image, common) && (is_written || replaced == Replaced::All) {
            let mut entries = entries.clone();
            entries.insert(version.to_owned(), entry(image));
            put_pool(list, index, pool, Some(&entries), &mut operations);
        }
    }
    operations
}

/// Sets one entry of a list of variables that has some, and leaves the text of the others.
fn put_entry(
    variables: &Variables,
    path: &str,
    (version, entry): (&str, &Value),
    replaced: Replaced,
    operations: &mut Vec<Value>,
) {
    let Some(variable) = variables.get(name::TKR_DATA) else {
        return;
    };
    let value = variable.value();
    let before = value.get(version);
    if before.is_some_and(|before| before == entry || replaced.keeps(before)) {
        return;
    }
    let path = format!("{path}/{}", variable.at);
    operations.push(json!({"op": "test", "path": format!("{path}/name"), "value": name::TKR_DATA}));
    operations.push(json!({"op": "add", "path": format!("{path}/value/{version}"), "value": entry}));
}

/// Compares a release with the one that an entry for its Kubernetes version names; `None` if they have no order.
pub(super) fn compared(
    release: &TanzuKubernetesRelease,
    made_of: &str,
    releases: &Releases,
) -> Option<Ordering> {
    let other = match releases.get(made_of) {
        Some(other) if other.spec.kubernetes.version == release.spec.kubernetes.version => {
            other.spec.version.clone()
        }
        Some(_) => return None,
        None => from_label(made_of),
    };
    order(&release.spec.version, &other)
}

/// Returns why no machine is replaced by one of this release, to be read after its name: machines are made of a higher one.
pub(super) fn lower(
    release: &TanzuKubernetesRelease,
    before: Option<&Entries>,
    releases: &Releases,
    machines: &Machines<'_>,
) -> Option<String> {
    let version = &release.spec.kubernetes.version;
    let made_of = data::made_of(before?, version)?;
    let is_lower = compared(release, made_of, releases) == Some(Ordering::Less);
    (is_lower && machines.may_run(version)).then(|| {
        format!(
            "is lower than TanzuKubernetesRelease {made_of}, which machines of {version} are made of; machines are not replaced by those \
             of an older release"
        )
    })
}
