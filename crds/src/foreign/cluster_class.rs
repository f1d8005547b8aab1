//! Cluster API's ClusterClass: the Kubernetes versions of upgrades, and the names of its parts.

use serde::{Deserialize, Serialize};

use super::kind::foreign_kind;
use super::lenient::{each, or_default};
use super::topology::TopologyMetadata;

foreign_kind! {
    /// A ClusterClass.
    ClusterClass in "cluster.x-k8s.io" / "v1beta2", "ClusterClass", "clusterclasses",
    spec: ClusterClassSpec
}

/// Spec of a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassSpec {
    /// Versions that clusters of the class can have, ascending; empty means any.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_versions: Vec<String>,
    /// How clusters of the class are upgraded.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<ClusterClassUpgrade>,
    /// The control plane.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneClass>,
    /// The workers.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersClass>,
    /// The variables that clusters may set.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<ClassVariable>,
}

/// The control plane of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlPlaneClass {
    /// Labels and annotations for the control plane.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TopologyMetadata>,
}

/// The workers of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkersClass {
    /// Classes of MachineDeployments.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub machine_deployments: Vec<WorkerClass>,
    /// Classes of MachinePools.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub machine_pools: Vec<WorkerClass>,
}

/// One class of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerClass {
    /// Its name, which topologies refer to.
    #[serde(deserialize_with = "or_default")]
    pub class: String,
    /// Labels and annotations for the workers.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TopologyMetadata>,
}

/// A variable that a class declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassVariable {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// How clusters of a class are upgraded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassUpgrade {
    /// Decisions of extensions.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalUpgrade>,
}

/// Decisions of extensions about an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalUpgrade {
    /// Handler that plans the steps; it takes precedence over `kubernetesVersions`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub generate_upgrade_plan_extension: Option<String>,
}

impl ClusterClassSpec {
    /// Whether clusters of the class may set this variable.
    #[must_use]
    pub fn declares(&self, variable: &str) -> bool {
        self.variables.iter().any(|declared| declared.name == variable)
    }

    /// Returns the handler that plans the steps of upgrades with the name of its ExtensionConfig, `generate-upgrade-plan.sluice`.
    #[must_use]
    pub fn plan_extension(&self) -> Option<&str> {
        let external = self.upgrade.as_ref()?.external.as_ref()?;
        external.generate_upgrade_plan_extension.as_deref()
    }
}
