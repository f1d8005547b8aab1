//! Which of two versions of a package is the higher one.

use std::cmp::Ordering;

/// A semantic version, taken apart.
struct Version<'a> {
    numbers: Vec<u64>,
    pre_release: Vec<Identifier<'a>>,
    build: &'a str,
}

/// A part of a pre-release: numbers are below texts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'a> {
    Number(u64),
    Text(&'a str),
}

/// The order of semantic versions, and of two builds of one version that of their build metadata, which semantic versions do not
/// order: `+vmware.1-tkg.1` is below `+vmware.1-tkg.2` (addons-manager §6.6). None where one of two texts is no semantic version.
pub(super) fn order(one: &str, other: &str) -> Option<Ordering> {
    if one == other {
        return Some(Ordering::Equal);
    }
    let (one, other) = (Version::read(one)?, Version::read(other)?);
    Some(
        (one.numbers.cmp(&other.numbers))
            // A version without pre-release is the higher one.
            .then(one.pre_release.is_empty().cmp(&other.pre_release.is_empty()))
            .then(one.pre_release.cmp(&other.pre_release))
            .then(order_of_builds(one.build, other.build)),
    )
}

impl<'a> Version<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, identifiers(build).map(|_| build)?),
            None => (text, ""),
        };
        let (numbers, pre_release) = match text.split_once('-') {
            Some((numbers, pre_release)) => (numbers, identifiers(pre_release)?),
            None => (text, Vec::new()),
        };
        let numbers: Vec<u64> = numbers.split('.').map(number).collect::<Option<_>>()?;
        let pre_release = pre_release.into_iter().map(Identifier::read);
        Some(Self {
            pre_release: pre_release.collect::<Option<_>>()?,
            numbers: Some(numbers).filter(|numbers| numbers.len() == 3)?,
            build,
        })
    }
}

impl<'a> Identifier<'a> {
    fn read(text: &'a str) -> Option<Self> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return number(text).map(Self::Number);
        }
        Some(Self::Text(text))
    }
}

fn identifiers(text: &str) -> Option<Vec<&str>> {
    let is_identifier = |part: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !part.is_empty() && part.bytes().all(allowed)
    };
    let parts = text.split('.');
    parts.map(|part| Some(part).filter(is_identifier)).collect()
}

fn number(text: &str) -> Option<u64> {
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| !has_leading_zero)
}

/// Runs of letters and digits, and the single characters between them, are compared one by one: as hexadecimal numbers where both
/// are, else by the byte.
fn order_of_builds(one: &str, other: &str) -> Ordering {
    let (one, other) = (parts(one), parts(other));
    let orders = one
        .iter()
        .zip(&other)
        .map(|(one, other)| match (hexadecimal(one), hexadecimal(other)) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => one.cmp(other),
        });
    let lengths = one.len().cmp(&other.len());
    orders
        .chain([lengths])
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn parts(build: &str) -> Vec<&[u8]> {
    let together = |one: &u8, next: &u8| one.is_ascii_alphanumeric() && next.is_ascii_alphanumeric();
    build.as_bytes().chunk_by(together).collect()
}

fn hexadecimal(part: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(part).ok()?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_below_the_next() {
        let rising = [
            "1.7.1-alpha.2",
            "1.7.1-alpha.10",
            "1.7.1-alpha.beta",
            "1.7.1-rc.1+vmware.9",
            "1.7.1",
            "1.7.1+vmware.1",
            "1.7.1+vmware.1-fips.1",
            "1.7.1+vmware.1-tkg.1",
            "1.7.1+vmware.1-tkg.2",
            "1.7.1+vmware.1-tkg.9",
            "1.7.1+vmware.1-tkg.a",
            "1.7.1+vmware.1-tkg.10",
            "1.7.1+vmware.2-tkg.1",
            "v1.7.2",
            "1.10.0+vmware.1",
            "2.0.0",
        ];
        for (index, low) in rising.iter().enumerate() {
            for high in &rising[index + 1..] {
                assert_eq!(order(low, high), Some(Ordering::Less), "{low} {high}");
                assert_eq!(order(high, low), Some(Ordering::Greater), "{high} {low}");
            }
        }
    }

    #[test]
    fn a_v_and_leading_zeros_of_a_build_are_no_difference() {
        assert_eq!(order("v1.7.1+vmware.1", "1.7.1+vmware.1"), Some(Ordering::Equal));
        assert_eq!(order("1.7.1+vmware.01", "1.7.1+vmware.1"), Some(Ordering::Equal));
    }

    #[test]
    fn an_invalid_semantic_version_has_no_order() {
        assert_eq!(order("latest", "latest"), Some(Ordering::Equal));
        for text in [
            "latest", "1.0", "1.0.0.0", "01.0.0", "1.0.0-", "1.0.0+", "1.0.0-01", "vv1.0.0",
        ] {
            assert_eq!(order(text, "1.0.0"), None, "{text}");
            assert_eq!(order("1.0.0", text), None, "{text}");
        }
    }
}
