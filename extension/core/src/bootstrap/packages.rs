//! The package set of a ClusterBootstrap, and what the catalogue knows of its members.

use std::collections::BTreeMap;

use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec};

/// The part that a package plays in a cluster; the order of the variants is the order of writes and of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Deploys all others; installed from the management cluster.
    KappController,
    /// Network of the cluster.
    Cni,
    /// Cloud provider.
    Cpi,
    /// Storage.
    Csi,
    /// Everything in `additionalPackages`.
    Additional,
}

impl Role {
    /// The field of the ClusterBootstrap that holds packages of this role.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::KappController => "spec.kapp",
            Self::Cni => "spec.cni",
            Self::Cpi => "spec.cpi",
            Self::Csi => "spec.csi",
            Self::Additional => "spec.additionalPackages",
        }
    }
}

/// What a Package object says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFacts {
    /// `spec.refName`, `antrea.tanzu.vmware.com`.
    pub ref_name: String,
    /// `spec.version`.
    pub version: String,
}

/// The Package objects of the system namespace, by `metadata.name`.
pub type Catalogue = BTreeMap<String, PackageFacts>;

/// All packages of a spec in the order in which they are written and waited for.
#[must_use]
pub fn packages(spec: &ClusterBootstrapSpec) -> Vec<(Role, &ClusterBootstrapPackage)> {
    let core = [
        (Role::KappController, spec.kapp.as_ref()),
        (Role::Cni, spec.cni.as_ref()),
        (Role::Cpi, spec.cpi.as_ref()),
        (Role::Csi, spec.csi.as_ref()),
    ];
    let additional = spec
        .additional_packages
        .iter()
        .map(|package| (Role::Additional, package));
    core.into_iter()
        .filter_map(|(role, package)| package.map(|package| (role, package)))
        .chain(additional)
        .collect()
}
