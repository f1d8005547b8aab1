//! Kubernetes versions: compared by meaning, kept by the byte.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use semver::Version;

/// A Kubernetes version, `v1.35.4` or `v1.35.4+vmware.1`.
///
/// Cluster API treats every textual difference as another version, so equality is that of the bytes; order is that of
/// semantic versions, where two builds of one release have none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KubernetesVersion {
    text: String,
    version: Version,
}

/// A version that is not semantic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a semantic version")]
pub struct InvalidVersion {
    /// What was read.
    pub text: String,
}

impl KubernetesVersion {
    /// The version as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The minor version, 35 of `v1.35.4`.
    #[must_use]
    pub const fn minor(&self) -> u64 {
        self.version.minor
    }

    /// Whether both are of one minor version.
    #[must_use]
    pub const fn same_minor(&self, other: &Self) -> bool {
        self.version.major == other.version.major && self.version.minor == other.version.minor
    }

    /// How many minor versions `self` is ahead of `other`; zero when it is behind.
    #[must_use]
    pub const fn minors_ahead_of(&self, other: &Self) -> u64 {
        if self.version.major != other.version.major {
            return 0;
        }
        self.version.minor.saturating_sub(other.version.minor)
    }

    /// Order without build metadata: two builds of one release compare as equal.
    #[must_use]
    pub fn cmp_release(&self, other: &Self) -> Ordering {
        self.version.cmp_precedence(&other.version)
    }

    /// Whether both mean the same version, a missing `v` aside.
    #[must_use]
    pub fn means(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

impl FromStr for KubernetesVersion {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let number = text.strip_prefix('v').unwrap_or(text);
        let version = Version::parse(number).map_err(|_| InvalidVersion {
            text: text.to_owned(),
        })?;
        Ok(Self {
            text: text.to_owned(),
            version,
        })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The order of releases and packages: that of semantic versions, and between builds of one version that of their build
/// metadata. None where one of two different texts is no semantic version.
///
/// Build metadata is taken apart into runs of letters and digits and the single characters between them. Runs that are
/// hexadecimal numbers are compared as such, everything else by the byte, and the first difference decides: `+vmware.1-tkg.2`
/// is above `+vmware.1-tkg.1` and below `+vmware.1-tkg.10` (addons-manager §6.6).
#[must_use]
pub fn order(one: &str, other: &str) -> Option<Ordering> {
    if one == other {
        return Some(Ordering::Equal);
    }
    let parse = |text: &str| Version::parse(text.strip_prefix('v').unwrap_or(text)).ok();
    let (one, other) = (parse(one)?, parse(other)?);
    Some(
        one.cmp_precedence(&other)
            .then_with(|| order_builds(&one.build, &other.build)),
    )
}

/// Whether two versions mean the same; versions that cannot be read are compared by the byte.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    match (
        KubernetesVersion::from_str(one),
        KubernetesVersion::from_str(other),
    ) {
        (Ok(one), Ok(other)) => one.means(&other),
        _ => false,
    }
}

fn order_builds(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (parts(one), parts(other));
    loop {
        let order = match (one.next(), other.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(one), Some(other)) => match (number(one), number(other)) {
                (Some(one), Some(other)) => one.cmp(&other),
                _ => one.cmp(other),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Runs of letters and digits, and the single characters between them. Build metadata is ASCII.
fn parts(build: &str) -> impl Iterator<Item = &str> {
    let mut rest = build;
    std::iter::from_fn(move || {
        let run = rest
            .find(|character: char| !character.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let (part, after) = rest.split_at_checked(run.max(1))?;
        rest = after;
        Some(part)
    })
}

fn number(part: &str) -> Option<u64> {
    u64::from_str_radix(part, 16).ok()
}

/// Whether `one` is the same as or a later release than `other`; versions that cannot be read are compared by the byte.
#[must_use]
pub fn reached(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    match (
        KubernetesVersion::from_str(one),
        KubernetesVersion::from_str(other),
    ) {
        (Ok(one), Ok(other)) => one.means(&other) || one.cmp_release(&other) == Ordering::Greater,
        _ => false,
    }
}

/// Whether `one` is the same as or a later patch of the same minor version as `other`; versions that cannot be read are compared by
/// the byte.
#[must_use]
pub fn reached_in_minor(one: &str, other: &str) -> bool {
    let same_minor = || {
        let (one, other) = (
            one.parse::<KubernetesVersion>(),
            other.parse::<KubernetesVersion>(),
        );
        one.is_ok_and(|one| other.is_ok_and(|other| one.same_minor(&other)))
    };
    one == other || reached(one, other) && same_minor()
}

/// The older one of two versions, and `one` where they have no order.
#[must_use]
pub fn older(one: String, other: String) -> String {
    if order(&other, &one) == Some(Ordering::Less) {
        other
    } else {
        one
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn v(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    #[rstest]
    #[case::patch("v1.35.4", "v1.35.10", Ordering::Less)]
    #[case::minor("v1.35.4", "v1.36.0", Ordering::Less)]
    #[case::pre_release("v1.36.0-rc.1", "v1.36.0", Ordering::Less)]
    #[case::builds_have_no_order("v1.36.3+vmware.1", "v1.36.3+vmware.2", Ordering::Equal)]
    fn releases_are_ordered_as_semantic_versions(#[case] a: &str, #[case] b: &str, #[case] order: Ordering) {
        assert_eq!(v(a).cmp_release(&v(b)), order);
        assert_eq!(v(b).cmp_release(&v(a)), order.reverse());
    }

    #[rstest]
    #[case::empty("")]
    #[case::two_numbers("v1.36")]
    #[case::word("latest")]
    #[case::two_v("vv1.36.3")]
    #[case::space("v1.36.3 ")]
    fn what_is_not_a_semantic_version_is_refused(#[case] text: &str) {
        let error = KubernetesVersion::from_str(text).unwrap_err();
        assert_eq!(error.text, text);
    }

    #[test]
    fn the_bytes_are_kept() {
        assert_eq!(v("v1.36.3+vmware.1").to_string(), "v1.36.3+vmware.1");
        assert_ne!(v("1.36.3"), v("v1.36.3"));
        assert!(v("1.36.3").means(&v("v1.36.3")));
        assert!(!v("v1.36.3+vmware.1").means(&v("v1.36.3+vmware.2")));
    }

    #[test]
    fn another_build_of_the_release_has_not_reached_it() {
        assert!(reached("v1.36.3", "v1.35.4"));
        assert!(reached("v1.36.3", "1.36.3"));
        assert!(!reached("v1.36.3+vmware.1", "v1.36.3+vmware.2"));
        assert!(!reached("v1.35.4", "v1.36.3"));
        assert!(!reached("?", "v1.36.3"));
    }

    #[rstest]
    #[case::patch("1.7.1+vmware.1-tkg.1", "1.9.0+vmware.1-tkg.1", Ordering::Less)]
    #[case::same("1.7.1+vmware.1-tkg.1", "1.7.1+vmware.1-tkg.1", Ordering::Equal)]
    #[case::a_v_is_no_difference("v1.7.1+vmware.1", "1.7.1+vmware.1", Ordering::Equal)]
    #[case::build("1.7.1+vmware.1-tkg.1", "1.7.1+vmware.1-tkg.2", Ordering::Less)]
    #[case::build_as_a_number("1.7.1+vmware.1-tkg.9", "1.7.1+vmware.1-tkg.10", Ordering::Less)]
    #[case::run_before_a_dash("1.7.1+vmware.2-tkg.1", "1.7.1+vmware.10-tkg.1", Ordering::Less)]
    #[case::hexadecimal("1.7.1+build.9", "1.7.1+build.a", Ordering::Less)]
    #[case::first_difference("1.7.1+vmware.1-tkg.9", "1.7.1+vmware.2-tkg.1", Ordering::Less)]
    #[case::words("1.7.1+vmware.1-fips.1", "1.7.1+vmware.1-tkg.1", Ordering::Less)]
    #[case::no_build("1.7.1", "1.7.1+vmware.1", Ordering::Less)]
    #[case::shorter("1.7.1+vmware.1", "1.7.1+vmware.1-tkg.1", Ordering::Less)]
    #[case::pre_release("1.7.1-rc.1+vmware.9", "1.7.1+vmware.1", Ordering::Less)]
    #[case::version_before_build("1.7.1+vmware.9", "1.7.2+vmware.1", Ordering::Less)]
    #[case::too_long_for_a_number("1.7.1+100000000000000000", "1.7.1+9", Ordering::Less)]
    fn packages_are_ordered_with_their_builds(#[case] a: &str, #[case] b: &str, #[case] expected: Ordering) {
        assert_eq!(order(a, b), Some(expected));
        assert_eq!(order(b, a), Some(expected.reverse()));
    }

    #[test]
    fn what_is_no_version_has_no_order() {
        assert_eq!(order("latest", "latest"), Some(Ordering::Equal));
        assert_eq!(order("latest", "1.0.0"), None);
        assert_eq!(order("1.0.0", "1.0"), None);
    }

    proptest! {
        #[test]
        fn the_order_of_builds_is_the_same_from_both_sides(a in "1\\.[0-2]\\.0(\\+[0-9a-g.-]{0,6})?", b in "1\\.[0-2]\\.0(\\+[0-9a-g.-]{0,6})?") {
            prop_assert_eq!(order(&a, &b), order(&b, &a).map(Ordering::reverse));
            prop_assert_eq!(order(&a, &a), Some(Ordering::Equal));
        }

        #[test]
        fn the_number_of_a_build_decides(a in 0_u32..2000, b in 0_u32..2000) {
            let build = |number: u32| format!("1.7.1+vmware.1-tkg.{number:x}");
            prop_assert_eq!(order(&build(a), &build(b)), Some(a.cmp(&b)));
        }

        #[test]
        fn parsing_never_panics_and_keeps_what_it_takes(text in ".{0,40}") {
            if let Ok(version) = KubernetesVersion::from_str(&text) {
                prop_assert_eq!(version.as_str(), text.as_str());
            }
        }

        #[test]
        fn minors_ahead_is_the_difference(a in 0_u64..60, b in 0_u64..60) {
            let (one, other) = (v(&format!("v1.{a}.0")), v(&format!("v1.{b}.7")));
            prop_assert_eq!(one.minors_ahead_of(&other), a.saturating_sub(b));
            prop_assert_eq!(one.same_minor(&other), a == b);
        }
    }
}
