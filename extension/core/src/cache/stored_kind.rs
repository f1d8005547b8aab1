//! Kinds with all objects in the cache.

use kube::Resource;
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use crate::reasons::{GateReason, Hold};

/// Kind of which a replica caches all objects that decisions depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredKind {
    /// ClusterBootstrap.
    ClusterBootstrap,
    /// Cluster.
    Cluster,
    /// TanzuKubernetesRelease.
    TanzuKubernetesRelease,
    /// ClusterBootstrapTemplate.
    ClusterBootstrapTemplate,
    /// ClusterClass.
    ClusterClass,
    /// MachineDeployment.
    MachineDeployment,
    /// MachinePool.
    MachinePool,
    /// Package.
    Package,
    /// PackageInstall.
    PackageInstall,
    /// App.
    App,
}

impl StoredKind {
    /// All kinds; a managed Cluster needs each of them. The first missing kind is reported. Without any list that is ClusterBootstrap,
    /// which every response needs.
    pub const ALL: [Self; 10] = [
        Self::ClusterBootstrap,
        Self::Cluster,
        Self::TanzuKubernetesRelease,
        Self::ClusterBootstrapTemplate,
        Self::ClusterClass,
        Self::MachineDeployment,
        Self::MachinePool,
        Self::Package,
        Self::PackageInstall,
        Self::App,
    ];

    /// The kinds of Cluster API. An installation without packages lists no other ones of [`ALL`](Self::ALL).
    pub const OF_CLUSTER_API: [Self; 4] = [
        Self::Cluster,
        Self::ClusterClass,
        Self::MachineDeployment,
        Self::MachinePool,
    ];

    /// Returns the kinds that an installation with or without packages lists.
    #[must_use]
    pub const fn of_installation(packages_enabled: bool) -> &'static [Self] {
        if packages_enabled {
            &Self::ALL
        } else {
            &Self::OF_CLUSTER_API
        }
    }

    /// Returns the name of its API in `kubectl api-resources` and CustomResourceDefinitions: `<plural>.<group>`.
    #[must_use]
    pub fn api(self) -> String {
        fn of<K: Resource<DynamicType = ()>>() -> String {
            format!("{}.{}", K::plural(&()), K::group(&()))
        }
        match self {
            Self::Cluster => of::<Cluster>(),
            Self::ClusterBootstrap => of::<ClusterBootstrap>(),
            Self::TanzuKubernetesRelease => of::<TanzuKubernetesRelease>(),
            Self::ClusterBootstrapTemplate => of::<ClusterBootstrapTemplate>(),
            Self::ClusterClass => of::<ClusterClass>(),
            Self::MachineDeployment => of::<MachineDeployment>(),
            Self::MachinePool => of::<MachinePool>(),
            Self::Package => of::<Package>(),
            Self::PackageInstall => of::<PackageInstall>(),
            Self::App => of::<App>(),
        }
    }

    /// Returns the hold message of a Cluster that needs this kind before its first list.
    #[must_use]
    pub fn waits(self) -> String {
        format!("waiting for {} to be listed", self.api())
    }

    /// Returns the hold of a managed Cluster before the first list of this kind. An empty store is not an empty list.
    #[must_use]
    pub fn unavailable(self) -> Hold {
        Hold::new(GateReason::APIUnavailable, self.waits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_named_as_its_definition_is() {
        let apis = StoredKind::ALL.map(StoredKind::api);
        assert_eq!(
            apis,
            [
                "clusterbootstraps.run.tanzu.vmware.com",
                "clusters.cluster.x-k8s.io",
                "tanzukubernetesreleases.run.tanzu.vmware.com",
                "clusterbootstraptemplates.run.tanzu.vmware.com",
                "clusterclasses.cluster.x-k8s.io",
                "machinedeployments.cluster.x-k8s.io",
                "machinepools.cluster.x-k8s.io",
                "packages.data.packaging.carvel.dev",
                "packageinstalls.packaging.carvel.dev",
                "apps.kappctrl.k14s.io",
            ]
        );
    }

    #[test]
    fn without_packages_no_kind_of_carvel_or_tanzu_is_listed() {
        assert_eq!(StoredKind::of_installation(true), StoredKind::ALL);
        let without = StoredKind::of_installation(false);
        for kind in StoredKind::ALL {
            let is_of_cluster_api = kind.api().ends_with(".cluster.x-k8s.io");
            assert_eq!(without.contains(&kind), is_of_cluster_api, "{kind:?}");
        }
    }
}
