//! Clusters that should have been resolved, and were not: no webhook was asked, or none could be.

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    labels::{annotation, label},
    run::Hook,
};

use super::{asks, class_of};
use crate::{
    cluster::is_stopped,
    hold::{GateReason, Hold},
    stores::{Found, Stored},
};

/// Whether a hook is one before which a Cluster has to be resolved: what comes after these two follows from them.
#[must_use]
pub const fn asks_before(hook: Hook) -> bool {
    matches!(hook, Hook::BeforeClusterCreate | Hook::BeforeClusterUpgrade)
}

/// Why a Cluster without a release label and without a ClusterBootstrap is held, if it is. `uid` is that of the call.
///
/// Nothing is unpacked of a Cluster with a label. One that is not in memory yet is not known to ask for nothing.
#[must_use]
pub fn missed(cluster: &Found<Cluster>, uid: &str, stores: &impl Stored<ClusterClass>) -> Option<Hold> {
    let cluster = match cluster {
        Ok(Some(cluster)) if cluster.metadata.uid.as_deref() == Some(uid) => cluster,
        Ok(_) => {
            let text = "waiting for the Cluster to be seen: it may ask for a release to be resolved";
            return Some(Hold::new(GateReason::TKRNotResolved, text));
        }
        Err(undecodable) => return asks(&undecodable.metadata, None).map(|_| not_resolved("the Cluster")),
    };
    if cluster.metadata.deletion_timestamp.is_some() || is_stopped(cluster) {
        return None;
    }
    let (namespace, name) = class_of(cluster)?;
    if cluster.annotations().contains_key(annotation::RESOLVE_TKR) {
        return Some(not_resolved("the Cluster"));
    }
    match stores.found(Some(&namespace), name) {
        Ok(Some(class)) => asks(&class.metadata, None).map(|_| not_resolved(&format!("ClusterClass {name}"))),
        Ok(None) => {
            let text = format!(
                "waiting for ClusterClass {name} to be seen: it may ask for a release to be resolved"
            );
            Some(Hold::new(GateReason::TKRNotResolved, text))
        }
        Err(undecodable) => {
            asks(&undecodable.metadata, None).map(|_| not_resolved(&format!("ClusterClass {name}")))
        }
    }
}

fn not_resolved(by: &str) -> Hold {
    Hold::new(
        GateReason::TKRNotResolved,
        format!(
            "{by} asks for a release by annotation {}, but no label {} names one; set that annotation on the Cluster, or the label",
            annotation::RESOLVE_TKR,
            label::TKR
        ),
    )
}
