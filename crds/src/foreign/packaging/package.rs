//! Package: one version of something that can be installed.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::foreign::kind::foreign_kind;
use crate::foreign::lenient::or_default;

foreign_kind! {
    /// A Package. Its spec is kept whole, because it is copied into workload clusters.
    Package in "data.packaging.carvel.dev" / "v1alpha1", "Package", "packages",
    spec: PackageSpec
}

/// What a Package consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageSpec {
    /// Name that all versions share, `antrea.tanzu.vmware.com`.
    #[serde(deserialize_with = "or_default")]
    pub ref_name: String,
    /// This version.
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    /// Everything else, untouched.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}
