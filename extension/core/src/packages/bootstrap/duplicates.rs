//! Rejects one package in two fields of a ClusterBootstrap: both would overwrite the same PackageInstall forever.

use std::collections::BTreeMap;

use sluice_crds::run::ClusterBootstrapSpec;

use super::{Catalogue, packages};
use crate::names;
use crate::reasons::{GateReason, Hold};

/// Returns the indexes of the first two packages of `spec` whose PackageInstalls have the same name. Missing packages have no
/// PackageInstall.
#[must_use]
pub fn duplicate_indexes(spec: &ClusterBootstrapSpec, catalogue: &Catalogue) -> Option<(usize, usize)> {
    let mut seen = BTreeMap::new();
    packages(spec)
        .into_iter()
        .enumerate()
        .find_map(|(place, (_, package))| {
            let facts = catalogue.get(&package.ref_name)?;
            let first = seen.insert(names::short(&facts.ref_name), place)?;
            Some((first, place))
        })
}

/// Returns the hold of a ClusterBootstrap with two packages that share a PackageInstall name.
#[must_use]
pub fn duplicate_hold(spec: &ClusterBootstrapSpec, catalogue: &Catalogue) -> Option<Hold> {
    let (first, second) = duplicate_indexes(spec, catalogue)?;
    let all = packages(spec);
    let ((field, one), (other_field, other)) = (all[first], all[second]);
    let short = names::short(&catalogue.get(&other.ref_name)?.ref_name);
    Some(Hold::new(
        GateReason::PackageDuplicated,
        format!(
            "Packages {} ({}) and {} ({}) would be one PackageInstall, {short}; keep the one in the field where the release has it",
            one.ref_name,
            field.field(),
            other.ref_name,
            other_field.field()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::PackageFacts;
    use super::*;

    #[rstest]
    #[case::each_once(json!({"csi": {"refName": "vsphere.1"}, "additionalPackages": [{"refName": "metrics.1"}]}), None)]
    #[case::at_two_versions(
        json!({"csi": {"refName": "vsphere.1"}, "additionalPackages": [{"refName": "vsphere.2"}]}),
        Some("Packages vsphere.1 (spec.csi) and vsphere.2 (spec.additionalPackages) would be one PackageInstall, vsphere; keep the one in the field where the release has it"),
    )]
    #[case::the_same_one_twice(
        json!({"additionalPackages": [{"refName": "metrics.1"}, {"refName": "metrics.1"}]}),
        Some("Packages metrics.1 (spec.additionalPackages) and metrics.1 (spec.additionalPackages) would be one PackageInstall, metrics; keep the one in the field where the release has it"),
    )]
    #[case::that_do_not_exist(json!({"additionalPackages": [{"refName": "gone.1"}, {"refName": "gone.1"}]}), None)]
    fn two_packages_of_one_name_are_refused(#[case] spec: Value, #[case] refused: Option<&str>) {
        let catalogue = ["vsphere.1", "vsphere.2", "metrics.1"].map(|name| {
            let facts = PackageFacts {
                ref_name: format!("{}.tanzu.vmware.com", names::short(name)),
                ..PackageFacts::default()
            };
            (name.to_owned(), facts)
        });
        let found = duplicate_hold(&serde_json::from_value(spec).unwrap(), &catalogue.into());
        assert_eq!(found.as_ref().map(|hold| hold.message.as_str()), refused);
    }
}
