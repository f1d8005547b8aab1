//! Versions that Kubernetes distributions report, compared as Cluster API compares them.

use std::cmp::Ordering;

use semver::{BuildMetadata, Version};

/// Identifier of build metadata. Cluster API orders numbers, and knows no order of words.
#[derive(Debug, PartialEq, Eq)]
enum Identifier<'a> {
    Number(u64),
    Word(&'a str),
}

/// Whether Cluster API treats a control plane that reports `reported` as being upgraded to `wanted`, as `IsUpgrading` in
/// `internal/contract/controlplane.go` does: `wanted` is greater, or both have build metadata without an order.
///
/// A version that Cluster API cannot parse, which stops the topology controller, counts as upgrading.
#[must_use]
pub fn is_upgrading(wanted: &str, reported: &str) -> bool {
    let (Some(wanted), Some(reported)) = (tolerant(wanted), tolerant(reported)) else {
        return true;
    };
    match wanted.cmp_precedence(&reported) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => matches!(
            compare_builds(&wanted.build, &reported.build),
            None | Some(Ordering::Greater)
        ),
    }
}

/// Whether both have the same numbers, whatever their suffixes: `v1.35.4+k0s`, `v1.35.4-eks-abc` and `v1.35.4`.
#[must_use]
pub fn same_numbers(one: &str, other: &str) -> bool {
    let numbers = |text: &str| {
        let Version {
            major, minor, patch, ..
        } = tolerant(text)?;
        Some((major, minor, patch))
    };
    numbers(one).is_some_and(|one| numbers(other) == Some(one))
}

/// Whether one of two versions is the other with a longer suffix, such as `v1.35.4+k0s` and `v1.35.4`.
#[must_use]
pub fn same_but_for_suffix(one: &str, other: &str) -> bool {
    adds_suffix(one, other) || adds_suffix(other, one)
}

/// Whether the second version is the first one with a longer suffix.
fn adds_suffix(version: &str, longer: &str) -> bool {
    let (version, longer) = (without_v(version), without_v(longer));
    let has_suffix = version.contains(['+', '-']);
    let is_added = longer.strip_prefix(version).is_some_and(|suffix| {
        // A point may also begin the patch.
        suffix.starts_with(['+', '-']) || has_suffix && suffix.starts_with('.')
    });
    is_added && tolerant(version).is_some() && tolerant(longer).is_some()
}

/// Whether a replaced machine of `wanted` may report `reported`: an added suffix, a later build, or a later patch of its image.
#[must_use]
pub fn may_report(wanted: &str, reported: &str) -> bool {
    let same_minor = || {
        let minor = |text: &str| tolerant(text).map(|version| (version.major, version.minor));
        minor(wanted) == minor(reported)
    };
    wanted == reported || adds_suffix(wanted, reported) || !is_upgrading(wanted, reported) && same_minor()
}

/// Parses a version as `ParseTolerant` of `blang/semver` does: without `v`, without a patch, or with leading zeros.
fn tolerant(text: &str) -> Option<Version> {
    Version::parse(&normalized(text)?).ok()
}

/// Returns the text that `ParseTolerant` of `blang/semver` and of its fork `k14s/semver` parses instead of `text`.
pub(super) fn normalized(text: &str) -> Option<String> {
    let text = without_v(text.trim());
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return None;
    }
    parts.resize(parts.len().max(3), "0".to_owned());
    Some(parts.join("."))
}

fn without_v(text: &str) -> &str {
    text.strip_prefix('v').unwrap_or(text)
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|first: char| first.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}

/// Compares build metadata as `Compare` in Cluster API's `util/version` does with `WithBuildTags`. Returns `None` for two different
/// words, such as hashes of commits.
fn compare_builds(one: &BuildMetadata, other: &BuildMetadata) -> Option<Ordering> {
    use Identifier::{Number, Word};
    let (mut one, mut other) = (identifiers(one), identifiers(other));
    loop {
        let order = match (one.next(), other.next()) {
            (None, None) => return Some(Ordering::Equal),
            (Some(Number(one)), Some(Number(other))) => one.cmp(&other),
            (None, Some(_)) | (Some(Number(_)), Some(Word(_))) => Ordering::Less,
            (Some(_), None) | (Some(Word(_)), Some(Number(_))) => Ordering::Greater,
            (Some(Word(one)), Some(Word(other))) if one == other => Ordering::Equal,
            (Some(Word(_)), Some(Word(_))) => return None,
        };
        if order != Ordering::Equal {
            return Some(order);
        }
    }
}

fn identifiers(build: &BuildMetadata) -> impl Iterator<Item = Identifier<'_>> {
    let parts = build.as_str().split('.').filter(|part| !part.is_empty());
    parts.map(|part| {
        if part.bytes().all(|digit| digit.is_ascii_digit()) {
            // Go returns the highest number for one that is too high.
            Identifier::Number(part.parse().unwrap_or(u64::MAX))
        } else {
            Identifier::Word(part)
        }
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // The table of Cluster API's own decisions is in `upgrade/hop/cluster_api.rs`.
    #[rstest]
    #[case::the_same("v1.35.4", "v1.35.4", false)]
    #[case::suffix("v1.35.4", "v1.35.4+k0s", false)]
    #[case::suffix_missing("v1.35.4+k0s", "v1.35.4", true)]
    #[case::pre_release("v1.35.4", "v1.35.4-eks-abc", true)]
    #[case::later_build("v1.35.4+vmware.1", "v1.35.4+vmware.2", false)]
    #[case::earlier_build("v1.35.4+vmware.2", "v1.35.4+vmware.1", true)]
    #[case::builds_without_an_order("v1.35.4+k3s1", "v1.35.4+k3s2", true)]
    #[case::later_minor("v1.35.4", "v1.36.3", false)]
    #[case::earlier_minor("v1.35.4", "v1.34.9", true)]
    #[case::not_a_version("v1.35.4", "latest", true)]
    #[case::nothing("v1.35.4", "", true)]
    fn a_greater_or_different_version_is_upgrading(
        #[case] wanted: &str,
        #[case] reported: &str,
        #[case] upgrading: bool,
    ) {
        assert_eq!(is_upgrading(wanted, reported), upgrading);
    }

    #[rstest]
    #[case::the_same("v1.35.4", "v1.35.4", true, false)]
    #[case::build("v1.35.4", "v1.35.4+k0s", true, true)]
    #[case::pre_release("v1.35.4", "1.35.4-eks-abc", true, true)]
    #[case::longer_build("v1.35.4+k0s.0", "v1.35.4+k0s", true, true)]
    #[case::other_build("v1.35.4+vmware.1", "v1.35.4+vmware.2", true, false)]
    #[case::build_that_begins_alike("v1.35.4+vmware.1", "v1.35.4+vmware.10", true, false)]
    #[case::patch_that_begins_alike("v1.35.4", "v1.35.40", false, false)]
    #[case::patch_left_out("v1.35", "v1.35.4", false, false)]
    #[case::not_a_version("latest", "latest+1", false, false)]
    fn suffixes_are_told_from_numbers(
        #[case] one: &str,
        #[case] other: &str,
        #[case] numbers: bool,
        #[case] but_for_suffix: bool,
    ) {
        for (one, other) in [(one, other), (other, one)] {
            assert_eq!(same_numbers(one, other), numbers);
            assert_eq!(same_but_for_suffix(one, other), but_for_suffix);
        }
    }

    #[rstest]
    #[case::suffix("v1.35.4", "v1.35.4+k0s", true)]
    #[case::pre_release("v1.35.4", "v1.35.4-eks-abc", true)]
    #[case::longer_build("v1.35.4+vmware.1", "v1.35.4+vmware.1.2", true)]
    #[case::suffix_missing("v1.35.4+vmware.1", "v1.35.4", false)]
    #[case::suffix_missing_in_part("v1.35.4+vmware.1-fips.1", "v1.35.4+vmware.1", false)]
    #[case::later_build("v1.35.4+vmware.1", "v1.35.4+vmware.2", true)]
    #[case::earlier_build("v1.35.4+vmware.2", "v1.35.4+vmware.1", false)]
    #[case::later_patch("v1.35.4", "v1.35.5", true)]
    #[case::earlier_patch("v1.35.4", "v1.35.3", false)]
    #[case::later_minor("v1.35.4", "v1.36.3", false)]
    #[case::not_a_version("v1.35.4", "latest", false)]
    fn what_replaced_machines_may_report(#[case] wanted: &str, #[case] reported: &str, #[case] may: bool) {
        assert_eq!(may_report(wanted, reported), may);
    }
}
