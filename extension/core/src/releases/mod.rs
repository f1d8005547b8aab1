//! Labels and conditions of releases, OSImages and Clusters that show the available updates in kubectl.
//!
//! An [`Evaluation`] covers all releases together. The writes of single objects follow from it: [`ReleaseStatus`] of a release or an
//! OSImage, and conditions `ReleaseCompatible` and `UpdatesAvailable` of a Cluster (addons-manager §6.6, §6.7). Of all of these, gates
//! depend only on the [required packages](crate::packages::requirements) of a release. kapp-controller installs releases from a [`TkrPackage`].

mod cluster_conditions;
mod compatibility;
mod conditions;
mod evaluation;
mod image;
mod installer;
mod labels;
mod release_status;
mod updates;

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{cluster::ClusterRef, reasons::reasons};

pub use cluster_conditions::{ClusterConditions, Offers};
pub use compatibility::{Compatibility, ManagementClusters, Sources, Verdict};
pub use evaluation::{Evaluation, Facts, Fault};
pub use image::of_image;
pub use installer::{Install, InstallFault, InstallReason, InstallState, TkrPackage, Underway, package_in};
pub use labels::{from_label, image_labels_of, of_image_itself, prefixes, release_labels_of, version_label};
pub use release_status::ReleaseStatus;
pub use updates::Updates;

reasons! {
    /// Why a condition of a release or an OSImage is not true.
    ReleaseReason:
    /// There is no newer release of this minor version or the next one.
    AlreadyUpToDate,
    /// The version of the release that a Cluster is on cannot be read.
    CannotParseTKR,
    /// Nothing maintains the data that says what is compatible any more.
    CompatibilityDataFrozen,
    /// The data that says what is compatible cannot be read.
    CompatibilityDataInvalid,
    /// Another release has the same version.
    DuplicateVersion,
    /// The release is not compatible with this management cluster.
    Incompatible,
    /// The version of Kubernetes is not semantic.
    KubernetesVersionInvalid,
    /// A management package that the release needs is not proven.
    ManagementPackageNotReady,
    /// Nothing says which releases are compatible.
    NoCompatibilityData,
    /// An OSImage that the release names does not exist.
    OSImageNotFound,
    /// An OSImage that the release names has another version of Kubernetes.
    OSImageOfAnotherVersion,
    /// A Package that the release names does not exist.
    PackageNotFound,
    /// The release of a Cluster does not exist.
    ReleaseNotFound,
    /// The annotation with the required management packages is malformed.
    RequirementInvalid,
    /// The version is not semantic.
    VersionInvalid,
}

/// Queue item of the controller: an object that has changed, or one of whose dependencies has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReleaseEvent {
    /// Releases, OSImages, Packages or compatibility data.
    All,
    /// ClusterClasses, which limit the available updates of their Clusters.
    Classes,
    /// A Cluster.
    Cluster(ClusterRef),
    /// A Package of the system namespace, or its PackageInstall.
    Package(String),
    /// A PackageInstall of the system namespace that does not name its Package.
    Install(String),
}

impl ReleaseEvent {
    /// Returns the item for a PackageInstall of the system namespace with this metadata.
    #[must_use]
    pub fn of_install(install: &ObjectMeta) -> Self {
        let name = install.name.clone().unwrap_or_default();
        match package_in(install) {
            Some(package) if TkrPackage::install_name(package) == name => Self::Package(package.to_owned()),
            _ => Self::Install(name),
        }
    }
}

/// Object with labels or conditions of this module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReleaseObject {
    /// A TanzuKubernetesRelease.
    Release(String),
    /// An OSImage.
    Image(String),
    /// A Cluster.
    Cluster(ClusterRef),
    /// A Package of the system namespace, by its name.
    Package(String),
}
