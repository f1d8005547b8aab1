//! Resolution of a release and OSImages for a Cluster whose `topology.version` is a version prefix (addons-manager §6.6).
//!
//! The mutating webhook on Clusters calls [`resolve`], a function of the old and the new Cluster, its class, and all releases and OSImages.
//! It changes nothing for a Kubernetes version that machines may run, because Cluster API calls no hook for such a change
//! (`design.md` §3.5).

mod change;
mod data;
mod hop;
mod machines;
mod offers;
mod part;
mod paused_edit;
mod pick;
mod pinned_data;
mod running;
mod selector;
mod steps;
mod swap;
mod unresolved;
mod unused;

#[cfg(test)]
mod tests;

use kube::{ResourceExt as _, core::ObjectMeta};
use serde_json::Value;
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    labels::{annotation, label},
};

pub use change::resolve;
pub use hop::{
    describes_images, has_entries, lacks_entry, newest_release, odd_entries, render_missing, unlabelled_nodes,
};
pub use offers::Constraints;
pub use running::Running;
pub use selector::{NoSelector, parse as parse_selector};
pub use swap::{ReleaseMachines, pinned_machines, release_machines, render_swap};
pub use unresolved::{class_in_cache, requires_resolution, unresolved};

use crate::{
    cache::stores::{Images, Releases},
    cluster::{is_initialized, release_of},
    decode::Undecodable,
    fault::Fault,
};

/// Labels and annotations of Clusters that the resolution reads.
pub const KEYS: [&str; 4] = [
    label::TKR,
    annotation::RESOLVE_TKR,
    annotation::PAUSED,
    annotation::EDIT_TKR_DATA,
];

/// Created or changed Cluster.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The old Cluster; `None` for a create.
    pub old: Option<Cluster>,
    /// The new Cluster.
    pub new: Cluster,
}

/// Inputs of a resolution.
#[derive(Debug, Clone, Copy)]
pub struct ResolverInputs<'a> {
    /// Its class, if it exists, or the undecodable class.
    pub class: Result<Option<&'a ClusterClass>, &'a Undecodable>,
    /// All releases.
    pub releases: &'a Releases,
    /// All OSImages; `None` before the first list.
    pub images: Option<&'a Images>,
    /// Versions that its machines may run; `None` before their lookup, which is rarely needed.
    pub running: Option<&'a Running>,
    /// Release that a ClusterBootstrap of its name pins, see [`pinned_release`](crate::packages::bootstrap::pinned_release).
    pub pinned: Option<&'a str>,
    /// Annotation `lifecycle.sluice.dev/rollback-to` of this ClusterBootstrap.
    pub rollback_to: Option<&'a str>,
}

/// Result of a resolution.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// Reasons to refuse the Cluster.
    pub faults: Vec<Fault>,
    /// Differences from the request.
    pub warnings: Vec<String>,
    /// Changes of the Cluster, as operations of RFC 6902.
    pub patch: Vec<Value>,
}

/// Missing input of a resolution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The OSImages.
    #[error(
        "Sluice has not listed all OSImages yet; try again, and if it lasts check the definition of OSImage and the log"
    )]
    Images,
    /// The class of a Cluster whose machines may exist.
    #[error(
        "Sluice has not observed ClusterClass {0} yet; try again, and if it lasts apply the ClusterClass first"
    )]
    Class(String),
    /// The versions that machines of the Cluster may run.
    #[error("the versions that machines of the Cluster run are not listed yet; try again")]
    Running,
    /// The same, and only the removal of unused entries depends on them. With [`Running::UNKNOWN`] all entries stay.
    #[error("the versions that all parts of the Cluster have are not looked up yet")]
    Unused,
}

/// Returns the release selector of a Cluster or of its class; `None` if neither requests a resolution.
#[must_use]
pub fn asks<'a>(cluster: &'a ObjectMeta, class: Option<&'a ClusterClass>) -> Option<&'a str> {
    let of = |meta: &'a ObjectMeta| meta.annotations.as_ref()?.get(annotation::RESOLVE_TKR);
    of(cluster).or_else(|| of(&class?.metadata)).map(String::as_str)
}

/// Returns `topology.version` of a resolved Cluster whose release still follows its ClusterBootstrap: the Cluster or its class requests a
/// resolution, and its control plane is not initialized yet.
#[must_use]
pub fn follows_bootstrap<'a>(cluster: &'a Cluster, class: Option<&'a ClusterClass>) -> Option<&'a str> {
    let topology = cluster.spec.topology.as_ref()?;
    let follows = asks(&cluster.metadata, class).is_some()
        && !release_of(&cluster.metadata).is_empty()
        && cluster.metadata.deletion_timestamp.is_none()
        && !is_initialized(cluster);
    follows.then_some(topology.version.as_str())
}

/// Returns namespace and name of the class of a Cluster; `None` without a topology.
#[must_use]
pub fn class_of(cluster: &Cluster) -> Option<(String, &str)> {
    let topology = cluster.spec.topology.as_ref()?;
    let own = || cluster.namespace().unwrap_or_default();
    let namespace = topology.class_namespace().map_or_else(own, str::to_owned);
    Some((namespace, topology.class_name()?))
}
