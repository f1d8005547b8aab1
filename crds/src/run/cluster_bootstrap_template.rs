//! ClusterBootstrapTemplate: the package set of a release, copied into each cluster's ClusterBootstrap.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterBootstrapSpec;

/// The package set of a release: exactly what a ClusterBootstrap carries, so that one is a copy of the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "run.tanzu.vmware.com",
    version = "v1alpha3",
    kind = "ClusterBootstrapTemplate",
    plural = "clusterbootstraptemplates",
    shortname = "cbt",
    namespaced,
    derive = "PartialEq",
    doc = "The package set of a Kubernetes release; a ClusterBootstrap starts as a copy of it.",
    printcolumn = r#"{"name": "CNI", "type": "string", "jsonPath": ".spec.cni.refName", "description": "Package of the container network"}"#,
    printcolumn = r#"{"name": "CSI", "type": "string", "jsonPath": ".spec.csi.refName", "description": "Package of the storage interface"}"#,
    printcolumn = r#"{"name": "CPI", "type": "string", "jsonPath": ".spec.cpi.refName", "description": "Package of the cloud provider interface"}"#,
    printcolumn = r#"{"name": "Kapp", "type": "string", "jsonPath": ".spec.kapp.refName", "description": "Package of kapp-controller"}"#,
    printcolumn = r#"{"name": "Additional Packages", "type": "string", "jsonPath": ".spec.additionalPackages[*].refName", "description": "Packages beyond the core ones", "priority": 10}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(transparent)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "ClusterBootstrapTemplate has immutable spec, update is not allowed",
}]))]
pub struct ClusterBootstrapTemplateSpec(pub ClusterBootstrapSpec);
