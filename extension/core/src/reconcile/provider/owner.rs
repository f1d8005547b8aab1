//! Cluster of a configuration.

use kube::{Resource as _, ResourceExt as _};
use sluice_crds::{foreign::Cluster, labels::annotation};

use super::{Configuration, Context, Step};
use crate::{
    cluster::{Pause, pause},
    providers::{OwnerBy, Problem, Reason, cluster::named},
};

/// Returns the Cluster that a configuration belongs to.
pub(super) fn cluster<'a>(context: &'a Context<'_>) -> Step<&'a Cluster> {
    let config = context.facts;
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
    let found = context.cluster(&namespace, &name)?;
    let is_it = |cluster: &&Cluster| owner.is_none_or(|owner| cluster.uid().as_deref() == Some(&owner.uid));
    found.filter(is_it).ok_or_else(|| {
        let message = format!(
            "Cluster {namespace}/{name}, which owns {}, not found, or its UID differs",
            config.named()
        );
        Problem::new(Reason::ClusterNotFound, message).into()
    })
}

/// Returns the problem of a paused Cluster, if a user paused it. Nothing is written for it during the pause.
pub(super) fn paused(config: &Configuration, cluster: &Cluster) -> Option<Problem> {
    let (by, end) = match pause(cluster)? {
        Pause::Spec => ("spec.paused".to_owned(), "set it to false"),
        Pause::Annotation => (format!("annotation {}", annotation::PAUSED), "remove it"),
        Pause::Both => (
            format!("spec.paused and annotation {}", annotation::PAUSED),
            "set the one to false and remove the other",
        ),
    };
    let message = format!(
        "{} is paused by {by}: {end}, and {} gets its values",
        named(cluster),
        config.named()
    );
    Some(Problem::new(Reason::ClusterPaused, message))
}
