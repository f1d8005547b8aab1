//! The provider's kinds, as far as it reads them.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// One kube-apiserver.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "harness.test",
    version = "v1beta1",
    kind = "HarnessControlPlane",
    plural = "harnesscontrolplanes",
    namespaced,
    schema = "disabled",
    status = "HarnessControlPlaneStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct HarnessControlPlaneSpec {
    /// Version to run.
    #[serde(default)]
    pub version: String,
    /// Nominal; there is always one server.
    #[serde(default)]
    pub replicas: Option<i32>,
    /// Where the server listens, once it does.
    #[serde(default)]
    pub control_plane_endpoint: Option<Endpoint>,
    /// Image of the machines, which a class may put here. There are no machines; a change is only reported as a rollout.
    #[serde(default)]
    pub image: Option<String>,
    /// Artificial pauses around a change of version, and in a rollout of another image.
    #[serde(default)]
    pub swap_delay: SwapDelay,
    /// By version: values of `--runtime-config`, such as `storage.k8s.io/v1beta1=true`.
    #[serde(default)]
    pub runtime_config: BTreeMap<String, Vec<String>>,
    /// Whether Cluster API drains Nodes before it deletes their Machines. The workload cluster then has a kube-controller-manager, which
    /// computes the status of PodDisruptionBudgets, and its API server writes down evictions.
    #[serde(default)]
    pub drains: bool,
    /// Whether the DaemonSet controller of Kubernetes rolls out DaemonSets in the workload cluster, instead of the stand-in.
    #[serde(default)]
    pub daemon_sets: bool,
    /// Which controllers roll out all kinds of workloads in the workload cluster.
    #[serde(default)]
    pub workloads: WorkloadControllers,
    /// Labels of the control plane's Node, which a class may put here. Without labels there is no Node. A change of version replaces it.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
}

/// Which controllers roll out DaemonSets, Deployments and StatefulSets and run Jobs in a workload cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkloadControllers {
    /// The stand-in, with none of Jobs and StatefulSets.
    #[default]
    StandIn,
    /// Those of Kubernetes. The stand-in binds Pods to Nodes, and runs them.
    Real,
    /// The same beside kube-scheduler, which binds Pods to Nodes.
    Scheduled,
}

/// Artificial pauses around a change of version, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwapDelay {
    /// Before the old server is killed.
    #[serde(default)]
    pub before_milliseconds: u64,
    /// Between the new server's readiness and the status that says so.
    #[serde(default)]
    pub after_milliseconds: u64,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address.
    #[serde(default)]
    pub host: String,
    /// Port.
    #[serde(default)]
    pub port: u16,
}

/// Reported state of the provider.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HarnessControlPlaneStatus {
    /// Version that runs.
    #[serde(default)]
    pub version: Option<String>,
    /// Replicas that run.
    #[serde(default)]
    pub replicas: Option<i32>,
    /// Replicas of the current version and image.
    #[serde(default)]
    pub up_to_date_replicas: Option<i32>,
    /// Image of the replicas.
    #[serde(default)]
    pub image: Option<String>,
    /// Generation that the rest is about.
    #[serde(default)]
    pub observed_generation: Option<i64>,
}

/// The infrastructure of a Cluster; there is none, it only becomes ready after the control plane.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "harness.test",
    version = "v1beta1",
    kind = "HarnessCluster",
    plural = "harnessclusters",
    namespaced,
    schema = "disabled",
    status = "Progress"
)]
pub(super) struct HarnessClusterSpec {}

/// The same under a name that packages know, because some values depend on the infrastructure kind.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "DockerCluster",
    plural = "dockerclusters",
    namespaced,
    schema = "disabled",
    status = "Progress"
)]
pub(super) struct DockerClusterSpec {}

/// The same again, with what vSphere's packages read in its spec.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "VSphereCluster",
    plural = "vsphereclusters",
    namespaced,
    schema = "disabled",
    status = "Progress"
)]
pub(super) struct VSphereClusterSpec {}

/// Bootstrap data of a Machine.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "harness.test",
    version = "v1beta1",
    kind = "HarnessConfig",
    plural = "harnessconfigs",
    namespaced,
    schema = "disabled",
    status = "Progress"
)]
pub(super) struct HarnessConfigSpec {}

/// A Machine; its only trace is a Node in the workload cluster.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "harness.test",
    version = "v1beta1",
    kind = "HarnessMachine",
    plural = "harnessmachines",
    namespaced,
    schema = "disabled",
    status = "Progress"
)]
#[serde(rename_all = "camelCase")]
pub(super) struct HarnessMachineSpec {
    /// Labels of its Node, which a class may put here.
    #[serde(default)]
    pub(super) node_labels: BTreeMap<String, String>,
}

/// Completion part of a status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// One-time steps.
    #[serde(default)]
    pub(super) initialization: Initialization,
}

/// One-time steps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialization {
    /// Of infrastructure.
    #[serde(default)]
    pub(super) provisioned: bool,
    /// Of bootstrap data.
    #[serde(default)]
    pub(super) data_secret_created: bool,
}
