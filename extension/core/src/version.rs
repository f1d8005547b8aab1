//! Kubernetes versions: compared as semantic versions, stored byte for byte.

mod ordered;
pub mod range;
mod upgrading;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use semver::Version;

pub use ordered::Ordered;
pub use upgrading::{is_upgrading, may_report, same_but_for_suffix, same_numbers};

/// Kubernetes version, `v1.35.4` or `v1.35.4+vmware.1`.
///
/// Cluster API treats every textual difference between desired versions as another version, so equality compares bytes. The order is
/// that of semantic versions, which does not order two builds of one release. [`is_upgrading`] compares reported versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KubernetesVersion {
    text: String,
    version: Version,
}

/// Error for a text that is not a semantic version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a semantic version")]
pub struct InvalidVersion {
    /// Rejected text.
    pub text: String,
}

impl KubernetesVersion {
    /// Returns the original text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the minor version, 35 of `v1.35.4`.
    #[must_use]
    pub const fn minor(&self) -> u64 {
        self.version.minor
    }

    /// Returns the major version, 1 of `v1.35.4`.
    #[must_use]
    pub const fn major(&self) -> u64 {
        self.version.major
    }

    /// Whether both have the same minor version.
    #[must_use]
    pub const fn same_minor(&self, other: &Self) -> bool {
        self.version.major == other.version.major && self.version.minor == other.version.minor
    }

    /// Returns the number of minor versions that `self` is ahead of `other`; zero if it is behind.
    #[must_use]
    pub const fn minors_ahead_of(&self, other: &Self) -> u64 {
        if self.version.major != other.version.major {
            return 0;
        }
        self.version.minor.saturating_sub(other.version.minor)
    }

    /// Returns the minor versions between `self` and a later version; none between different major versions.
    #[must_use]
    pub const fn minors_before(&self, later: &Self) -> Range<u64> {
        let minor = self.version.minor;
        minor.saturating_add(1)..minor.saturating_add(later.minors_ahead_of(self))
    }

    /// Compares without build metadata: two builds of one release are equal.
    #[must_use]
    pub fn cmp_release(&self, other: &Self) -> Ordering {
        self.version.cmp_precedence(&other.version)
    }

    /// Whether both denote the same version, apart from a missing `v`.
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

/// Compares releases or packages by their [order](Ordered). Returns `None` if one of two different texts is not a semantic version.
#[must_use]
pub fn order(one: &str, other: &str) -> Option<Ordering> {
    if one == other {
        return Some(Ordering::Equal);
    }
    let (one, other) = (Ordered::of(one)?, Ordered::of(other)?);
    Some(one.cmp(&other))
}

/// Whether two versions denote the same; unparsable versions are compared byte by byte.
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

/// Whether `one` is the same release as `other` or a later one; unparsable versions are compared byte by byte.
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

/// Whether `one` is a lower release than `other`; `false` if one of them is not a semantic version.
pub(crate) fn below(one: &str, other: &str) -> bool {
    match (
        KubernetesVersion::from_str(one),
        KubernetesVersion::from_str(other),
    ) {
        (Ok(one), Ok(other)) => one.cmp_release(&other) == Ordering::Less,
        _ => false,
    }
}

/// Returns the older of two versions, or `one` if they have no order.
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
    fn non_semantic_versions_are_rejected(#[case] text: &str) {
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

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_accepted_text(text in ".{0,40}") {
            if let Ok(version) = KubernetesVersion::from_str(&text) {
                prop_assert_eq!(version.as_str(), text.as_str());
            }
        }

        #[test]
        fn minors_ahead_is_the_difference(a in 0_u64..60, b in 0_u64..60) {
            let (one, other) = (v(&format!("v1.{a}.0")), v(&format!("v1.{b}.7")));
            prop_assert_eq!(one.minors_ahead_of(&other), a.saturating_sub(b));
            prop_assert_eq!(one.same_minor(&other), a == b);
            let between: Vec<u64> = (0..60).filter(|minor| a < *minor && *minor < b).collect();
            prop_assert_eq!(one.minors_before(&other).collect::<Vec<_>>(), between);
        }
    }
}
