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
    version::reached,
};
use sluice_crds::{
    foreign::Cluster,
    run::{ClusterBootstrap, TanzuKubernetesRelease},
};

use crate::{
    cache::{control_plane::ControlPlanes, stores::Stores},
    clock::clock,
};

/// Whether an upgrade from `old` to `new` is to wait for Sluice. The update may bring the label by which Sluice manages the Cluster. A version
/// that the control plane has needs no upgrade.
pub(super) fn is_gated(
    (old, new): (&Cluster, &Cluster),
    stores: &Stores,
    control_planes: &ControlPlanes,
) -> bool {
    let of = ClusterRef::of(old);
    let bootstrap: Found<ClusterBootstrap> = stores.found(Some(of.namespace()), of.name());
    let is_labelled = |cluster: &Cluster| {
        let label = release_of(&cluster.metadata);
        let release: Found<TanzuKubernetesRelease> = stores.found(None, &label);
        is_managed(Some(&label), is_legacy_release(&release), false)
    };
    let is_gated = !matches!(bootstrap, Ok(None))
        || is_labelled(old)
        || is_labelled(new)
        || stores.cluster_upgrades().contains(&of);
    is_gated && !has_version(new, &of, stores, control_planes)
}

/// Whether the spec of the control plane of the cached Cluster has the version of `cluster`.
fn has_version(cluster: &Cluster, of: &ClusterRef, stores: &Stores, control_planes: &ControlPlanes) -> bool {
    let cached = stores.clusters.get(Some(of.namespace()), of.name());
    let reference = cached.and_then(|cached| cached.spec.control_plane_ref.clone());
    let control_plane = reference.and_then(|reference| control_planes.known(of, &reference).ok().flatten());
    let version = control_plane.and_then(|control_plane| control_plane.versions.spec_version);
    let topology = cluster.spec.topology.as_ref();
    version
        .zip(topology)
        .is_some_and(|(version, topology)| reached(&version, &topology.version))
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
