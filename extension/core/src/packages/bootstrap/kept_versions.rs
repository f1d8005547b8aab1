//! Packages that a user keeps at a version, or leaves out, independent of the release.

use sluice_crds::{labels::annotation, run::ClusterBootstrap};

use super::PackageFacts;
use crate::{
    names,
    reasons::{GateReason, Hold},
    version::order,
};

/// Version of a package that is left out.
const NONE: &str = "none";

/// Annotation `lifecycle.sluice.dev/keep-package-versions` of a ClusterBootstrap: `<package>=<version>`, comma separated. A
/// package is named by its short name or by its `spec.refName`; a version is exact, or `none` for a package that is left out.
///
/// It applies only to the version that it names, so an entry from an earlier upgrade has no effect. A package that no release has is
/// no error: the same annotation may be set on many Clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptVersions(Vec<(String, String)>);

impl KeptVersions {
    /// Returns the kept versions of a ClusterBootstrap.
    ///
    /// # Errors
    /// Returns a hold that names the invalid part of the annotation.
    pub fn of(bootstrap: &ClusterBootstrap) -> Result<Self, Hold> {
        let annotations = bootstrap.metadata.annotations.as_ref();
        let text = annotations.and_then(|annotations| annotations.get(annotation::KEEP_PACKAGE_VERSIONS));
        text.map_or_else(|| Ok(Self::default()), |text| Self::parse(text))
    }

    /// Parses the annotation.
    ///
    /// # Errors
    /// Returns a hold if a part is not `<package>=<version>`, or a package has two versions.
    pub fn parse(text: &str) -> Result<Self, Hold> {
        let mut kept: Vec<(String, String)> = Vec::new();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        for part in parts {
            let Some((package, version)) = part.split_once('=') else {
                return Err(invalid(part, "is not <package>=<version>"));
            };
            let (package, version) = (package.trim(), version.trim());
            if package.is_empty() {
                return Err(invalid(part, "names no package"));
            }
            if version != NONE && order(version, "0.0.0").is_none() {
                return Err(invalid(part, "has neither a version nor none after ="));
            }
            if kept.iter().any(|(known, of)| known == package && of != version) {
                return Err(invalid(part, "gives the package a second version"));
            }
            kept.push((package.to_owned(), version.to_owned()));
        }
        Ok(Self(kept))
    }

    /// Whether a package stays at its current version.
    #[must_use]
    pub fn keeps(&self, package: &PackageFacts) -> bool {
        self.says(&package.ref_name, &package.version)
    }

    /// Whether the package with this `spec.refName` is left out if a Cluster does not have it.
    #[must_use]
    pub fn leaves_out(&self, ref_name: &str) -> bool {
        self.says(ref_name, NONE)
    }

    /// Whether the Package with this name is left out. kapp-controller requires that the name of a Package consists of its refName and
    /// its version.
    #[must_use]
    pub fn leaves_out_package(&self, name: &str) -> bool {
        let is_of = |package: &str| {
            package == names::short(name)
                || name
                    .strip_prefix(package)
                    .is_some_and(|rest| rest.starts_with('.'))
        };
        self.0.iter().any(|(package, of)| of == NONE && is_of(package))
    }

    fn says(&self, ref_name: &str, version: &str) -> bool {
        let names = [ref_name, names::short(ref_name)];
        self.0
            .iter()
            .any(|(package, of)| names.contains(&package.as_str()) && of == version)
    }
}

fn invalid(part: &str, what: &str) -> Hold {
    let key = annotation::KEEP_PACKAGE_VERSIONS;
    Hold::new(
        GateReason::KeptVersionsInvalid,
        format!(
            "{part:?} in annotation {key} of the ClusterBootstrap {what}; write \
             \"antrea=1.7.1+vmware.1-tkg.1\" or \"antrea={NONE}\", several separated by commas, or remove it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn antrea(version: &str) -> PackageFacts {
        PackageFacts {
            ref_name: "antrea.tanzu.vmware.com".to_owned(),
            version: version.to_owned(),
            ..PackageFacts::default()
        }
    }

    #[rstest]
    #[case::nothing("", false, false)]
    #[case::by_short_name("antrea=1.7.1+vmware.1-tkg.1", true, false)]
    #[case::by_ref_name("antrea.tanzu.vmware.com=1.7.1+vmware.1-tkg.1", true, false)]
    #[case::one_of_several(" metrics=none , antrea = 1.7.1+vmware.1-tkg.1,", true, false)]
    #[case::twice_the_same("antrea=none,antrea=none", false, true)]
    #[case::left_out("antrea=none", false, true)]
    #[case::another_build("antrea=1.7.1+vmware.1-tkg.2", false, false)]
    #[case::another_package("antrea-interworking=1.7.1+vmware.1-tkg.1", false, false)]
    #[case::one_that_nobody_knows("antera=1.7.1+vmware.1-tkg.1", false, false)]
    fn an_exact_version_is_kept(#[case] text: &str, #[case] keeps: bool, #[case] leaves_out: bool) {
        let kept = KeptVersions::parse(text).unwrap();
        assert_eq!(kept.keeps(&antrea("1.7.1+vmware.1-tkg.1")), keeps);
        assert_eq!(kept.leaves_out("antrea.tanzu.vmware.com"), leaves_out);
    }

    #[rstest]
    #[case::no_version("metrics=1.0.0,antrea", "\"antrea\"")]
    #[case::empty_version("antrea=", "\"antrea=\"")]
    #[case::no_package("=1.7.1", "\"=1.7.1\"")]
    #[case::range("antrea=>1.7.1", "\"antrea=>1.7.1\"")]
    #[case::word("antrea=latest", "\"antrea=latest\"")]
    #[case::separated_by_blanks("antrea=1.7.1 metrics=1.0.0", "\"antrea=1.7.1 metrics=1.0.0\"")]
    #[case::two_versions("antrea=1.7.1,antrea=none", "\"antrea=none\"")]
    fn invalid_parts_are_named(#[case] text: &str, #[case] part: &str) {
        let hold = KeptVersions::parse(text).unwrap_err();
        assert_eq!(hold.reason, GateReason::KeptVersionsInvalid);
        for named in [part, annotation::KEEP_PACKAGE_VERSIONS, "remove it"] {
            assert!(hold.message.contains(named), "{hold}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c=,.+ 0-9-]{0,30}") {
            if let Err(hold) = KeptVersions::parse(&text) {
                prop_assert_eq!(hold.reason, GateReason::KeptVersionsInvalid);
            }
        }
    }
}
