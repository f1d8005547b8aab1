//! TanzuKubernetesRelease: a Kubernetes version with the images and packages that were made for it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;

/// What a release consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "run.tanzu.vmware.com",
    version = "v1alpha3",
    kind = "TanzuKubernetesRelease",
    plural = "tanzukubernetesreleases",
    shortname = "tkr",
    status = "TanzuKubernetesReleaseStatus",
    derive = "PartialEq",
    doc = "A Kubernetes version together with the OS images and packages that were made for it.",
    printcolumn = r#"{"name": "Version", "type": "string", "jsonPath": ".spec.version"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name": "Compatible", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Compatible')].status"}"#,
    printcolumn = r#"{"name": "Updates Available", "type": "string", "jsonPath": ".status.conditions[?(@.type=='UpdatesAvailable')].message"}"#,
    printcolumn = r#"{"name": "Created", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TanzuKubernetesReleaseSpec {
    /// Version of the release: a semantic version with build metadata, unique among all releases.
    pub version: String,
    /// The Kubernetes distribution of the release.
    pub kubernetes: KubernetesSpec,
    /// Names of the OSImages of the release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub os_images: Vec<LocalObjectReference>,
    /// Names of the Package objects of the release. Absent marks a release from before bootstrap packages existed,
    /// which is not the same as an empty list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_packages: Option<Vec<LocalObjectReference>>,
}

/// The Kubernetes distribution of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesSpec {
    /// Version of the Kubernetes build, `v1.34.2+vmware.1`. Several releases may share one build.
    pub version: String,
    /// Registry path that images come from where a component names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_repository: String,
    /// Image of etcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<ContainerImage>,
    /// Image of the pause container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<ContainerImage>,
    /// Image of CoreDNS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coredns: Option<ContainerImage>,
    /// Image of kube-vip.
    #[serde(rename = "kube-vip", default, skip_serializing_if = "Option::is_none")]
    pub kube_vip: Option<ContainerImage>,
}

/// Where an image comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerImage {
    /// Registry path; absent means the one of the distribution.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_repository: String,
    /// Tag of the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_tag: String,
}

/// Names an object whose kind and namespace the field implies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalObjectReference {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// What is known about a release on this management cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TanzuKubernetesReleaseStatus {
    /// `Valid`, `Compatible`, `Ready`, `UpdatesAvailable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
