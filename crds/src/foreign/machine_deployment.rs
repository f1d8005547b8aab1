//! Cluster API's MachineDeployment: desired and current Kubernetes versions of workers.

use serde::{Deserialize, Serialize};

use super::kind::foreign_kind;
use super::lenient::{each, or_default, stop};
use crate::schema::is_false;

foreign_kind! {
    /// A MachineDeployment.
    MachineDeployment in "cluster.x-k8s.io" / "v1beta2", "MachineDeployment", "machinedeployments",
    spec: WorkerSpec, status: WorkerStatus
}

/// Spec of a MachineDeployment or MachinePool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerSpec {
    /// Name of the Cluster.
    #[serde(deserialize_with = "or_default")]
    pub cluster_name: String,
    /// Number of machines.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pauses Cluster API for these workers.
    #[serde(deserialize_with = "stop", skip_serializing_if = "is_false")]
    pub paused: bool,
    /// The machines.
    #[serde(deserialize_with = "or_default")]
    pub template: MachineTemplate,
}

/// The machines of a MachineDeployment or a MachinePool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineTemplate {
    /// Spec of each machine.
    #[serde(deserialize_with = "or_default")]
    pub spec: MachineSpec,
}

/// Spec of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSpec {
    /// The Kubernetes version.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Status of a MachineDeployment or MachinePool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerStatus {
    /// The generation that the status is about.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of machines.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of machines that match the template (v1beta2).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// Fields of v1beta1.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<DeprecatedStatus>,
    /// Kubernetes versions of the machines; empty if Cluster API does not report them.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionReplicas>,
}

/// Fields of earlier API versions in a status of v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeprecatedStatus {
    /// Fields of v1beta1.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<V1Beta1Status>,
}

/// Fields of a status of v1beta1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct V1Beta1Status {
    /// Number of machines of the MachineSet with the current template.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
}

/// Number of machines with a Kubernetes version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionReplicas {
    /// The version.
    pub version: String,
    /// Number of machines.
    #[serde(default, deserialize_with = "or_default")]
    pub replicas: i32,
}
