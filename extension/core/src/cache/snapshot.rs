//! Stores of objects that were listed once: for a single decision, and for tests.

use std::sync::Arc;

use kube::{Resource, ResourceExt as _, core::ObjectMeta};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    lifecycle::{ClusterUpgrade, UpgradeGate, UpgradeOverride},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use super::{
    Cached as _,
    stored_kind::StoredKind,
    stores::{Found, FoundGate, GateKinds, Images, Releases, Stored, Stores},
};
use crate::{
    decode::Undecodable,
    packages::{
        bootstrap::{Catalogue, PackageFacts},
        requirements::ManagementPackages,
    },
};

/// Stores with fixed content. By default they are empty, and all kinds are listed.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Clusters.
    pub clusters: Vec<Arc<Cluster>>,
    /// ClusterBootstraps.
    pub bootstraps: Vec<Arc<ClusterBootstrap>>,
    /// ClusterBootstrapTemplates of the system namespace.
    pub templates: Vec<Arc<ClusterBootstrapTemplate>>,
    /// TanzuKubernetesReleases.
    pub releases: Vec<Arc<TanzuKubernetesRelease>>,
    /// ClusterClasses.
    pub classes: Vec<Arc<ClusterClass>>,
    /// MachineDeployments.
    pub machine_deployments: Vec<Arc<MachineDeployment>>,
    /// MachinePools.
    pub machine_pools: Vec<Arc<MachinePool>>,
    /// Packages of the system namespace.
    pub packages: Vec<Arc<Package>>,
    /// OSImages.
    pub images: Vec<Arc<OSImage>>,
    /// Whether OSImages were never listed.
    pub without_images: bool,
    /// PackageInstalls of the system namespace.
    pub installs: Vec<Arc<PackageInstall>>,
    /// Apps of the system namespace.
    pub apps: Vec<Arc<App>>,
    /// UpgradeGates.
    pub gates: Vec<Arc<UpgradeGate>>,
    /// ClusterUpgrades.
    pub upgrades: Vec<Arc<ClusterUpgrade>>,
    /// UpgradeOverrides.
    pub overrides: Vec<Arc<UpgradeOverride>>,
    /// `None` stands for [`GateKinds::Off`].
    pub gate_kinds: Option<GateKinds>,
    /// Whether the installation manages no packages.
    pub without_packages: bool,
    /// Undecodable objects of any kind.
    pub undecodable: Vec<Arc<Undecodable>>,
    /// Kinds that were never listed.
    pub unlisted: Vec<StoredKind>,
}

impl Snapshot {
    fn undecodable<K: Resource<DynamicType = ()>>(
        &self,
        is_it: impl Fn(&ObjectMeta) -> bool,
    ) -> Option<Arc<Undecodable>> {
        let mut of_kind = self
            .undecodable
            .iter()
            .filter(|object| object.kind == K::kind(&()));
        of_kind.find(|object| is_it(&object.metadata)).cloned()
    }
}

macro_rules! stored {
    ($($Kind:ident: $store:ident),+) => {
        $(impl Stored<$Kind> for Snapshot {
            fn found(&self, namespace: Option<&str>, name: &str) -> Found<$Kind> {
                let is_it = |object: &&Arc<$Kind>| object.namespace().as_deref() == namespace && object.name_any() == name;
                match Stored::<$Kind>::undecodable(self, namespace, name) {
                    Some(object) => Err(object),
                    None => Ok(self.$store.iter().find(is_it).cloned()),
                }
            }

            fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<$Kind>> {
                let belongs = |object: &&Arc<$Kind>| {
                    object.namespace().as_deref() == Some(namespace) && $Kind::cluster_of(&object.metadata).as_deref() == Some(cluster)
                };
                self.$store.iter().filter(belongs).cloned().collect()
            }

            fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
                Snapshot::undecodable::<$Kind>(self, |meta| {
                    meta.namespace.as_deref() == namespace && meta.name.as_deref() == Some(name)
                })
            }

            fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
                Snapshot::undecodable::<$Kind>(self, |meta| {
                    meta.namespace.as_deref() == Some(namespace) && $Kind::cluster_of(meta).as_deref() == Some(cluster)
                })
            }
        })+
    };
}
stored!(
    Cluster: clusters, ClusterBootstrap: bootstraps, ClusterBootstrapTemplate: templates, TanzuKubernetesRelease: releases,
    ClusterClass: classes, MachineDeployment: machine_deployments, MachinePool: machine_pools, Package: packages,
    UpgradeGate: gates, ClusterUpgrade: upgrades, UpgradeOverride: overrides
);

impl Stores for Snapshot {
    fn releases(&self) -> Arc<Releases> {
        let named = self
            .releases
            .iter()
            .map(|release| (release.name_any(), Arc::clone(release)));
        Arc::new(named.collect())
    }

    fn images(&self) -> Option<Arc<Images>> {
        let named = self
            .images
            .iter()
            .map(|image| (image.name_any(), Arc::clone(image)));
        (!self.without_images).then(|| Arc::new(named.collect()))
    }

    fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
        Snapshot::undecodable::<TanzuKubernetesRelease>(self, |_| true)
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        let named = self
            .packages
            .iter()
            .map(|package| (package.name_any(), PackageFacts::of(package)));
        Arc::new(named.collect())
    }

    fn management_packages(&self) -> Arc<ManagementPackages> {
        let mut packages = ManagementPackages::default();
        for install in &self.installs {
            packages.install(install, true);
        }
        for app in &self.apps {
            packages.app(app, true);
        }
        Arc::new(packages)
    }

    fn is_listed(&self, kind: StoredKind) -> bool {
        let is_open = StoredKind::of_installation(self.packages_enabled()).contains(&kind);
        is_open && !self.unlisted.contains(&kind)
    }

    fn gates_of(&self, namespace: &str) -> Vec<FoundGate> {
        let is_here = |meta: &ObjectMeta| meta.namespace.as_deref() == Some(namespace);
        let decoded = self.gates.iter().filter(|gate| is_here(&gate.metadata));
        let undecodable = self
            .undecodable
            .iter()
            .filter(|object| object.kind == "UpgradeGate" && is_here(&object.metadata));
        let undecodable = undecodable.map(|object| Err(Arc::clone(object)));
        decoded
            .map(|gate| Ok(Arc::clone(gate)))
            .chain(undecodable)
            .collect()
    }

    fn overrides_of(&self, namespace: &str, cluster: &str) -> Option<Vec<Arc<UpgradeOverride>>> {
        let belongs = |of: &&Arc<UpgradeOverride>| {
            of.namespace().as_deref() == Some(namespace) && of.spec.cluster_name == cluster
        };
        Some(self.overrides.iter().filter(belongs).cloned().collect())
    }

    fn class_with(&self, namespace: &str, version: &str) -> Option<Arc<ClusterClass>> {
        let lists = |class: &&Arc<ClusterClass>| {
            let mut listed = class.spec.kubernetes_versions.iter();
            class.namespace().as_deref() == Some(namespace) && listed.any(|listed| listed == version)
        };
        self.classes.iter().find(lists).cloned()
    }

    fn gate_kinds(&self) -> GateKinds {
        self.gate_kinds.clone().unwrap_or(GateKinds::Off)
    }

    fn packages_enabled(&self) -> bool {
        !self.without_packages
    }
}
