//! Order of releases and packages, including build metadata.

use std::cmp::Ordering;

use semver::Version;

/// Version of a release or a package, for comparison.
///
/// The order is that of semantic versions, and between builds of one version that of their build metadata. The metadata is split into
/// runs of letters and digits and the single characters between them. Hexadecimal runs are compared as numbers, other parts byte by
/// byte, and the first difference decides: `+vmware.1-tkg.1` < `+vmware.1-tkg.2` < `+vmware.1-tkg.10` (addons-manager §6.6).
///
/// Single characters are below numbers, and numbers below words. Comparing a number with a word byte by byte, as in the
/// addons-manager, would give `+ff` < `+1000` < `+1g` < `+ff`.
#[derive(Debug, Clone)]
pub struct Ordered {
    version: Version,
}

/// Part of build metadata. The order of the variants is the order of parts of different kinds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Between(&'a str),
    Number(u64),
    Word(&'a str),
}

impl Ordered {
    /// Parses a version with or without `v`; `None` if it is not semantic.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let version = Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()?;
        Some(Self { version })
    }

    /// Returns major and minor version, `(1, 35)` of `v1.35.4`.
    #[must_use]
    pub const fn minor(&self) -> (u64, u64) {
        (self.version.major, self.version.minor)
    }

    /// Returns the parts of the build metadata, which is ASCII.
    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let mut rest = self.version.build.as_str();
        std::iter::from_fn(move || {
            let run = rest
                .find(|character: char| !character.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            let (part, after) = rest.split_at_checked(run.max(1))?;
            rest = after;
            Some(match u64::from_str_radix(part, 16) {
                _ if run == 0 => Part::Between(part),
                Ok(number) => Part::Number(number),
                Err(_) => Part::Word(part),
            })
        })
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.version
            .cmp_precedence(&other.version)
            .then_with(|| self.parts().cmp(other.parts()))
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ordered {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::version::order;

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
    #[case::too_long_for_a_number("1.7.1+100000000000000000", "1.7.1+9", Ordering::Greater)]
    #[case::number_before_word("1.7.1+ff", "1.7.1+1g", Ordering::Less)]
    #[case::number_of_four_digits_before_word("1.7.1+1000", "1.7.1+1g", Ordering::Less)]
    #[case::number_by_its_value("1.7.1+ff", "1.7.1+1000", Ordering::Less)]
    fn packages_are_ordered_with_their_builds(#[case] a: &str, #[case] b: &str, #[case] expected: Ordering) {
        assert_eq!(order(a, b), Some(expected));
        assert_eq!(order(b, a), Some(expected.reverse()));
    }

    #[test]
    fn non_semantic_versions_have_no_order() {
        assert_eq!(order("latest", "latest"), Some(Ordering::Equal));
        assert_eq!(order("latest", "1.0.0"), None);
        assert_eq!(order("1.0.0", "1.0"), None);
    }

    /// Builds as the addons-manager's own tests have them.
    #[rstest]
    #[case::version("1.16.1+vmware.1-tkg.1.cafebabe", "1.16.2+vmware.1-tkg.1.cafebabe")]
    #[case::build("1.16.2+vmware.1-tkg.2.ab123fed", "1.16.2+vmware.2-tkg.2.ab123fed")]
    #[case::words("1.16.2+vmware.2-tkg.2.covfefe", "1.16.2+vmware.2-tkg.2.covfefe1")]
    #[case::first_difference("1.16.2+vmware.1-tkg.2.ab123fed", "1.16.2+vmware.2-tkg.2.fed98bef")]
    #[case::prefix("1.16.2+vmware.", "1.16.2+vmware.1")]
    fn lower_and_higher_releases(#[case] lower: &str, #[case] higher: &str) {
        assert!(Ordered::of(lower) < Ordered::of(higher));
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
        fn the_order_is_total(versions in prop::collection::vec("1\\.[0-1]\\.0\\+[01afgz.-]{1,5}", 3)) {
            let mut versions: Vec<_> = versions.iter().filter_map(|text| Ordered::of(text)).collect();
            versions.sort_unstable();
            prop_assert!(versions.is_sorted());
            if let [lowest, .., highest] = versions.as_slice() {
                prop_assert!(lowest <= highest);
            }
        }
    }
}
