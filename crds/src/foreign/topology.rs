//! The part of a Cluster that its ClusterClass turns into objects, as v1beta2 and v1beta1 serve it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lenient::{each, or_default, read};
pub use super::variables::{Variable, Variables};

/// Topology of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// The ClusterClass (v1beta2).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub class_ref: Option<ClassRef>,
    /// Name of the ClusterClass (v1beta1).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Namespace of the ClusterClass (v1beta1).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub class_namespace: Option<String>,
    /// The desired Kubernetes version.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    /// The control plane.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneTopology>,
    /// The workers.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersTopology>,
    /// Values for the variables of the ClusterClass.
    #[serde(skip_serializing_if = "Variables::is_empty")]
    pub variables: Variables,
}

impl Topology {
    /// Name of the ClusterClass.
    #[must_use]
    pub fn class_name(&self) -> Option<&str> {
        self.class_ref
            .as_ref()
            .map(|class| class.name.as_str())
            .or(self.class.as_deref())
    }

    /// Namespace of the ClusterClass; absent means the one of the Cluster.
    #[must_use]
    pub fn class_namespace(&self) -> Option<&str> {
        self.class_ref
            .as_ref()
            .and_then(|class| class.namespace.as_deref())
            .or(self.class_namespace.as_deref())
            .filter(|namespace| !namespace.is_empty())
    }

    /// The value of a variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<Value> {
        self.variables.get(name).map(Variable::value)
    }
}

/// Names a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassRef {
    /// Name of the ClusterClass.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Namespace of the ClusterClass; absent means the one of the Cluster.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The control plane of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlPlaneTopology {
    /// Labels and annotations for the control plane.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TopologyMetadata>,
    /// Number of machines.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Variables that differ for the control plane.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub variables: Option<VariableOverrides>,
}

/// Labels and annotations of a part of a topology that Sluice reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyMetadata {
    /// Labels.
    #[serde(deserialize_with = "read", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "read", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The workers of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkersTopology {
    /// One for each MachineDeployment.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub machine_deployments: Vec<WorkerTopology>,
    /// One for each MachinePool.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub machine_pools: Vec<WorkerTopology>,
}

/// A MachineDeployment or MachinePool of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerTopology {
    /// Name within the topology; the object's own name is generated.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Name of the worker class.
    #[serde(deserialize_with = "or_default")]
    pub class: String,
    /// Labels and annotations for the workers.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TopologyMetadata>,
    /// Number of machines.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Variables that differ for these workers.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub variables: Option<VariableOverrides>,
}

/// Variables that differ for a part of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariableOverrides {
    /// The variables with their values here.
    #[serde(skip_serializing_if = "Variables::is_empty")]
    pub overrides: Variables,
}
