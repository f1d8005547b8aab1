//! Checks of upgrades of Clusters, see [`sluice_core::admission::cluster_upgrade`].

use std::sync::Arc;

use sluice_core::{
    admission::{
        Verdict,
        cluster_upgrade::{ClusterUpdate, judge, unchecked},
    },
    cluster::ClusterRef,
    reconcile::cluster::{Facts, Settings},
};
use sluice_crds::foreign::Cluster;

use crate::{
    cache::{control_plane::ControlPlanes, stores::Stores},
    clock::clock,
};

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
