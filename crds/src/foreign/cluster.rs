//! Cluster API's Cluster, as v1beta2 and v1beta1 serve it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{self, Condition};
use super::kind::foreign_kind;
use super::lenient::{each, or_default, stop};
use crate::schema::is_false;

foreign_kind! {
    /// A Cluster, asked for in v1beta2. The fields of both versions are read, so that one from a hook request or from
    /// [`ClusterV1Beta1`] is the same to its reader.
    Cluster in "cluster.x-k8s.io" / "v1beta2", "Cluster", "clusters",
    spec: ClusterSpec, status: ClusterStatus
}

foreign_kind! {
    /// A Cluster, asked for in v1beta1 where Cluster API serves nothing newer. Turn it into a [`Cluster`].
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

/// What a Cluster asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Stops Cluster API. No hook is called meanwhile.
    #[serde(default, deserialize_with = "stop", skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Address ranges of the workload.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_network: Option<ClusterNetwork>,
    /// The control plane object.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub control_plane_ref: Option<ObjectReference>,
    /// The infrastructure object.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub infrastructure_ref: Option<ObjectReference>,
    /// Absent for a cluster without a ClusterClass.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub topology: Option<Topology>,
}

/// Address ranges of a workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetwork {
    /// Addresses of Services.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub services: Option<NetworkRanges>,
    /// Addresses of Pods.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub pods: Option<NetworkRanges>,
    /// DNS domain of Services.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_domain: Option<String>,
}

/// Address blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRanges {
    /// Blocks in CIDR notation.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub cidr_blocks: Vec<String>,
}

/// Names an object of a provider: v1beta2 gives its group, v1beta1 its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group of the object (v1beta2).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_group: Option<String>,
    /// Group and version of the object (v1beta1).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,
    /// Kind of the object.
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    /// Name of the object. Its namespace is that of the Cluster.
    #[serde(default, deserialize_with = "or_default")]
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

/// The part of a Cluster that its ClusterClass turns into objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// The ClusterClass (v1beta2).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub class_ref: Option<ClassRef>,
    /// Name of the ClusterClass (v1beta1).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub class: Option<String>,
    /// Namespace of the ClusterClass (v1beta1).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub class_namespace: Option<String>,
    /// The Kubernetes version that the cluster shall have.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// The control plane.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub control_plane: Option<ControlPlaneTopology>,
    /// The workers.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub workers: Option<WorkersTopology>,
    /// Values for the variables of the ClusterClass.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
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
    pub fn variable(&self, name: &str) -> Option<&Value> {
        self.variables
            .iter()
            .find(|variable| variable.name == name)
            .map(|variable| &variable.value)
    }
}

/// Names a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassRef {
    /// Name of the ClusterClass.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Namespace of the ClusterClass; absent means the one of the Cluster.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace: Option<String>,
}

/// The control plane of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlPlaneTopology {
    /// Labels and annotations for the control plane.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub metadata: Option<TopologyMetadata>,
    /// Number of machines.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub replicas: Option<i32>,
    /// Variables that differ for the control plane.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub variables: Option<VariableOverrides>,
}

/// Labels and annotations of a part of a topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyMetadata {
    /// Labels.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "std::collections::BTreeMap::is_empty"
    )]
    pub labels: std::collections::BTreeMap<String, String>,
    /// Annotations.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "std::collections::BTreeMap::is_empty"
    )]
    pub annotations: std::collections::BTreeMap<String, String>,
}

/// The workers of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkersTopology {
    /// One for each MachineDeployment.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub machine_deployments: Vec<WorkerTopology>,
    /// One for each MachinePool.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub machine_pools: Vec<WorkerTopology>,
}

/// A MachineDeployment or MachinePool of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerTopology {
    /// Name within the topology; the object's own name is generated.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Name of the worker class.
    #[serde(default, deserialize_with = "or_default")]
    pub class: String,
    /// Labels and annotations for the workers.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub metadata: Option<TopologyMetadata>,
    /// Number of machines.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub replicas: Option<i32>,
    /// Variables that differ for these workers.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub variables: Option<VariableOverrides>,
}

/// Variables that differ for a part of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VariableOverrides {
    /// The variables with their values here.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Variable>,
}

/// A variable of a ClusterClass with its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// Any JSON.
    #[serde(default)]
    pub value: Value,
}

/// What is observed of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// `Pending`, `Provisioning`, `Provisioned`, `Deleting`, `Failed`.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<String>,
    /// How far the first provisioning is (v1beta2).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub initialization: Option<Initialization>,
    /// Whether the infrastructure is there (v1beta1).
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub infrastructure_ready: Option<bool>,
    /// Conditions of either version.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How far the first provisioning of a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// Whether the infrastructure is there.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub infrastructure_provisioned: Option<bool>,
    /// Whether the API server of the workload has answered once.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub control_plane_initialized: Option<bool>,
}

impl ClusterStatus {
    /// Whether the infrastructure is there, whichever version says so.
    #[must_use]
    pub fn infrastructure_provisioned(&self) -> bool {
        match &self.initialization {
            Some(initialization) => initialization.infrastructure_provisioned == Some(true),
            None => self.infrastructure_ready == Some(true),
        }
    }

    /// Whether the API server of the workload has answered once, whichever version says so.
    #[must_use]
    pub fn control_plane_initialized(&self) -> bool {
        match &self.initialization {
            Some(initialization) => initialization.control_plane_initialized == Some(true),
            None => condition::is_true(&self.conditions, "ControlPlaneInitialized"),
        }
    }
}
