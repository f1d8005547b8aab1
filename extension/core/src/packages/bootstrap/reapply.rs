//! Completes a partial ClusterBootstrap that a user applies again after it was completed.
//!
//! A file in Git keeps its wildcards and lists only packages of the user. The fields that Sluice filled in come from the stored object.

use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec, ValuesFrom};

use super::{
    Completed, KeptVersions, Role,
    create::localize,
    fill::{additional_name, candidates, complete_names, is_named, matches},
    packages,
};
use crate::{fault::Fault, names::short};

/// Inputs of [`reapply`].
#[derive(Debug, Clone, Copy)]
pub struct ReapplyInputs<'a> {
    /// Name of the Cluster.
    pub cluster: &'a str,
    /// Stored spec.
    pub stored: &'a ClusterBootstrapSpec,
    /// Name of the TanzuKubernetesRelease of the stored spec.
    pub release: &'a str,
    /// Packages of that release, which complete new wildcards; `None` if the release does not exist.
    pub packages: Option<&'a [String]>,
    /// Packages of the release in the annotation, which decide where [`is_ambiguous`]; `None` if that release does not exist.
    pub annotated_packages: Option<&'a [String]>,
    /// Templates from which Sluice may have filled in stored packages.
    pub templates: &'a [&'a ClusterBootstrapSpec],
    /// Whether Sluice does not manage the CNI.
    pub unmanaged_cni: bool,
    /// Packages that a user leaves out.
    pub kept: &'a KeptVersions,
}

/// Result of [`reapply`].
#[derive(Debug, Clone, PartialEq)]
pub struct Reapplied {
    /// Completed spec.
    pub completed: Completed,
    /// Stored packages that the user does not list and that stay.
    pub restored: Vec<(Role, String)>,
    /// Whether the user does not list a stored package, or its values, and none of the templates has them.
    pub drops_unknown: bool,
}

/// Completes `own` from the stored spec: whole names, and the fields that were filled in.
///
/// A version, a package or values that the user changes stay as written, and the rules of an update judge them.
///
/// # Errors
/// Returns a fault for each wildcard that matches no single package of the stored spec or of its release.
pub fn reapply(own: &ClusterBootstrapSpec, from: ReapplyInputs<'_>) -> Result<Reapplied, Vec<Fault>> {
    let named = from.with_stored_names(own)?;
    let (named, faults) = complete_names(&named, from.release, from.packages);
    if !faults.is_empty() {
        return Err(faults);
    }
    let stored = from.stored;
    let mut filled = named.clone();
    let mut restored = Vec::new();
    for (role, own, stored) in [
        (Role::KappController, &mut filled.kapp, &stored.kapp),
        (Role::Cni, &mut filled.cni, &stored.cni),
        (Role::Cpi, &mut filled.cpi, &stored.cpi),
        (Role::Csi, &mut filled.csi, &stored.csi),
    ] {
        let Some(stored) = stored else {
            // The API server refuses values without a package.
            *own = own
                .take()
                .filter(|own| is_named(own) || own.values_from.is_some());
            continue;
        };
        if let Some(own) = own.as_mut().filter(|own| is_named(own)) {
            from.add_values(own, stored);
            continue;
        }
        let values_from = own.take().and_then(|unnamed| unnamed.values_from);
        if from.restores(role, stored, &named) {
            restored.push((role, stored.ref_name.clone()));
            *own = Some(ClusterBootstrapPackage {
                ref_name: stored.ref_name.clone(),
                values_from: values_from.or_else(|| stored.values_from.clone()),
            });
        }
    }
    // In the stored order, followed by packages that the user adds.
    let places = places(&stored.additional_packages, &named.additional_packages);
    let mut additional = Vec::new();
    for (stored, place) in stored.additional_packages.iter().zip(&places) {
        if let Some(place) = place {
            let mut own = named.additional_packages[*place].clone();
            from.add_values(&mut own, stored);
            additional.push(own);
        } else if from.restores(Role::Additional, stored, &named) {
            restored.push((Role::Additional, stored.ref_name.clone()));
            additional.push(stored.clone());
        }
    }
    let own = named.additional_packages.iter().enumerate();
    let added = own.filter(|(place, _)| !places.contains(&Some(*place)));
    additional.extend(added.map(|(_, own)| own.clone()));
    filled.additional_packages = additional;
    let mut all = packages(stored).into_iter();
    let drops_unknown = all.any(|(_, stored)| from.drops_unknown(stored, &named));
    Ok(Reapplied {
        completed: Completed { named, filled },
        restored,
        drops_unknown,
    })
}

/// Whether a wildcard of `own` matches several additional packages of `stored`.
#[must_use]
pub fn is_ambiguous(own: &ClusterBootstrapSpec, stored: &ClusterBootstrapSpec) -> bool {
    let mut listed = own.additional_packages.iter();
    listed.any(|package| stored_matches(&package.ref_name, own, stored).len() > 1)
}

/// Returns the additional packages of `stored` that a wildcard matches and `own` does not list by their whole name.
fn stored_matches<'a>(
    wildcard: &str,
    own: &ClusterBootstrapSpec,
    stored: &'a ClusterBootstrapSpec,
) -> Vec<&'a str> {
    let is_listed = |name: &str| own.additional_packages.iter().any(|own| own.ref_name == name);
    let names = stored.additional_packages.iter();
    names
        .map(|stored| stored.ref_name.as_str())
        .filter(|name| matches(wildcard, name) && !is_listed(name))
        .collect()
}

/// Returns the index in `own` of each stored package: of the same name if there is one, otherwise of another version.
fn places(stored: &[ClusterBootstrapPackage], own: &[ClusterBootstrapPackage]) -> Vec<Option<usize>> {
    type IsSame = fn(&ClusterBootstrapPackage, &ClusterBootstrapPackage) -> bool;
    let rules: [IsSame; 2] = [has_same_name, is_same_package];
    let mut places: Vec<Option<usize>> = vec![None; stored.len()];
    for is_same in rules {
        for (index, stored) in stored.iter().enumerate() {
            if places[index].is_none() {
                let is_free = |place: &usize| !places.contains(&Some(*place));
                let found = (0..own.len()).find(|place| is_same(stored, &own[*place]) && is_free(place));
                places[index] = found;
            }
        }
    }
    places
}

fn has_same_name(one: &ClusterBootstrapPackage, other: &ClusterBootstrapPackage) -> bool {
    one.ref_name == other.ref_name
}

fn is_same_package(one: &ClusterBootstrapPackage, other: &ClusterBootstrapPackage) -> bool {
    short(&one.ref_name) == short(&other.ref_name)
}

impl<'a> ReapplyInputs<'a> {
    /// Returns `own` with the stored names for the wildcards that match them.
    fn with_stored_names(&self, own: &ClusterBootstrapSpec) -> Result<ClusterBootstrapSpec, Vec<Fault>> {
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
        let mut faults = Vec::new();
        for (index, package) in named.additional_packages.iter_mut().enumerate() {
            match self.stored_name(&package.ref_name, own) {
                None => {}
                Some(Ok(name)) => name.clone_into(&mut package.ref_name),
                Some(Err(text)) => {
                    faults.push(Fault::new(additional_name(index), &package.ref_name, text));
                }
            }
        }
        if faults.is_empty() { Ok(named) } else { Err(faults) }
    }

    /// Returns the stored additional package that a wildcard means; `None` if it matches none.
    ///
    /// A release may add packages with the prefix of a wildcard. The wildcard means the package that it meant in the release of the
    /// annotation.
    fn stored_name(&self, wildcard: &str, own: &ClusterBootstrapSpec) -> Option<Result<&'a str, String>> {
        let matching = stored_matches(wildcard, own, self.stored);
        if let [] | [_] = matching.as_slice() {
            return matching.first().map(|only| Ok(*only));
        }
        let annotated = self.annotated_packages.unwrap_or_default().iter();
        let mut annotated = annotated.filter(|name| matches(wildcard, name));
        let only = match (annotated.next(), annotated.next()) {
            (Some(only), None) => Some(short(only)),
            _ => None,
        };
        let meant = matching.iter().find(|name| Some(short(name)) == only);
        Some(meant.copied().ok_or_else(|| {
            format!(
                "{} packages of the stored ClusterBootstrap have this prefix: {}; write more of the name",
                matching.len(),
                candidates(matching.iter().copied())
            )
        }))
    }

    /// Whether a stored package that the user does not list stays: it was filled in, and nothing replaces it or leaves it out.
    fn restores(&self, role: Role, stored: &ClusterBootstrapPackage, named: &ClusterBootstrapSpec) -> bool {
        let is_unmanaged = role == Role::Cni && self.unmanaged_cni;
        !is_unmanaged
            && listed(stored, named).is_none()
            && !self.kept.leaves_out_package(&stored.ref_name)
            && self.is_filled(stored)
    }

    /// Adds the values that were filled in to a package without values, also if the user changes its version.
    fn add_values(&self, own: &mut ClusterBootstrapPackage, stored: &ClusterBootstrapPackage) {
        if own.values_from.is_none() && is_same_package(own, stored) && self.is_filled(stored) {
            own.values_from.clone_from(&stored.values_from);
        }
    }

    /// Whether the user does not list a stored package, or its values, and none of the templates has them.
    fn drops_unknown(&self, stored: &ClusterBootstrapPackage, named: &ClusterBootstrapSpec) -> bool {
        let is_omitted = match listed(stored, named) {
            None => !self.kept.leaves_out_package(&stored.ref_name),
            Some(own) => own.values_from.is_none() && stored.values_from.is_some(),
        };
        is_omitted && !self.is_filled(stored)
    }

    /// Whether a template has a stored package, whose values are absent or those of the template.
    fn is_filled(&self, stored: &ClusterBootstrapPackage) -> bool {
        let theirs = self.templates.iter().flat_map(|template| packages(template));
        let mut same = theirs.filter(|(_, theirs)| is_same_package(theirs, stored));
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

/// Returns the package in any field of `named` that is the stored one, at any version.
fn listed<'n>(
    stored: &ClusterBootstrapPackage,
    named: &'n ClusterBootstrapSpec,
) -> Option<&'n ClusterBootstrapPackage> {
    let mut all = packages(named).into_iter().map(|(_, own)| own);
    all.find(|own| is_same_package(own, stored))
}

/// Whether two packages have the same values: the same reference, or inline values of the same content.
fn is_same_source(one: &ValuesFrom, other: &ValuesFrom) -> bool {
    let is_same_inline = match (&one.inline, &other.inline) {
        (Some(one), Some(other)) => one.has_text_of(other),
        (None, None) => true,
        _ => false,
    };
    is_same_inline && one.secret_ref == other.secret_ref && one.provider_ref == other.provider_ref
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use sluice_crds::FreeForm;

    use super::*;

    fn spec(spec: &Value) -> ClusterBootstrapSpec {
        serde_json::from_value(spec.clone()).unwrap()
    }

    fn template(version: u32) -> Value {
        json!({
            "kapp": {"refName": format!("kapp.x.{version}")},
            "cni": {"refName": format!("antrea.x.{version}"), "valuesFrom": {"secretRef": "antrea"}},
            "csi": {"refName": format!("csi.x.{version}")},
            "additionalPackages": [
                {"refName": format!("metrics.x.{version}")},
                {"refName": format!("storage.x.{version}"), "valuesFrom": {"secretRef": "storage"}},
            ],
        })
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

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn list(spec: &mut Value) -> &mut Vec<Value> {
        spec["additionalPackages"].as_array_mut().unwrap()
    }

    /// A Cluster that was upgraded from release v1, which the annotation names, to v2.
    struct Upgraded {
        stored: ClusterBootstrapSpec,
        packages: Option<Vec<String>>,
        annotated: Vec<String>,
        templates: Vec<ClusterBootstrapSpec>,
        unmanaged_cni: bool,
        kept: &'static str,
    }

    impl Upgraded {
        fn new() -> Self {
            let packages = [
                "kapp.x.2",
                "antrea.x.2",
                "csi.x.2",
                "metrics.x.2",
                "storage.x.2",
                "more.x.2",
            ];
            Self {
                stored: spec(&stored()),
                packages: Some(names(&packages)),
                annotated: names(&["kapp.x.1", "antrea.x.1", "metrics.x.1", "storage.x.1"]),
                templates: vec![spec(&template(2)), spec(&template(1))],
                unmanaged_cni: false,
                kept: "",
            }
        }

        fn again(&self, own: &Value) -> Result<Reapplied, Vec<String>> {
            let from = ReapplyInputs {
                cluster: "one",
                stored: &self.stored,
                release: "v2",
                packages: self.packages.as_deref(),
                annotated_packages: Some(self.annotated.as_slice()),
                templates: &self.templates.iter().collect::<Vec<_>>(),
                unmanaged_cni: self.unmanaged_cni,
                kept: &KeptVersions::parse(self.kept).unwrap(),
            };
            reapply(&spec(own), from).map_err(|faults| faults.iter().map(ToString::to_string).collect())
        }

        fn filled(&self, own: &Value) -> Result<ClusterBootstrapSpec, Vec<String>> {
            self.again(own).map(|reapplied| reapplied.completed.filled)
        }
    }

    type Edit = fn(&mut Value);

    #[rstest]
    #[case::replaced(|_: &mut Value| {})]
    #[case::merged(|own: &mut Value| {
        own["cni"] = stored()["cni"].clone();
        own["csi"] = stored()["csi"].clone();
    })]
    #[case::without_values_that_were_filled(|own: &mut Value| own["cni"] = json!({"refName": "antrea*"}))]
    #[case::in_another_order(|own: &mut Value| list(own).reverse())]
    #[case::whole(|own: &mut Value| *own = stored())]
    #[case::whole_without_csi(|own: &mut Value| { *own = stored(); own["csi"] = Value::Null; })]
    #[case::fields_of_other_owners(|own: &mut Value| {
        own["cni"] = json!({"refName": "", "valuesFrom": stored()["cni"]["valuesFrom"]});
        own["csi"] = json!({"refName": ""});
        own["cpi"] = json!({"refName": ""});
    })]
    fn a_file_that_is_applied_again_changes_nothing(#[case] edit: Edit) {
        let mut own = file();
        edit(&mut own);
        assert_eq!(Upgraded::new().filled(&own), Ok(spec(&stored())));
    }

    #[rstest]
    #[case::new_package(
        |own: &mut Value| list(own).push(json!({"refName": "more*"})),
        |all: &mut Value| list(all).push(json!({"refName": "more.x.2"}))
    )]
    #[case::own_package_removed(
        |own: &mut Value| drop(list(own).remove(1)),
        |all: &mut Value| drop(list(all).remove(2))
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
    #[case::pinned_version_with_values_that_were_filled(
        |own: &mut Value| {
            own["cni"] = json!({"refName": "antrea.x.3"});
            list(own).push(json!({"refName": "storage.x.3"}));
        },
        |all: &mut Value| {
            all["cni"]["refName"] = json!("antrea.x.3");
            all["additionalPackages"][1]["refName"] = json!("storage.x.3");
        }
    )]
    fn a_change_stays_as_written(#[case] edit: Edit, #[case] change: Edit) {
        let (mut own, mut expected) = (file(), stored());
        edit(&mut own);
        change(&mut expected);
        assert_eq!(Upgraded::new().filled(&own), Ok(spec(&expected)));
    }

    #[test]
    fn a_package_that_is_left_out_does_not_come_back() {
        let (mut expected, mut own) = (stored(), file());
        list(&mut expected).remove(1);
        expected["csi"] = Value::Null;
        own["csi"] = json!({"refName": "", "valuesFrom": {"secretRef": "of-another-owner"}});
        let upgraded = Upgraded {
            kept: "storage=none,csi=none",
            ..Upgraded::new()
        };
        assert_eq!(upgraded.filled(&own), Ok(spec(&expected)));
    }

    #[rstest]
    #[case::not_listed(Value::Null)]
    #[case::of_another_owner(json!({"refName": "", "valuesFrom": {"secretRef": "one-antrea-package"}}))]
    fn an_unmanaged_cni_does_not_come_back(#[case] cni: Value) {
        let (mut expected, mut own) = (stored(), file());
        expected["cni"] = Value::Null;
        own["cni"] = cni;
        let upgraded = Upgraded {
            unmanaged_cni: true,
            ..Upgraded::new()
        };
        assert_eq!(upgraded.filled(&own), Ok(spec(&expected)));
    }

    /// Values that a user wrote do not come back once the user has removed them.
    #[rstest]
    #[case::of_the_template(1, true)]
    #[case::of_the_user(2, false)]
    fn inline_values_come_back_if_a_template_has_them(#[case] of_template: u32, #[case] come_back: bool) {
        let mut upgraded = Upgraded::new();
        let mut template = template(2);
        template["additionalPackages"][0]["valuesFrom"] = json!({"inline": {"x": of_template}});
        upgraded.templates[0] = spec(&template);
        let digest = FreeForm::digest_of(r#"{"x":1}"#).unwrap();
        for inline in [FreeForm::Text(r#"{"x":1}"#.into()), digest] {
            let metrics = &mut upgraded.stored.additional_packages[0];
            metrics.values_from.as_mut().unwrap().inline = Some(inline);
            let mut own = file();
            own["additionalPackages"][0] = json!({"refName": "metrics*"});
            let filled = upgraded.filled(&own).unwrap();
            assert_eq!(
                filled.additional_packages[0].values_from.is_some(),
                come_back,
                "{filled:?}"
            );
        }
    }

    /// A release may add a package with the prefix of a wildcard in a file.
    #[test]
    fn an_ambiguous_wildcard_means_the_package_of_the_annotation() {
        let mut upgraded = Upgraded::new();
        let exporter = json!({"refName": "metrics-exporter.x.2"});
        for all in upgraded.templates.iter_mut().chain([&mut upgraded.stored]) {
            let exporter = serde_json::from_value(exporter.clone()).unwrap();
            all.additional_packages.insert(0, exporter);
        }
        assert!(is_ambiguous(&spec(&file()), &upgraded.stored));
        assert_eq!(upgraded.filled(&file()), Ok(upgraded.stored.clone()));

        for annotated in [
            names(&[]),
            names(&["metrics.x.1", "metrics-exporter.x.1"]),
            names(&["metrics-agent.x.1"]),
        ] {
            upgraded.annotated = annotated;
            let faults = upgraded.filled(&file()).unwrap_err();
            assert_eq!(
                faults,
                [
                    "spec.additionalPackages[0].refName: Invalid value: \"metrics*\": 2 packages of the stored ClusterBootstrap have \
                     this prefix: metrics-exporter.x.2, metrics.x.2; write more of the name"
                ]
            );
        }
        let mut whole = file();
        list(&mut whole).push(exporter);
        assert!(!is_ambiguous(&spec(&whole), &upgraded.stored));
    }

    #[test]
    fn packages_of_one_short_name_stay_apart() {
        let mut upgraded = Upgraded::new();
        let own = stored()["additionalPackages"][2].clone();
        let mut all = stored();
        list(&mut all).push(json!({"refName": "own.y.7", "valuesFrom": {"secretRef": "own"}}));
        upgraded.stored = spec(&all);
        let mut file = file();
        list(&mut file).insert(0, all["additionalPackages"][3].clone());
        assert_eq!(upgraded.filled(&file), Ok(spec(&all)));
        // One of them at another version.
        file["additionalPackages"][0]["refName"] = json!("own.y.8");
        all["additionalPackages"][3]["refName"] = json!("own.y.8");
        assert_eq!(upgraded.filled(&file), Ok(spec(&all)), "beside {own}");
    }

    /// The caller then looks in more templates.
    #[rstest]
    #[case::unchanged(|_: &mut Value| {}, false)]
    #[case::own_package_removed(|own: &mut Value| drop(list(own).remove(1)), true)]
    #[case::own_values_removed(|own: &mut Value| own["additionalPackages"][0] = json!({"refName": "metrics*"}), true)]
    fn what_is_dropped_without_a_template_is_reported(#[case] edit: Edit, #[case] drops_unknown: bool) {
        let mut own = file();
        edit(&mut own);
        let reapplied = Upgraded::new().again(&own).unwrap();
        assert_eq!(reapplied.drops_unknown, drops_unknown);
        let restored = reapplied
            .restored
            .iter()
            .map(|(role, name)| (*role, name.as_str()));
        let restored: Vec<_> = restored.collect();
        assert_eq!(
            restored,
            [
                (Role::Cni, "antrea.x.2"),
                (Role::Csi, "csi.x.2"),
                (Role::Additional, "storage.x.2")
            ]
        );
    }

    #[rstest]
    #[case::no_match(Some(names(&["kapp.x.2"])), "no package of TanzuKubernetesRelease v2 has this prefix; it has kapp.x.2")]
    #[case::no_packages(Some(Vec::new()), "TanzuKubernetesRelease v2 lists no packages")]
    #[case::no_release(
        None,
        "TanzuKubernetesRelease v2 does not exist; write the whole name of a Package"
    )]
    fn a_wildcard_without_a_match_is_refused(#[case] packages: Option<Vec<String>>, #[case] says: &str) {
        let upgraded = Upgraded {
            packages,
            ..Upgraded::new()
        };
        let faults = upgraded
            .filled(&json!({"cni": {"refName": "cilium*"}}))
            .unwrap_err();
        assert_eq!(
            faults,
            [format!("spec.cni.refName: Invalid value: \"cilium*\": {says}")]
        );
        assert_eq!(
            upgraded.filled(&file()),
            Ok(spec(&stored())),
            "stored names need no release"
        );
    }
}
