//! What is known of one Cluster from memory.

use std::sync::Arc;

use kube::{ResourceExt, runtime::reflector::ObjectRef};
use sluice_core::{
    build::Owner,
    cluster::{is_legacy, is_managed},
    hop::{Plan, WorkerFacts},
    pass::Facts,
};
use sluice_crds::{
    foreign::{
        Cluster,
        cluster::{ClusterStatus, Topology},
    },
    labels::label,
};

use super::Context;

/// Reads what concerns `cluster`; `None` when it is none of ours.
pub(super) fn run(cluster: &Arc<Cluster>, ctx: &Context) -> Option<Facts> {
    let (namespace, uid) = (cluster.namespace()?, cluster.uid()?);
    let owner = Owner {
        name: cluster.name_any(),
        namespace: namespace.clone(),
        uid,
    };
    let label = cluster.labels().get(label::TKR).cloned().unwrap_or_default();
    let bootstrap = ctx
        .stores
        .bootstraps
        .get(&ObjectRef::new(&owner.name).within(&namespace));
    let topology = cluster.spec.topology.clone()?;
    let release = ctx.stores.releases.get(&ObjectRef::new(&label));
    let legacy = release.as_deref().is_some_and(is_legacy);
    if !is_managed(Some(&label), legacy, bootstrap.is_some()) {
        return None;
    }
    let referred = cluster.spec.control_plane_ref.as_ref();
    let control_plane = referred.map(|reference| {
        ctx.control_planes
            .get(&ObjectRef::from_obj(cluster.as_ref()), reference)
    });
    let (control_plane, unknown) = match control_plane {
        None => (None, None),
        Some(Ok(found)) => (found, None),
        Some(Err(unknown)) => (None, Some(unknown)),
    };
    Some(Facts {
        settings: ctx.settings.pass.clone(),
        workers: workers(ctx, &owner),
        plan: plan(ctx, cluster, &topology),
        releases: ctx.stores.releases.state(),
        catalogue: ctx.stores.catalogue(),
        cluster: Arc::clone(cluster),
        owner,
        label,
        topology,
        bootstrap,
        control_plane,
        unknown,
    })
}

/// Where the steps of an upgrade come from, by the precedence of Cluster API.
fn plan(ctx: &Context, cluster: &Cluster, topology: &Topology) -> Plan {
    let class = topology.class_name().and_then(|name| {
        let namespace = cluster.namespace().unwrap_or_default();
        let key = ObjectRef::new(name).within(topology.class_namespace().unwrap_or(&namespace));
        ctx.stores.classes.get(&key)
    });
    let Some(class) = class else {
        return Plan::Direct;
    };
    if class.spec.is_planned_by_extension() {
        let status = cluster.status.as_ref();
        return Plan::Given {
            control_plane: status.map(ClusterStatus::control_plane_steps).unwrap_or_default(),
            workers: status.map(ClusterStatus::worker_steps).unwrap_or_default(),
        };
    }
    match class.spec.kubernetes_versions.as_slice() {
        [] => Plan::Direct,
        versions => Plan::Listed(versions.to_vec()),
    }
}

fn workers(ctx: &Context, owner: &Owner) -> Vec<WorkerFacts> {
    let ours = |namespace: Option<String>, name: Option<&String>| {
        namespace.as_deref() == Some(&owner.namespace) && name == Some(&owner.name)
    };
    let deployments = ctx
        .stores
        .machine_deployments
        .state_filter(|worker| ours(worker.namespace(), worker.labels().get(label::CAPI_CLUSTER_NAME)));
    let pools = ctx
        .stores
        .machine_pools
        .state_filter(|worker| ours(worker.namespace(), worker.labels().get(label::CAPI_CLUSTER_NAME)));
    let deployments = deployments
        .iter()
        .filter_map(|worker| WorkerFacts::of(worker.as_ref()));
    let pools = pools.iter().filter_map(|worker| WorkerFacts::of(worker.as_ref()));
    let mut all: Vec<_> = deployments.chain(pools).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}
