//! Which release, and which OSImages, a Cluster is made of whose `topology.version` is only the beginning of one (addons-manager §6.6).
//!
//! [`resolve`] is what the mutating webhook on Clusters answers: a function of the Cluster as it was and as it shall be, of its class, and
//! of all releases and OSImages. Nothing of a Kubernetes version that machines may run is changed by it: no hook is asked about such a
//! change (`design.md` §3.5).

mod change;
mod data;
mod machines;
mod part;
mod pick;
mod pinned_data;
mod running;
mod selector;
mod steps;
mod unresolved;

#[cfg(test)]
mod tests;

use kube::{ResourceExt as _, core::ObjectMeta};
use serde_json::Value;
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    labels::{annotation, label},
};

pub use change::resolve;
pub use running::Running;
pub use selector::{NoSelector, parse as parse_selector};
pub use unresolved::{asks_before, unresolved};

use crate::{
    cache::stores::{Images, Releases},
    decode::Undecodable,
    fault::Fault,
};

/// The labels and annotations of Clusters that are read.
pub const KEYS: [&str; 3] = [label::TKR, annotation::RESOLVE_TKR, annotation::PAUSED];

/// A Cluster that is created or changed.
#[derive(Debug, Clone)]
pub struct Asked {
    /// As it was; none where it is created.
    pub old: Option<Cluster>,
    /// As it shall be.
    pub new: Cluster,
}

/// What a Cluster is resolved with.
#[derive(Debug, Clone, Copy)]
pub struct ResolverInputs<'a> {
    /// Its class, if there is one; or what is known of one that cannot be decoded.
    pub class: Result<Option<&'a ClusterClass>, &'a Undecodable>,
    /// All releases.
    pub releases: &'a Releases,
    /// All OSImages; none before they were read.
    pub images: Option<&'a Images>,
    /// The versions that its machines may run; none before they were looked up, which is needed rarely.
    pub running: Option<&'a Running>,
}

/// What a Cluster is resolved to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// Why it is refused.
    pub faults: Vec<Fault>,
    /// What is done otherwise than it was asked for.
    pub warnings: Vec<String>,
    /// What has to be changed, as steps of RFC 6902.
    pub patch: Vec<Value>,
}

/// What has to be known first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The OSImages.
    #[error(
        "Sluice does not know all OSImages yet; try again, and if it lasts look at the definition of OSImage and at the log"
    )]
    Images,
    /// The class of a Cluster whose machines may be there.
    #[error(
        "Sluice does not know ClusterClass {0} yet; try again, and if it lasts apply the ClusterClass first"
    )]
    Class(String),
    /// The versions that machines of the Cluster may run.
    #[error("Sluice does not know yet which versions the machines of the Cluster run; try again")]
    Running,
}

/// The selector of releases of a Cluster, or of its class; none where neither asks for a resolution.
#[must_use]
pub fn asks<'a>(cluster: &'a ObjectMeta, class: Option<&'a ClusterClass>) -> Option<&'a str> {
    let of = |meta: &'a ObjectMeta| meta.annotations.as_ref()?.get(annotation::RESOLVE_TKR);
    of(cluster).or_else(|| of(&class?.metadata)).map(String::as_str)
}

/// The namespace and the name of the class of a Cluster; none without a topology.
#[must_use]
pub fn class_of(cluster: &Cluster) -> Option<(String, &str)> {
    let topology = cluster.spec.topology.as_ref()?;
    let own = || cluster.namespace().unwrap_or_default();
    let namespace = topology.class_namespace().map_or_else(own, str::to_owned);
    Some((namespace, topology.class_name()?))
}
