//! Completes a partial ClusterBootstrap that a user applies again after it was completed.
//!
//! A file in Git keeps its wildcards and lists only packages of the user. The fields that Sluice filled in come from the stored object.

use std::collections::BTreeSet;

use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec, ValuesFrom};

use super::{
    KeptVersions, Release,
    create::localize,
    fill::{WILDCARD, complete_names},
    packages,
};
use crate::{fault::Fault, names::short};

/// Stored ClusterBootstrap and the releases of its packages.
#[derive(Debug, Clone, Copy)]
pub struct Reapplied<'a> {
    /// Name of the Cluster.
    pub cluster: &'a str,
    /// Stored spec.
    pub stored: &'a ClusterBootstrapSpec,
    /// Release of the stored spec, which completes new wildcards.
    pub release: Release<'a>,
    /// Templates of that release and of the annotation, if they exist.
    pub templates: [Option<&'a ClusterBootstrapSpec>; 2],
    /// Whether Sluice does not manage the CNI.
    pub unmanaged_cni: bool,
    /// Packages that a user leaves out.
    pub kept: &'a KeptVersions,
}

/// Completes `own` from the stored spec: returns it with whole names, and with the fields that were filled in.
///
/// A version, a package or values that the user changes stay as written, and the rules of an update judge them.
///
/// # Errors
/// Returns a fault for each wildcard that matches no single package of the stored spec or of its release.
pub fn reapply(
    own: &ClusterBootstrapSpec,
    from: Reapplied<'_>,
) -> Result<(ClusterBootstrapSpec, ClusterBootstrapSpec), Vec<Fault>> {
    let (named, faults) = complete_names(&from.named(own), from.release.name, Some(from.release.packages));
    if !faults.is_empty() {
        return Err(faults);
    }
    let stored = from.stored;
    let mut filled = named.clone();
    for (own, stored) in [
        (&mut filled.kapp, &stored.kapp),
        (&mut filled.cni, &stored.cni),
        (&mut filled.cpi, &stored.cpi),
        (&mut filled.csi, &stored.csi),
    ] {
        let Some(stored) = stored else { continue };
        match own {
            Some(own) => from.add_values(own, stored),
            None if from.restores(stored, &named) => *own = Some(stored.clone()),
            None => {}
        }
    }
    if from.unmanaged_cni {
        filled.cni.clone_from(&named.cni);
    }
    // A user may remove the CPI or CSI of a whole ClusterBootstrap. A partial one has a wildcard or lacks a required package.
    let has_wildcard = packages(own)
        .iter()
        .any(|(_, package)| package.ref_name.ends_with(WILDCARD));
    if !has_wildcard && own.kapp.is_some() && (own.cni.is_some() || from.unmanaged_cni) {
        if own.cpi.is_none() {
            filled.cpi = None;
        }
        if own.csi.is_none() {
            filled.csi = None;
        }
    }
    // In the stored order, followed by packages that the user adds.
    let of_user = |stored: &ClusterBootstrapPackage| {
        let mut own = named.additional_packages.iter();
        own.find(|own| short(&own.ref_name) == short(&stored.ref_name))
    };
    let known = stored.additional_packages.iter().filter_map(|stored| {
        let Some(own) = of_user(stored) else {
            return from.restores(stored, &named).then(|| stored.clone());
        };
        let mut own = own.clone();
        from.add_values(&mut own, stored);
        Some(own)
    });
    let all = stored.additional_packages.iter();
    let placed: BTreeSet<&str> = all.filter_map(of_user).map(|own| own.ref_name.as_str()).collect();
    let added = named.additional_packages.iter();
    let added = added
        .filter(|own| !placed.contains(own.ref_name.as_str()))
        .cloned();
    filled.additional_packages = known.chain(added).collect();
    Ok((named, filled))
}

impl<'a> Reapplied<'a> {
    /// Returns `own` with the stored names for the wildcards that match one.
    fn named(&self, own: &ClusterBootstrapSpec) -> ClusterBootstrapSpec {
        let mut named = own.clone();
        for (own, stored) in [
            (&mut named.kapp, &self.stored.kapp),
            (&mut named.cni, &self.stored.cni),
            (&mut named.cpi, &self.stored.cpi),
            (&mut named.csi, &self.stored.csi),
        ] {
            if let (Some(own), Some(stored)) = (own, stored)
                && matches(&own.ref_name, &stored.ref_name)
            {
                own.ref_name.clone_from(&stored.ref_name);
            }
        }
        for package in &mut named.additional_packages {
            if let Some(name) = self.only_match(&package.ref_name, own) {
                name.clone_into(&mut package.ref_name);
            }
        }
        named
    }

    /// Returns the only stored additional package that a wildcard matches and `own` does not list by its whole name.
    fn only_match(&self, wildcard: &str, own: &ClusterBootstrapSpec) -> Option<&'a str> {
        let is_listed = |name: &str| own.additional_packages.iter().any(|own| own.ref_name == name);
        let stored = self.stored.additional_packages.iter();
        let mut found = stored
            .map(|stored| stored.ref_name.as_str())
            .filter(|name| matches(wildcard, name) && !is_listed(name));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Whether a stored package that the user does not list comes back: it was filled in, and nothing replaces it or leaves it out.
    fn restores(&self, stored: &ClusterBootstrapPackage, named: &ClusterBootstrapSpec) -> bool {
        let is_replaced = packages(named)
            .iter()
            .any(|(_, own)| short(&own.ref_name) == short(&stored.ref_name));
        !is_replaced && !self.kept.leaves_out_package(&stored.ref_name) && self.is_filled(stored)
    }

    /// Adds the stored values of the same package to one without values.
    fn add_values(&self, own: &mut ClusterBootstrapPackage, stored: &ClusterBootstrapPackage) {
        if own.values_from.is_none() && own.ref_name == stored.ref_name && self.is_filled(stored) {
            own.values_from.clone_from(&stored.values_from);
        }
    }

    /// Whether a template has a stored package, whose values are absent or those of the template.
    fn is_filled(&self, stored: &ClusterBootstrapPackage) -> bool {
        let theirs = self
            .templates
            .iter()
            .flatten()
            .flat_map(|template| packages(template));
        let mut same = theirs.filter(|(_, theirs)| short(&theirs.ref_name) == short(&stored.ref_name));
        same.any(|(_, theirs)| {
            let Some(values) = &stored.values_from else {
                return true;
            };
            let mut clone = theirs.clone();
            let localized = localize(self.cluster, &mut clone).is_ok();
            let is_same = |theirs: &ValuesFrom| is_same_source(values, theirs);
            localized && clone.values_from.as_ref().is_some_and(is_same)
        })
    }
}

/// Whether `name` is a Package of this wildcard.
fn matches(wildcard: &str, name: &str) -> bool {
    let prefix = wildcard.strip_suffix(WILDCARD);
    prefix.is_some_and(|prefix| name.starts_with(prefix))
}

/// Whether two packages have the same source of values. Reviews leave out the content of inline values.
fn is_same_source(one: &ValuesFrom, other: &ValuesFrom) -> bool {
    one.inline.is_some() == other.inline.is_some()
        && one.secret_ref == other.secret_ref
        && one.provider_ref == other.provider_ref
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn spec(spec: &Value) -> ClusterBootstrapSpec {
        serde_json::from_value(spec.clone()).unwrap()
    }

    fn template(version: u32) -> ClusterBootstrapSpec {
        spec(&json!({
            "kapp": {"refName": format!("kapp.x.{version}")},
            "cni": {"refName": format!("antrea.x.{version}"), "valuesFrom": {"secretRef": "antrea"}},
            "csi": {"refName": format!("csi.x.{version}")},
            "additionalPackages": [
                {"refName": format!("metrics.x.{version}")},
                {"refName": format!("storage.x.{version}"), "valuesFrom": {"secretRef": "storage"}},
            ],
        }))
    }

    /// The file that the user applies.
    fn file() -> Value {
        json!({
            "kapp": {"refName": "kapp*"},
            "additionalPackages": [
                {"refName": "metrics*", "valuesFrom": {"inline": {"x": 1}}},
                {"refName": "own.x.7"},
            ],
        })
    }

    /// The stored ClusterBootstrap after an upgrade to version 2.
    fn stored() -> Value {
        json!({
            "kapp": {"refName": "kapp.x.2"},
            "cni": {"refName": "antrea.x.2", "valuesFrom": {"secretRef": "one-antrea-package"}},
            "csi": {"refName": "csi.x.2"},
            "additionalPackages": [
                {"refName": "metrics.x.2", "valuesFrom": {"inline": {"x": 1}}},
                {"refName": "storage.x.2", "valuesFrom": {"secretRef": "one-storage-package"}},
                {"refName": "own.x.7"},
            ],
        })
    }

    fn again(own: &Value, kept: &str) -> Result<ClusterBootstrapSpec, Vec<String>> {
        let (stored, new, old) = (spec(&stored()), template(2), template(1));
        let packages = [
            "kapp.x.2",
            "antrea.x.2",
            "csi.x.2",
            "metrics.x.2",
            "storage.x.2",
            "more.x.2",
        ];
        let from = Reapplied {
            cluster: "one",
            stored: &stored,
            release: Release {
                name: "v2",
                packages: &packages.map(str::to_owned),
            },
            templates: [Some(&new), Some(&old)],
            unmanaged_cni: false,
            kept: &KeptVersions::parse(kept).unwrap(),
        };
        reapply(&spec(own), from)
            .map(|(_, filled)| filled)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    type Edit = fn(&mut Value);

    #[rstest]
    #[case::replaced(|_: &mut Value| {})]
    #[case::merged(|own: &mut Value| {
        own["cni"] = stored()["cni"].clone();
        own["csi"] = stored()["csi"].clone();
    })]
    #[case::without_values_that_were_filled(|own: &mut Value| own["cni"] = json!({"refName": "antrea*"}))]
    #[case::in_another_order(|own: &mut Value| own["additionalPackages"].as_array_mut().unwrap().reverse())]
    #[case::whole(|own: &mut Value| *own = stored())]
    fn a_file_that_is_applied_again_changes_nothing(#[case] edit: Edit) {
        let mut own = file();
        edit(&mut own);
        assert_eq!(again(&own, ""), Ok(spec(&stored())));
    }

    #[rstest]
    #[case::new_package(
        |own: &mut Value| own["additionalPackages"].as_array_mut().unwrap().push(json!({"refName": "more*"})),
        |all: &mut Value| all["additionalPackages"].as_array_mut().unwrap().push(json!({"refName": "more.x.2"}))
    )]
    #[case::own_package_removed(
        |own: &mut Value| drop(own["additionalPackages"].as_array_mut().unwrap().remove(1)),
        |all: &mut Value| drop(all["additionalPackages"].as_array_mut().unwrap().remove(2))
    )]
    #[case::own_values_removed(
        |own: &mut Value| own["additionalPackages"][0] = json!({"refName": "metrics*"}),
        |all: &mut Value| all["additionalPackages"][0] = json!({"refName": "metrics.x.2"})
    )]
    #[case::other_version_in_its_place(
        |own: &mut Value| own["additionalPackages"][0]["refName"] = json!("metrics.x.3"),
        |all: &mut Value| all["additionalPackages"][0]["refName"] = json!("metrics.x.3")
    )]
    #[case::pinned_version(
        |own: &mut Value| own["kapp"] = json!({"refName": "kapp.x.1"}),
        |all: &mut Value| all["kapp"] = json!({"refName": "kapp.x.1"})
    )]
    #[case::csi_removed_from_a_whole_one(
        |own: &mut Value| { *own = stored(); own["csi"] = Value::Null; },
        |all: &mut Value| all["csi"] = Value::Null
    )]
    fn a_change_stays_as_written(#[case] edit: Edit, #[case] change: Edit) {
        let (mut own, mut expected) = (file(), stored());
        edit(&mut own);
        change(&mut expected);
        assert_eq!(again(&own, ""), Ok(spec(&expected)));
    }

    #[test]
    fn a_package_that_is_left_out_does_not_come_back() {
        let mut expected = stored();
        expected["additionalPackages"].as_array_mut().unwrap().remove(1);
        assert_eq!(again(&file(), "storage=none"), Ok(spec(&expected)));
    }

    #[test]
    fn a_wildcard_without_a_match_is_refused() {
        let faults = again(&json!({"cni": {"refName": "cilium*"}}), "").unwrap_err();
        assert!(
            faults[0].contains("no package of TanzuKubernetesRelease v2 has this prefix"),
            "{faults:?}"
        );
    }
}
