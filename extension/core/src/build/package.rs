//! The copy of a Package in a workload cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_crds::foreign::Package;

/// The Package to keep in `namespace` of a workload cluster: the spec, and nothing of the metadata but the name.
#[must_use]
pub fn package(of: &Package, namespace: &str) -> Package {
    Package {
        metadata: ObjectMeta {
            name: of.metadata.name.clone(),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: of.spec.clone(),
    }
}

/// Whether the copy needs no write.
#[must_use]
pub fn same_package(wanted: &Package, found: &Package) -> bool {
    wanted.spec == found.spec
}
