//! Cluster API's Cluster, as v1beta2 and v1beta1 serve it.

use serde::{Deserialize, Serialize};

use super::condition::{self, Condition};
use super::kind::foreign_kind;
use super::lenient::{each, or_default, stop};
pub use super::topology::{
    ClassRef, ControlPlaneTopology, Topology, TopologyMetadata, Variable, VariableOverrides, Variables,
    WorkerTopology, WorkersTopology,
};
use crate::labels::name::CONTROL_PLANE_INITIALIZED;
use crate::schema::is_false;

foreign_kind! {
    /// A Cluster, requested in v1beta2. It has the fields of both versions, so a Cluster from a hook request or from
    /// [`ClusterV1Beta1`] reads the same.
    Cluster in "cluster.x-k8s.io" / "v1beta2", "Cluster", "clusters",
    spec: ClusterSpec, status: ClusterStatus
}

foreign_kind! {
    /// A Cluster, requested in v1beta1 if Cluster API serves nothing newer. Convert it into a [`Cluster`].
    ClusterV1Beta1 in "cluster.x-k8s.io" / "v1beta1", "Cluster", "clusters",
    spec: ClusterSpec, status: ClusterStatus
}

impl From<ClusterV1Beta1> for Cluster {
    fn from(
        ClusterV1Beta1 {
            metadata,
            spec,
            status,
        }: ClusterV1Beta1,
    ) -> Self {
        Self {
            metadata,
            spec,
            status,
        }
    }
}

/// Spec of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Pauses Cluster API, which then calls no hook.
    #[serde(deserialize_with = "stop", skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Address ranges of the workload.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub cluster_network: Option<ClusterNetwork>,
    /// The control plane object.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ObjectReference>,
    /// The infrastructure object.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectReference>,
    /// Absent for a cluster without a ClusterClass.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

/// Address ranges of a workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterNetwork {
    /// Addresses of Services.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub services: Option<NetworkRanges>,
    /// Addresses of Pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub pods: Option<NetworkRanges>,
    /// DNS domain of Services.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub service_domain: Option<String>,
}

/// Address blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkRanges {
    /// Blocks in CIDR notation.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub cidr_blocks: Vec<String>,
}

/// Names an object of a provider: v1beta2 gives its group, v1beta1 its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Group of the object (v1beta2).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Group and version of the object (v1beta1).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// Name of the object. Its namespace is that of the Cluster.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

impl ObjectReference {
    /// The group of the object, whichever version of Cluster API wrote the reference.
    #[must_use]
    pub fn group(&self) -> &str {
        match (&self.api_group, &self.api_version) {
            (Some(group), _) => group,
            (None, Some(version)) => version.split_once('/').map_or("", |(group, _)| group),
            (None, None) => "",
        }
    }
}

/// Status of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Progress of the first provisioning (v1beta2).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Whether the infrastructure is provisioned (v1beta1).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub infrastructure_ready: Option<bool>,
    /// Status of the control plane (v1beta2).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<PlannedUpgrade>,
    /// Status of the workers (v1beta2).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub workers: Option<PlannedUpgrade>,
    /// Conditions of either version that Sluice [reads](crate::labels::name::CLUSTER_CONDITIONS), and
    /// [those of its health](crate::labels::name::HEALTH_CONDITIONS) that are not True.
    #[serde(
        deserialize_with = "condition::of_cluster",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,
}

/// Progress of the first provisioning of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Initialization {
    /// Whether the infrastructure is provisioned.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// Whether the API server of the workload has responded once.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// Remaining steps of a control plane or of workers, since Cluster API 1.14.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlannedUpgrade {
    /// The steps in their order.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub upgrade_plan: Vec<PlannedVersion>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedVersion {
    /// The Kubernetes version.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
}

impl ClusterStatus {
    /// Whether the infrastructure is provisioned, in either API version.
    #[must_use]
    pub fn infrastructure_provisioned(&self) -> bool {
        match &self.initialization {
            Some(initialization) => initialization.infrastructure_provisioned == Some(true),
            None => self.infrastructure_ready == Some(true),
        }
    }

    /// Returns the next versions of the control plane, in order.
    #[must_use]
    pub fn control_plane_steps(&self) -> Vec<String> {
        steps(self.control_plane.as_ref())
    }

    /// Returns the next versions of workers, in order.
    #[must_use]
    pub fn worker_steps(&self) -> Vec<String> {
        steps(self.workers.as_ref())
    }

    /// Whether the API server of the workload has responded once, in either API version; `None` if neither has the field.
    #[must_use]
    pub fn control_plane_initialized(&self) -> Option<bool> {
        match &self.initialization {
            Some(initialization) => Some(initialization.control_plane_initialized == Some(true)),
            None => {
                condition::find(&self.conditions, CONTROL_PLANE_INITIALIZED).map(|it| it.status == "True")
            }
        }
    }
}

fn steps(planned: Option<&PlannedUpgrade>) -> Vec<String> {
    let steps = planned.into_iter().flat_map(|planned| &planned.upgrade_plan);
    steps.map(|step| step.version.clone()).collect()
}
