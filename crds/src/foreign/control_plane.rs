//! A control plane of any provider, reduced to the fields of the contract of Cluster API.

use std::borrow::Cow;

use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope, ObjectMeta},
};
use serde::{Deserialize, Serialize};

use super::lenient::{each, or_default};

/// A control plane. Its provider chooses the kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlPlane {
    /// Name, namespace, labels, generation and the rest.
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(deserialize_with = "or_default")]
    pub spec: ControlPlaneSpec,
    /// Observed state.
    #[serde(deserialize_with = "or_default")]
    pub status: ControlPlaneStatus,
}

/// Desired state of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlPlaneSpec {
    /// Kubernetes version.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of machines; absent for a control plane without machines.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// Observed state of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneStatus {
    /// The generation that the status is about.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of machines.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of machines with the desired template (v1beta2).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// Number of machines with the desired template (v1beta1).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Lowest Kubernetes version of its machines.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Versions of its machines, the oldest first.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<MachineVersion>,
}

/// A version that some machines have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineVersion {
    /// Kubernetes version.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Resource for ControlPlane {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.api_version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
