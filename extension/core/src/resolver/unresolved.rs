//! Clusters that should have been resolved but were not, because no webhook was called or reachable.

use std::sync::Arc;

use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    labels::{annotation, label},
    run::Hook,
};

use super::{asks, class_of};
use crate::{
    cache::stores::{Found, Stored},
    decode::Undecodable,
    reasons::{CallReason, GateReason, Hold, HoldReason},
};

/// Whether a Cluster has to be resolved before a hook. All later hooks follow from these two.
#[must_use]
pub const fn requires_resolution(hook: Hook) -> bool {
    matches!(hook, Hook::BeforeClusterCreate | Hook::BeforeClusterUpgrade)
}

/// Returns the hold of a Cluster without a release label and without a ClusterBootstrap, if any. `uid` and `generation` are those of the
/// hook call.
///
/// A Cluster with a label needs no decoding. For a Cluster that is missing or outdated in the cache, a resolution request may be unknown:
/// one update may end a pause, change the class and change the version. A cached pause is ignored: Cluster API calls no hook for a paused
/// Cluster, and a pause by annotation changes no generation.
#[must_use]
pub fn unresolved(
    cluster: &Found<Cluster>,
    uid: &str,
    generation: i64,
    stores: &impl Stored<ClusterClass>,
) -> Option<Hold<HoldReason>> {
    let meta = match cluster {
        Ok(cluster) => cluster.as_deref().map(|cluster| &cluster.metadata),
        Err(undecodable) => Some(&undecodable.metadata),
    };
    let seen = meta.filter(|meta| {
        meta.uid.as_deref() == Some(uid) && meta.generation.is_some_and(|seen| seen >= generation)
    });
    let Some(meta) = seen else {
        return Some(not_seen("the latest edit of the Cluster"));
    };
    if meta.deletion_timestamp.is_some() {
        return None;
    }
    let Some((namespace, name)) = class_in_cache(cluster) else {
        return cluster
            .as_ref()
            .err()
            .map(|undecodable| undecodable.hold().of_call());
    };
    let class = stores.found(Some(&namespace), name);
    let by_class = |meta| asks(meta, None).map(|_| format!("ClusterClass {name}"));
    let by = match &class {
        _ if asks(meta, None).is_some() => "the Cluster".to_owned(),
        Ok(Some(class)) => by_class(&class.metadata)?,
        Ok(None) => {
            let Err(undecodable) = cluster else {
                return Some(not_seen(&format!("ClusterClass {name}")));
            };
            return Some(undecodable.hold().of_call());
        }
        Err(undecodable) => by_class(&undecodable.metadata)?,
    };
    // The webhook cannot resolve an undecodable Cluster or class, so neither annotation nor label would help.
    let undecodable: Option<&Arc<Undecodable>> = cluster.as_ref().err().or(class.as_ref().err());
    Some(undecodable.map_or_else(
        || not_resolved(&by, asks(meta, None).is_some()),
        |object| object.hold().of_call(),
    ))
}

/// Returns namespace and name of the class of a Cluster, decodable or not; `None` without a topology.
#[must_use]
pub fn class_in_cache(cluster: &Found<Cluster>) -> Option<(String, &str)> {
    match cluster {
        Ok(cluster) => class_of(cluster.as_deref()?),
        Err(undecodable) => {
            let class = undecodable.class.as_ref()?;
            let own = || undecodable.metadata.namespace.clone().unwrap_or_default();
            let namespace = class.namespace.clone().filter(|namespace| !namespace.is_empty());
            Some((namespace.unwrap_or_else(own), class.name.as_str()))
        }
    }
}

fn not_seen(what: &str) -> Hold<HoldReason> {
    let text = format!("waiting for Sluice to observe {what}: it may request the resolution of a release");
    Hold::new(CallReason::ClusterNotObserved.into(), text)
}

fn not_resolved(by: &str, is_own: bool) -> Hold<HoldReason> {
    // Setting an existing annotation again triggers no webhook call.
    let way_out = if is_own {
        "set that label"
    } else {
        "set that annotation on the Cluster, or the label"
    };
    Hold::new(
        GateReason::TKRNotResolved.into(),
        format!(
            "{by} requests a release by annotation {}, but no label {} names one; {way_out}",
            annotation::RESOLVE_TKR,
            label::TKR
        ),
    )
}
