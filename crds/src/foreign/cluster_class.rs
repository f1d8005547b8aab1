//! Cluster API's ClusterClass: which Kubernetes versions an upgrade may pass through.

use serde::{Deserialize, Serialize};

use super::kind::foreign_kind;
use super::lenient::{each, or_default};

foreign_kind! {
    /// A ClusterClass.
    ClusterClass in "cluster.x-k8s.io" / "v1beta2", "ClusterClass", "clusterclasses",
    spec: ClusterClassSpec
}

/// What a ClusterClass lays down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassSpec {
    /// Versions that clusters of the class can have, ascending; empty means any.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_versions: Vec<String>,
    /// How clusters of the class are upgraded.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<ClusterClassUpgrade>,
}

/// How clusters of a class are upgraded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassUpgrade {
    /// What extensions decide.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalUpgrade>,
}

/// What extensions decide of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalUpgrade {
    /// Handler that plans the steps; it takes precedence over `kubernetesVersions`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub generate_upgrade_plan_extension: Option<String>,
}

impl ClusterClassSpec {
    /// Whether an extension plans the steps of upgrades.
    #[must_use]
    pub fn is_planned_by_extension(&self) -> bool {
        let external = self
            .upgrade
            .as_ref()
            .and_then(|upgrade| upgrade.external.as_ref());
        external.is_some_and(|external| external.generate_upgrade_plan_extension.is_some())
    }
}
