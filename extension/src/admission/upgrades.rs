//! Checks of upgrades of Clusters, see [`sluice_core::admission::cluster_upgrade`].

use std::sync::Arc;

use sluice_core::{
    admission::{
        Verdict,
        cluster_upgrade::{ClusterUpdate, judge, unchecked},
    },
    cache::stores::{Found, Stored as _, is_legacy_release},
    cluster::{ClusterRef, is_managed, release_of},
    reconcile::cluster::{Facts, Settings},
};
use sluice_crds::{
    foreign::Cluster,
    run::{ClusterBootstrap, TanzuKubernetesRelease},
};

use crate::{
    cache::{control_plane::ControlPlanes, stores::Stores},
    clock::clock,
};

/// Whether upgrades of a Cluster wait for Sluice while its gate is in force.
pub(super) fn is_gated(cluster: &Cluster, stores: &Stores) -> bool {
    let of = ClusterRef::of(cluster);
    let label = release_of(&cluster.metadata);
    let release: Found<TanzuKubernetesRelease> = stores.found(None, &label);
    let bootstrap: Found<ClusterBootstrap> = stores.found(Some(of.namespace()), of.name());
    is_managed(
        Some(&label),
        is_legacy_release(&release),
        !matches!(bootstrap, Ok(None)),
    ) || stores.cluster_upgrades().contains(&of)
}

/// Checks an update of a Cluster from `old` to `new` from the caches alone; `None` until its control plane is listed.
pub(super) fn checked(
    (old, new): (&Cluster, &Cluster),
    denies: bool,
    stores: &Stores,
    control_planes: &ControlPlanes,
    settings: &Settings,
) -> Option<Verdict> {
    let of = ClusterRef::of(old);
    let cached = match stores.clusters.found(Some(of.namespace()), of.name()) {
        Ok(Some(cached)) => cached,
        Ok(None) => return Some(unchecked("Sluice has not observed the Cluster yet")),
        Err(undecodable) => return Some(unchecked(&undecodable.to_string())),
    };
    let update = ClusterUpdate {
        stored: &cached,
        old,
        new,
        denies,
    };
    let facts_of = |cluster: &Arc<Cluster>| {
        let control_plane = |reference: &_| control_planes.known(&of, reference);
        Facts::of(cluster, stores, settings, control_plane)
    };
    judge(&update, facts_of, stores, clock())
}
