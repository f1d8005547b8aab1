//! The copy of a Package in a workload cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_crds::foreign::Package;

use super::Repair;

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

/// What the copy lacks: only the spec counts.
#[must_use]
pub fn repair_package(wanted: &Package, found: &Package) -> Repair<Package> {
    if wanted.spec == found.spec {
        return Repair::NotNeeded;
    }
    Repair::Replace(Box::new(Package {
        metadata: found.metadata.clone(),
        spec: wanted.spec.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn copy(description: &str) -> Package {
        let spec: Value = json!({"refName": "one.test", "version": "1.0.0", "releaseNotes": description});
        Package {
            metadata: ObjectMeta {
                name: Some("one.test.1.0.0".to_owned()),
                uid: Some("uid".to_owned()),
                resource_version: Some("7".to_owned()),
                ..ObjectMeta::default()
            },
            spec: serde_json::from_value(spec).unwrap(),
        }
    }

    #[test]
    fn a_copy_that_was_edited_gets_its_spec_back() {
        let wanted = package(&copy("ours"), "system");
        assert_eq!(repair_package(&wanted, &copy("ours")), Repair::NotNeeded);
        assert_eq!(
            repair_package(&wanted, &copy("theirs")),
            Repair::Replace(Box::new(copy("ours")))
        );
    }
}
