//! Step 1: the Cluster of a configuration.

use std::sync::Arc;

use kube::{Resource as _, ResourceExt, core::DynamicObject, runtime::reflector::ObjectRef};
use sluice_core::{
    cluster::is_paused,
    providers::{OwnerBy, Problem, Reason},
};
use sluice_crds::{foreign::Cluster, labels::annotation};

use super::{
    OfKind,
    dependents::{ConfigRef, of_cluster},
};

/// A configuration and its Cluster.
pub(super) struct Found {
    pub(super) config: Arc<DynamicObject>,
    pub(super) reference: ConfigRef,
    pub(super) namespace: String,
    pub(super) cluster: Result<Arc<Cluster>, Problem>,
}

/// `AntreaConfig ns1/c1-antrea-package`.
fn named(ctx: &OfKind, namespace: &str, name: &str) -> String {
    format!("{} {namespace}/{name}", ctx.kind.resource.kind)
}

/// Finds it; `None` when there is nothing to do.
pub(super) fn run(config: &Arc<DynamicObject>, ctx: &OfKind) -> Option<Found> {
    let (namespace, name) = (config.namespace()?, config.name_any());
    let reference = ObjectRef::new_with(&name, ctx.kind.resource.clone()).within(&namespace);
    if config.annotations().contains_key(annotation::TEMPLATE_CONFIG)
        || config.metadata.deletion_timestamp.is_some()
    {
        ctx.shared.dependents.forget(&reference);
        return None;
    }
    let owner = config.owner_references().iter().find(|owner| {
        owner.kind == Cluster::kind(&()) && owner.api_version.split('/').next() == Some(&*Cluster::group(&()))
    });
    let cluster_name = match (owner, ctx.kind.owner) {
        (Some(owner), _) => owner.name.clone(),
        (None, OwnerBy::ReferenceOrName) => name.clone(),
        (None, OwnerBy::Reference) => {
            let message = format!(
                "{} has no owner of kind Cluster; add one to metadata.ownerReferences",
                named(ctx, &namespace, &name)
            );
            ctx.shared.dependents.set(&reference, &[]);
            return Some(Found {
                config: Arc::clone(config),
                reference,
                namespace,
                cluster: Err(Problem::new(Reason::OwnerMissing, message)),
            });
        }
    };
    // Whatever comes of this: when the Cluster changes, it is looked at again.
    ctx.shared
        .dependents
        .set(&reference, &[of_cluster(&namespace, &cluster_name)]);
    let cluster = ctx
        .shared
        .clusters
        .get(&ObjectRef::new(&cluster_name).within(&namespace));
    let cluster =
        cluster.filter(|cluster| owner.is_none_or(|owner| cluster.uid().as_deref() == Some(&owner.uid)));
    if cluster.as_ref().is_some_and(|cluster| is_at_rest(cluster)) {
        return None;
    }
    Some(Found {
        cluster: cluster.ok_or_else(|| {
            let message = format!(
                "Cluster {namespace}/{cluster_name}, which owns {}, not found, or its UID differs",
                named(ctx, &namespace, &name)
            );
            Problem::new(Reason::ClusterNotFound, message)
        }),
        config: Arc::clone(config),
        reference,
        namespace,
    })
}

/// One that is deleted takes its configurations with it; one that is paused is left alone, as everywhere.
fn is_at_rest(cluster: &Cluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some() || is_paused(cluster)
}
