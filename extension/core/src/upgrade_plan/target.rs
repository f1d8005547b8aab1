//! Target that a user names.

use sluice_crds::foreign::{Cluster, ClusterClass};

use crate::cache::stores::Releases;

/// Target of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `topology.version`, `v1.36.3+vmware.1`.
    pub version: String,
    /// Name of the TanzuKubernetesRelease.
    pub release: String,
}

/// Error for a target that names no release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// No release has this name, version or prefix.
    #[error("{0} is no TanzuKubernetesRelease, no Kubernetes version and no prefix of one")]
    Unknown(String),
}

/// Returns the target that `text` names: a release, a Kubernetes version, or a prefix of either.
///
/// # Errors
/// No release, or several.
pub fn target(
    text: &str,
    _cluster: &Cluster,
    _class: Option<&ClusterClass>,
    _releases: &Releases,
) -> Result<Target, InvalidTarget> {
    Err(InvalidTarget::Unknown(text.to_owned()))
}
