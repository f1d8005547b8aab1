//! Whether the stores of a replica may be used for an answer: each was filled, and is not too old.

use std::time::Duration;

use kube::Resource;
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use crate::hold::{GateReason, Hold};

/// For how long memory counts after the API server has confirmed it.
pub const CURRENT_FOR: Duration = Duration::from_secs(45);

/// A kind of which a replica keeps every object that decisions depend on.
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
    /// All of them, which a managed Cluster needs. Of several that are missing the first one is named: ClusterBootstrap, which every
    /// answer needs, where nothing was listed.
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

    /// Its API as `kubectl api-resources` and definitions name it: `<plural>.<group>`.
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

    /// What holds a Cluster that needs this kind before it was listed.
    #[must_use]
    pub fn waits(self) -> String {
        format!("waiting for {} to be listed", self.api())
    }

    /// What holds a managed Cluster before this kind was listed. An empty store is not an empty list.
    #[must_use]
    pub fn unavailable(self) -> Hold {
        Hold::new(GateReason::APIUnavailable, self.waits())
    }
}

/// Why what a replica remembers is no knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    /// The store of this kind was never filled.
    Unlisted(StoredKind),
    /// A store may have missed what happened in the last [`CURRENT_FOR`].
    Stale,
}

impl Unsynced {
    /// Judges the stores that a decision needs by their ages: the time since each is known to have missed no change; none for a store
    /// that was never filled.
    ///
    /// One that is too old outweighs one that was never filled, because a deletion does not wait for the latter.
    #[must_use]
    pub fn of(ages: impl IntoIterator<Item = (StoredKind, Option<Duration>)>) -> Option<Self> {
        let mut unlisted = None;
        for (kind, age) in ages {
            match age {
                None => unlisted = unlisted.or(Some(Self::Unlisted(kind))),
                Some(age) if is_current(age) => {}
                Some(_) => return Some(Self::Stale),
            }
        }
        unlisted
    }
}

/// Whether memory of this age is knowledge.
#[must_use]
pub const fn is_current(age: Duration) -> bool {
    age.as_nanos() <= CURRENT_FOR.as_nanos()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NEVER: Option<Duration> = None;
    const NOW: Option<Duration> = Some(Duration::ZERO);
    const LAST: Option<Duration> = Some(Duration::from_secs(45));
    const OLD: Option<Duration> = Some(Duration::from_millis(45_001));
    const ANCIENT: Option<Duration> = Some(Duration::MAX);

    const UNLISTED: fn(StoredKind) -> Option<Unsynced> = |kind| Some(Unsynced::Unlisted(kind));

    #[rstest]
    #[case::all_filled([NOW, NOW, NOW], None)]
    #[case::just_young_enough([LAST, LAST, LAST], None)]
    #[case::the_first_one_old([OLD, NOW, NOW], Some(Unsynced::Stale))]
    #[case::the_second_one_old([NOW, OLD, NOW], Some(Unsynced::Stale))]
    #[case::the_third_one_old([NOW, NOW, OLD], Some(Unsynced::Stale))]
    #[case::any_age([ANCIENT, ANCIENT, ANCIENT], Some(Unsynced::Stale))]
    #[case::nothing_filled([NEVER, NEVER, NEVER], UNLISTED(StoredKind::Cluster))]
    #[case::one_never_filled([NOW, NOW, NEVER], UNLISTED(StoredKind::App))]
    #[case::two_never_filled([NOW, NEVER, NEVER], UNLISTED(StoredKind::Package))]
    #[case::old_outweighs_never_filled([NEVER, NOW, OLD], Some(Unsynced::Stale))]
    fn every_store_counts(#[case] ages: [Option<Duration>; 3], #[case] expected: Option<Unsynced>) {
        let kinds = [StoredKind::Cluster, StoredKind::Package, StoredKind::App];
        assert_eq!(Unsynced::of(kinds.into_iter().zip(ages)), expected);
    }

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
}
