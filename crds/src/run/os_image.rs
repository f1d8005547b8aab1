//! OSImage: a machine image that a release ships for one infrastructure.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Condition;
use crate::schema::free_object;

/// What is inside an image and where it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "run.tanzu.vmware.com",
    version = "v1alpha3",
    kind = "OSImage",
    plural = "osimages",
    shortname = "osimg",
    status = "OSImageStatus",
    derive = "PartialEq",
    doc = "A machine image that a Kubernetes release ships for one infrastructure.",
    printcolumn = r#"{"name": "K8S Version", "type": "string", "jsonPath": ".spec.kubernetesVersion"}"#,
    printcolumn = r#"{"name": "OS Name", "type": "string", "jsonPath": ".spec.os.name"}"#,
    printcolumn = r#"{"name": "OS Version", "type": "string", "jsonPath": ".spec.os.version"}"#,
    printcolumn = r#"{"name": "Arch", "type": "string", "jsonPath": ".spec.os.arch"}"#,
    printcolumn = r#"{"name": "Type", "type": "string", "jsonPath": ".spec.image.type"}"#,
    printcolumn = r#"{"name": "Compatible", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Compatible')].status"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name": "Created", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct OSImageSpec {
    /// Version of the Kubernetes build inside the image.
    pub kubernetes_version: String,
    /// The operating system inside the image.
    pub os: OperatingSystem,
    /// Where the infrastructure finds the image.
    pub image: MachineImage,
}

/// The operating system inside an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperatingSystem {
    /// Family, `linux`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Distribution, `ubuntu`.
    pub name: String,
    /// Version of the distribution, `24.04`.
    pub version: String,
    /// Processor architecture, `amd64`.
    pub arch: String,
}

/// Where an infrastructure finds an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineImage {
    /// Kind of image. Known are `ami`, `azure`, `docker`, `ova` and `vmop`; others are allowed.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whatever identifies the image to its infrastructure; copied into machine templates as it is.
    #[serde(rename = "ref")]
    #[schemars(schema_with = "free_object")]
    pub ref_: Map<String, Value>,
}

/// What is known about an image on this management cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OSImageStatus {
    /// `Valid` and `Ready`; `Compatible` comes from the infrastructure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
