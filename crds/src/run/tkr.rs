//! TanzuKubernetesRelease: a Kubernetes version with the images and packages that were made for it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;
use crate::schema::is_false;

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
    printcolumn = r#"{"name": "Created", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Compatible')].reason", "description": "Why it is not compatible"}"#
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
    /// The management packages that the release needs, as far as they are proven; absent where it needs none.
    #[serde(
        default,
        deserialize_with = "crate::foreign::lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub requirements: Option<Requirements>,
}

/// How far the requirements of a release are met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requirements {
    /// The value of annotation `lifecycle.sluice.dev/requires` that the rest is about.
    pub requires: String,
    /// Whether a ConfigMap with label `run.tanzu.vmware.com/additional-compatible-tkrs` lists the release, whatever it needs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overridden: bool,
    /// The required packages that are proven.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub proven: Vec<ProvenPackage>,
}

/// A proven management package. The proof holds for this generation of its App, also while a resync fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvenPackage {
    /// `spec.refName` of the package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// UID of its App.
    #[serde(rename = "appUID")]
    pub app_uid: String,
    /// Generation of its App.
    pub app_generation: i64,
}
