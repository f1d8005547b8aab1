//! The Cluster of a configuration.

use kube::{Resource as _, ResourceExt as _};
use sluice_crds::foreign::Cluster;

use super::{Known, Step};
use crate::{
    cluster::is_paused,
    providers::{OwnerBy, Problem, Reason},
};

/// The Cluster that a configuration belongs to.
pub(super) fn cluster<'a>(known: &'a Known<'_>) -> Step<&'a Cluster> {
    let config = known.facts;
    let owner = config.object.owner_references().iter().find(|owner| {
        owner.kind == Cluster::kind(&()) && owner.api_version.split('/').next() == Some(&*Cluster::group(&()))
    });
    let name = match (owner, config.kind.owner) {
        (Some(owner), _) => owner.name.clone(),
        (None, OwnerBy::ReferenceOrName) => config.object.name_any(),
        (None, OwnerBy::Reference) => {
            let message = format!(
                "{} has no owner of kind Cluster; add one to metadata.ownerReferences",
                config.named()
            );
            return Err(Problem::new(Reason::OwnerMissing, message).into());
        }
    };
    let namespace = config.namespace();
    let found = known.cluster(&namespace, &name)?;
    let is_it = |cluster: &&Cluster| owner.is_none_or(|owner| cluster.uid().as_deref() == Some(&owner.uid));
    found.filter(is_it).ok_or_else(|| {
        let message = format!(
            "Cluster {namespace}/{name}, which owns {}, not found, or its UID differs",
            config.named()
        );
        Problem::new(Reason::ClusterNotFound, message).into()
    })
}

/// One that is deleted takes its configurations with it; one that is paused is left alone, as everywhere.
pub(super) fn is_at_rest(cluster: &Cluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some() || is_paused(cluster)
}
