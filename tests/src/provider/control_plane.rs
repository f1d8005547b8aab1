//! HarnessControlPlane: starts, replaces and ends the API server of one Cluster.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use serde_json::json;

use super::error::Error;
use super::kinds::{
    HarnessControlPlane, HarnessControlPlaneSpec, HarnessControlPlaneStatus, WorkloadControllers,
};
use super::runtime::{Context, REQUEUE};
use super::workload::Workload;
use super::{condition, node, owner, patch};
use crate::requests::apply::FIELD_MANAGER;
use crate::stack::apiserver::ApiServer;
use crate::stack::audit::Audited;
use crate::stack::controller_manager::{ControllerManager, Controllers};
use crate::stack::kubelet::{Kubelet, Rollouts};
use crate::stack::scheduler::Scheduler;

/// Name under which a scenario sets how long a new control plane is unhealthy: it serves, and does not report its version or image.
pub const CONTROL_PLANE: &str = "control-plane";

/// Annotation of a control plane: which API server it has. Without it, it has one of its own.
pub const API_SERVER: &str = "harness.test/api-server";

/// Value of [`API_SERVER`]: the management API server of the stack. The Cluster manages itself, and its upgrade replaces that server.
pub const MANAGEMENT: &str = "management";

pub(super) async fn reconcile(
    object: Arc<HarnessControlPlane>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if object.metadata.deletion_timestamp.is_some() {
        return finalize(&object, &context).await;
    }
    let Some(cluster) = owner::cluster(object.as_ref()) else {
        return Ok(Action::await_change());
    };
    if context
        .is_paused(&object.namespace().unwrap_or_default(), cluster)
        .await?
    {
        return Ok(Action::requeue(REQUEUE));
    }
    patch::add_finalizer(&context.client, object.as_ref()).await?;
    let workload = match context.workloads.get(&object.uid().unwrap_or_default()) {
        Some(workload) => workload,
        None => start(&object, cluster, &context).await?,
    };
    if workload.api.version() == object.spec.version {
        roll(&object, &workload, &context).await?;
    } else {
        swap(&object, &workload, &context).await?;
    }
    if !object.spec.node_labels.is_empty() {
        replace_node(&object, &workload).await?;
    }
    if object.spec.control_plane_endpoint.is_none() {
        publish_kubeconfig(&object, &workload, &context).await?;
        let endpoint = json!({"host": "127.0.0.1", "port": workload.api.port()});
        let change = json!({"spec": {"controlPlaneEndpoint": endpoint}});
        patch::merge(&context.client, object.as_ref(), &change).await?;
    }
    report(&object, &context).await?;
    Ok(Action::await_change())
}

async fn start(
    object: &HarnessControlPlane,
    cluster: &str,
    context: &Context,
) -> Result<Arc<Workload>, Error> {
    let uid = object.uid().unwrap_or_default();
    let spec = &object.spec;
    let core = &context.core;
    let is_management = object
        .annotations()
        .get(API_SERVER)
        .is_some_and(|server| server == MANAGEMENT);
    let api = if is_management {
        context.management.clone()
    } else {
        start_server(&uid, spec, context).await?
    };
    let controllers = Controllers {
        drains: spec.drains,
        daemon_sets: spec.daemon_sets,
        workloads: spec.workloads != WorkloadControllers::StandIn,
    };
    let controller_manager = if is_management || controllers.is_empty() {
        None
    } else {
        Some(ControllerManager::start_for_workload(core, &api, controllers).await?)
    };
    let scheduler = if !is_management && spec.workloads == WorkloadControllers::Scheduled {
        Some(Scheduler::start(core, &api).await?)
    } else {
        None
    };
    let rollouts = match spec.workloads {
        // The stack has a real Deployment controller there.
        _ if is_management => Rollouts::DaemonSets,
        WorkloadControllers::Real => Rollouts::None,
        WorkloadControllers::Scheduled => Rollouts::Scheduled,
        WorkloadControllers::StandIn if spec.daemon_sets => Rollouts::Deployments,
        WorkloadControllers::StandIn => Rollouts::All,
    };
    let namespace = object.namespace().unwrap_or_default();
    let delays = context.delays.clone();
    let workload = Arc::new(Workload {
        controller_manager,
        scheduler,
        kubelet: Kubelet::start(core, &api, &namespace, cluster, delays, rollouts),
        namespace,
        cluster: cluster.to_owned(),
        api,
        is_management,
    });
    context.workloads.insert(&uid, workload.clone());
    Ok(workload)
}

/// Starts the API server of a Cluster that does not manage itself.
async fn start_server(
    uid: &str,
    spec: &HarnessControlPlaneSpec,
    context: &Context,
) -> Result<Arc<ApiServer>, Error> {
    let prefix = format!("wl/{uid}");
    let audited = spec.drains.then(Audited::evictions);
    let (core, arguments) = (&context.core, arguments(spec));
    let api = ApiServer::start_audited(core, &prefix, &spec.version, arguments, audited.as_ref()).await?;
    Ok(Arc::new(api))
}

/// Replaces the Node of the control plane by one of its version, with the labels that the class gives it.
async fn replace_node(object: &HarnessControlPlane, workload: &Workload) -> Result<(), Error> {
    let HarnessControlPlaneSpec {
        version, node_labels, ..
    } = &object.spec;
    let name = format!("{}-{}", object.name_any(), version.replace('.', "-"));
    node::replace_control_plane(&workload.api.admin_client(), &name, node_labels, version).await
}

/// Replaces the server. The version in the status stays until the new one is ready: until then Cluster API sees an upgrade.
async fn swap(object: &HarnessControlPlane, workload: &Workload, context: &Context) -> Result<(), Error> {
    begin(object, context).await?;
    let delay = object.spec.swap_delay;
    tokio::time::sleep(Duration::from_millis(delay.before_milliseconds)).await;
    workload.api.set_arguments(arguments(&object.spec));
    workload.api.swap(&object.spec.version).await?;
    tokio::time::sleep(Duration::from_millis(delay.after_milliseconds)).await;
    is_healthy(workload, context).await;
    Ok(())
}

/// Reports a change of the image as a rollout: no replica is up to date at first, and all are at the end. The server runs on, because
/// its version is the same.
async fn roll(object: &HarnessControlPlane, workload: &Workload, context: &Context) -> Result<(), Error> {
    let is_rolled = |plane: &HarnessControlPlane| {
        let status = plane.status.as_ref();
        let status = status.filter(|status| status.version.is_some());
        status.is_none_or(|status| status.image == object.spec.image)
    };
    if is_rolled(object) {
        return Ok(());
    }
    // The cache may not have the last report yet, and would have the same image rolled twice.
    let current = patch::api(&context.client, object)
        .get(&object.name_any())
        .await?;
    if is_rolled(&current) {
        return Ok(());
    }
    begin(object, context).await?;
    let delay = object.spec.swap_delay;
    let milliseconds = delay.before_milliseconds + delay.after_milliseconds;
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    is_healthy(workload, context).await;
    Ok(())
}

/// Reports the begin of a rollout: no replica is up to date.
async fn begin(object: &HarnessControlPlane, context: &Context) -> Result<(), Error> {
    let begun = json!({"upToDateReplicas": 0, "observedGeneration": object.metadata.generation});
    patch::status(&context.client, object, &begun).await
}

/// Returns after the delay that a scenario has set for the control plane.
async fn is_healthy(workload: &Workload, context: &Context) {
    let Workload {
        namespace, cluster, ..
    } = workload;
    context.delays.passed(namespace, cluster, CONTROL_PLANE).await;
}

fn arguments(spec: &HarnessControlPlaneSpec) -> Vec<String> {
    spec.runtime_config
        .get(&spec.version)
        .map(|values| format!("--runtime-config={}", values.join(",")))
        .into_iter()
        .collect()
}

async fn publish_kubeconfig(
    object: &HarnessControlPlane,
    workload: &Workload,
    context: &Context,
) -> Result<(), Error> {
    let name = format!("{}-kubeconfig", workload.cluster);
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &workload.namespace);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": name,
            "labels": {owner::CLUSTER_NAME: workload.cluster},
            "ownerReferences": [owner::reference(object)],
        },
        "data": {"value": BASE64_STANDARD.encode(workload.api.admin_kubeconfig())},
    });
    secrets
        .patch(
            &name,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&secret),
        )
        .await
        .with_context(|| format!("write Secret {}/{name}", workload.namespace))?;
    Ok(())
}

async fn report(object: &HarnessControlPlane, context: &Context) -> Result<(), Error> {
    let HarnessControlPlaneSpec {
        version,
        replicas,
        image,
        ..
    } = &object.spec;
    let replicas = replicas.unwrap_or(1);
    let generation = object.metadata.generation;
    let is_reported = |status: &HarnessControlPlaneStatus| {
        status.version.as_ref() == Some(version)
            && status.image == *image
            && [status.replicas, status.up_to_date_replicas] == [Some(replicas); 2]
            && status.observed_generation == generation
    };
    if object.status.as_ref().is_some_and(is_reported) {
        return Ok(());
    }
    let status = json!({
        "initialization": {"controlPlaneInitialized": true},
        "observedGeneration": generation,
        "image": image,
        "version": version,
        "versions": [{"version": version, "replicas": replicas}],
        "replicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
        "upToDateReplicas": replicas,
        "selector": "",
        // Cluster API drains no Node of a Cluster without control plane Machines, unless its control plane says that it has none.
        "externalManagedControlPlane": object.spec.drains,
        "conditions": [condition::holds("Available", "Running")],
    });
    patch::status(&context.client, object, &status).await
}

async fn finalize(object: &HarnessControlPlane, context: &Context) -> Result<Action, Error> {
    if let Some(workload) = context.workloads.remove(&object.uid().unwrap_or_default()) {
        workload.stop().await?;
    }
    patch::remove_finalizer(&context.client, object).await?;
    Ok(Action::await_change())
}
