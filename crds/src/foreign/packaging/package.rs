//! Package: one version of something that can be installed.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::decode;
use crate::foreign::kind::foreign_kind;

foreign_kind! {
    /// A Package. Its spec is kept whole, because it is copied into workload clusters.
    Package in "data.packaging.carvel.dev" / "v1alpha1", "Package", "packages",
    spec: PackageSpec
}

/// What a Package consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageSpec {
    /// Name that all versions share, `antrea.tanzu.vmware.com`.
    pub ref_name: String,
    /// This version.
    pub version: String,
    /// Everything else, untouched.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl<'de> Deserialize<'de> for PackageSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut spec = Self::default();
        spec.rest = decode::rest(deserializer, |name, text| {
            let field = match name {
                "refName" => &mut spec.ref_name,
                "version" => &mut spec.version,
                _ => return Ok(false),
            };
            *field = decode::lenient(|| decode::nested(text).map(Some))?.unwrap_or_default();
            Ok(true)
        })?;
        Ok(spec)
    }
}
