//! Copy of a Package in a workload cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_crds::foreign::Package;

use super::Repair;
use crate::packages::bootstrap::PackageFacts;

/// Builds the copy of a Package for `namespace` of a workload cluster: name and spec, without other metadata.
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

/// Fields by which kapp-controller selects a Package, in addition to its version.
const SELECTIONS: [&str; 2] = ["kubernetesVersionSelection", "kappControllerVersionSelection"];

/// Returns the repair of a copy that differs in the template of its App or in the selection fields. Other differences do not count:
/// other releases of kapp-controller drop unknown fields and write additional null fields.
#[must_use]
pub fn repair_package(wanted: &Package, found: &Package) -> Repair<Package> {
    let chosen = |package: &Package| {
        SELECTIONS.map(|field| {
            package
                .spec
                .rest
                .get(field)
                .filter(|value| !value.is_null())
                .cloned()
        })
    };
    if PackageFacts::of(wanted) == PackageFacts::of(found) && chosen(wanted) == chosen(found) {
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

    fn copy(fetch: &Value, notes: &str) -> Package {
        let template = json!({"spec": {"fetch": fetch}});
        let spec =
            json!({"refName": "one.test", "version": "1.0.0", "template": template, "releaseNotes": notes});
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
        let ours = copy(&json!([{"inline": {}}]), "ours");
        let wanted = package(&ours, "system");
        assert_eq!(repair_package(&wanted, &ours), Repair::NotNeeded);
        let theirs = copy(&json!([{"http": {}}]), "ours");
        assert_eq!(repair_package(&wanted, &theirs), Repair::Replace(Box::new(ours)));
    }

    #[test]
    fn a_copy_that_is_chosen_otherwise_gets_its_spec_back() {
        let ours = copy(&json!([{"inline": {}}]), "ours");
        let wanted = package(&ours, "system");
        for field in SELECTIONS {
            let mut theirs = ours.clone();
            let rest = &mut theirs.spec.rest;
            rest.insert(field.to_owned(), Value::Null);
            assert_eq!(repair_package(&wanted, &theirs), Repair::NotNeeded, "{field}");
            let rest = &mut theirs.spec.rest;
            rest.insert(field.to_owned(), json!({"constraints": "<1.36.0"}));
            assert_eq!(
                repair_package(&wanted, &theirs),
                Repair::Replace(Box::new(ours.clone())),
                "{field}"
            );
        }
    }

    #[test]
    fn a_copy_as_another_kapp_controller_keeps_it_is_left_alone() {
        let wanted = package(&copy(&json!([{"inline": {}}]), "ours"), "system");
        let kept = copy(&json!([{"inline": {}, "imgpkgBundle": null}]), "dropped");
        assert_eq!(repair_package(&wanted, &kept), Repair::NotNeeded);
    }
}
