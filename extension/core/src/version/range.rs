//! Ranges of versions as kapp-controller v0.53.1 reads them, with `ParseRange` of `k14s/semver`.
//!
//! A range consists of comparisons that blanks join, which all have to match, and `||` between alternatives. kapp-controller uses the
//! parsed range in `pkg/packageinstall` and drops pre-release and build of the version that it compares.
//!
//! The parser accepts text that other parsers reject: a single character between blanks is ignored, `~1.35.x` means `1.35.0`, `1.x.x`
//! means `1.0.x`, and no version matches `!=1.35.x`. `tests/tests/real/ranges.rs` compares [`Range`] with kapp-controller's functions.

use std::cmp::Ordering;

use super::upgrading::normalized;

/// Maximum length of a range in bytes. kapp-controller has none.
pub const MAX_LENGTH: usize = 1024;

/// Maximum length of a rejected text in an error, in bytes.
const MAX_SHOWN: usize = 100;

/// Separator of alternatives.
const OR: &str = "||";

/// Range of versions in `kubernetesVersionSelection` or `kappControllerVersionSelection` of a Package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    alternatives: Vec<Vec<Comparison>>,
}

/// Error for a text that is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a version range: {problem}")]
pub struct InvalidRange {
    /// Rejected text, truncated.
    pub text: String,
    /// Why it is rejected.
    pub problem: Problem,
}

/// Why a text is no range. Parts of the text are truncated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It exceeds [`MAX_LENGTH`].
    #[error("it is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// It has other than ASCII characters. kapp-controller accepts them as unknown operators of a wildcard.
    #[error("it has characters that are not ASCII")]
    NotAscii,
    /// It has no comparison.
    #[error("it has no version")]
    Empty,
    /// No comparison precedes the first `||`, or follows the last one.
    #[error("a comparison is missing before or after ||")]
    OpenAlternative,
    /// A comparison without a version.
    #[error("{0:?} has no version")]
    NoVersion(String),
    /// An operator that does not exist.
    #[error("{0:?} is not an operator")]
    Operator(String),
    /// A version without three numbers, or with a pre-release or build that is not valid.
    #[error("{0:?} is not a version such as 1.35.0 or 1.35.x")]
    Version(String),
}

/// Comparison with one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Comparison {
    operator: Operator,
    bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Version to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    numbers: [u64; 3],
    /// Order of the numbers alone compared with the bound: greater than a pre-release, less than a build.
    numbers_alone: Ordering,
}

impl Range {
    /// Parses a range.
    ///
    /// # Errors
    /// The text is longer than [`MAX_LENGTH`], not ASCII, or no range for kapp-controller.
    pub fn parse(text: &str) -> Result<Self, InvalidRange> {
        Self::read(text).map_err(|problem| InvalidRange {
            text: shown(text),
            problem,
        })
    }

    /// Whether the range contains a version, without its pre-release and build. It contains no version that kapp-controller cannot
    /// parse.
    #[must_use]
    pub fn allows(&self, version: &str) -> bool {
        let Some(version) = normalized(version).and_then(|version| Bound::of(&version)) else {
            return false;
        };
        self.alternatives
            .iter()
            // At an empty alternative, as in `1.34.0 || || 1.35.0`, kapp-controller panics.
            .take_while(|alternative| !alternative.is_empty())
            .any(|alternative| {
                alternative
                    .iter()
                    .all(|comparison| comparison.allows(version.numbers))
            })
    }

    fn read(text: &str) -> Result<Self, Problem> {
        if text.len() > MAX_LENGTH {
            return Err(Problem::TooLong);
        }
        if !text.is_ascii() {
            return Err(Problem::NotAscii);
        }
        let parts = parts(text);
        if parts.is_empty() {
            return Err(Problem::Empty);
        }
        let is_or = |part: &String| part == OR;
        if parts.first().is_some_and(is_or) || parts.last().is_some_and(is_or) {
            return Err(Problem::OpenAlternative);
        }
        let alternatives = parts
            .split(is_or)
            .map(alternative)
            .collect::<Result<Vec<_>, Problem>>()?;
        Ok(Self { alternatives })
    }
}

/// Splits a range at blanks, except after an operator. Single characters are dropped.
fn parts(text: &str) -> Vec<String> {
    let mut before = ' ';
    let ends = |character: char| {
        if character == ' ' {
            return !matches!(before, '<' | '>' | '=');
        }
        before = character;
        false
    };
    text.split(ends)
        .filter(|part| part.len() > 1)
        .map(|part| part.replace(' ', ""))
        .collect()
}

fn alternative(parts: &[String]) -> Result<Vec<Comparison>, Problem> {
    let mut comparisons = Vec::new();
    for part in parts {
        Comparison::read(part, &mut comparisons)?;
    }
    Ok(comparisons)
}

impl Comparison {
    /// Reads a part of a range: one comparison, or the one or two that replace a wildcard.
    fn read(part: &str, into: &mut Vec<Self>) -> Result<(), Problem> {
        let start = part
            .find(|character: char| character.is_ascii_digit())
            .ok_or_else(|| Problem::NoVersion(shown(part)))?;
        let (operator, version) = part.split_at(start);
        // Blanks are gone, tabs and line ends are not.
        let operator = operator.trim();
        let invalid = || Problem::Version(shown(version));
        // Also an x in a pre-release makes kapp-controller replace the comparison.
        if !part.contains('x') {
            let operator = Operator::of(operator).ok_or_else(|| Problem::Operator(shown(operator)))?;
            let bound = Bound::of(version).ok_or_else(invalid)?;
            into.push(Self { operator, bound });
            return Ok(());
        }
        let (at_first, at_next) = match Operator::of(operator) {
            Some(Operator::Equal) => (Some(Operator::AtLeast), Some(Operator::Less)),
            Some(Operator::NotEqual) => (Some(Operator::Less), Some(Operator::AtLeast)),
            Some(Operator::Less) => (Some(Operator::Less), None),
            Some(Operator::AtMost) => (None, Some(Operator::Less)),
            Some(Operator::Greater) => (None, Some(Operator::AtLeast)),
            Some(Operator::AtLeast) => (Some(Operator::AtLeast), None),
            // It is lost when kapp-controller replaces the comparison.
            None => (Some(Operator::Equal), None),
        };
        let first = first_of(version);
        if let Some(operator) = at_first {
            let bound = Bound::of(&first).ok_or_else(invalid)?;
            into.push(Self { operator, bound });
        }
        if let Some(operator) = at_next {
            let next = next_after(version, &first);
            let bound = next.and_then(|next| Bound::of(&next)).ok_or_else(invalid)?;
            into.push(Self { operator, bound });
        }
        Ok(())
    }

    fn allows(self, numbers: [u64; 3]) -> bool {
        let order = numbers.cmp(&self.bound.numbers).then(self.bound.numbers_alone);
        match self.operator {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::AtMost => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
        }
    }
}

/// Returns the first version that a wildcard stands for, `1.35.0` of `1.35.x`.
fn first_of(wildcard: &str) -> String {
    let version = wildcard.replacen(".x.x", ".x", 1).replacen(".x", ".0", 1);
    if version.split('.').count() == 2 {
        version + ".0"
    } else {
        version
    }
}

/// Returns the first version after those that a wildcard stands for, `1.36.0` of `1.35.x`; `None` if the last of two or three parts is
/// not `x`.
fn next_after(wildcard: &str, first: &str) -> Option<String> {
    let parts: Vec<&str> = wildcard.split('.').collect();
    let incremented: usize = match parts.as_slice() {
        [_, "x"] => 0,
        [_, _, "x"] => 1,
        _ => return None,
    };
    let mut parts: Vec<String> = first.split('.').map(str::to_owned).collect();
    let part = parts.get_mut(incremented)?;
    // Signed as in Go: `1.-1.x` is followed by `1.0.0`.
    let next = part.parse::<i64>().ok()?.checked_add(1)?;
    *part = next.to_string();
    Some(parts.join("."))
}

impl Operator {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "" | "=" | "==" => Self::Equal,
            "!" | "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            ">=" => Self::AtLeast,
            _ => return None,
        })
    }
}

impl Bound {
    /// Parses a version as `Parse` of `k14s/semver` does. Unlike crate `semver`, that fork rejects numeric identifiers above 64 bits.
    fn of(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let (rest, build) = cut(rest, '+');
        let (patch, pre_release) = cut(rest, '-');
        let numbers = [number(major)?, number(minor)?, number(patch)?];
        let in_pre_release = |identifier: &str| is_identifier(identifier, |digits| number(digits).is_some());
        let in_build = |identifier: &str| is_identifier(identifier, |digits| digits.parse::<u64>().is_ok());
        let is_valid = pre_release.is_none_or(|all| all.split('.').all(in_pre_release))
            && build.is_none_or(|all| all.split('.').all(in_build));
        let numbers_alone = match (pre_release, build) {
            (Some(_), _) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => Ordering::Equal,
        };
        is_valid.then_some(Self {
            numbers,
            numbers_alone,
        })
    }
}

fn cut(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator)
        .map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Parses a number without leading zeros.
fn number(text: &str) -> Option<u64> {
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    if has_leading_zero || !is_numeric(text) {
        return None;
    }
    text.parse().ok()
}

fn is_identifier(text: &str, is_number: impl Fn(&str) -> bool) -> bool {
    if is_numeric(text) {
        return is_number(text);
    }
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_numeric(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn shown(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_SHOWN)].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::equal("1.35.4", "v1.35.4", true)]
    #[case::equal_written_out("=1.35.4 ==1.35.4", "v1.35.4", true)]
    #[case::another("1.35.4", "v1.35.5", false)]
    #[case::not_equal("!1.35.5 !=1.35.6", "v1.35.4", true)]
    #[case::not_equal_to_it("!1.35.4", "v1.35.4", false)]
    #[case::between(">=1.34.0 <1.36.0", "v1.35.4", true)]
    #[case::at_the_end(">=1.34.0 <1.36.0", "v1.36.0", false)]
    #[case::inclusive(">=1.35.4 <=1.35.4", "v1.35.4", true)]
    #[case::exclusive(">1.35.4", "v1.35.4", false)]
    #[case::nothing(">=1.35.0 <1.35.0", "v1.35.0", false)]
    #[case::numbers_not_text("<1.9.0", "v1.10.0", false)]
    #[case::first_alternative("<1.34.0 || >=1.35.0", "v1.33.9", true)]
    #[case::last_alternative("<1.34.0 || >=1.35.0", "v1.35.0", true)]
    #[case::no_alternative("<1.34.0 || >=1.35.0", "v1.34.4", false)]
    #[case::and_before_or("1.34.0 || >=1.35.0 <1.35.3", "v1.35.4", false)]
    #[case::blanks("   >=  1.34.0    <   1.36.0  ", "v1.35.4", true)]
    #[case::tab(">=\t1.34.0", "v1.35.4", true)]
    #[case::patch_wildcard("1.35.x", "v1.35.4", true)]
    #[case::after_patch_wildcard("1.35.x", "v1.36.0", false)]
    #[case::minor_wildcard("1.x", "v1.35.4", true)]
    #[case::after_minor_wildcard("=1.x", "v2.0.0", false)]
    #[case::greater_than_wildcard(">1.34.x", "v1.35.0", true)]
    #[case::in_greater_than_wildcard(">1.35.x", "v1.35.4", false)]
    #[case::at_least_wildcard(">=1.35.x", "v1.35.0", true)]
    #[case::less_than_wildcard("<1.35.x", "v1.35.0", false)]
    #[case::at_most_wildcard("<=1.35.x", "v1.35.4", true)]
    // The version has neither.
    #[case::pre_release_of_the_version("<1.36.0", "v1.36.0-rc.1", false)]
    #[case::build_of_the_version("1.35.4", "v1.35.4+vmware.1", true)]
    #[case::pre_release_of_the_range(">=1.36.0-0", "v1.36.0-rc.1", true)]
    #[case::same_build(">=1.35.4+vmware.1", "v1.35.4+vmware.1", false)]
    #[case::at_most_a_build("<=1.35.4+vmware.1", "v1.35.4+vmware.2", true)]
    #[case::both(">1.35.4-0+vmware.1", "v1.35.4", true)]
    // What only this parser accepts.
    #[case::not_equal_to_wildcard("!=1.34.x", "v1.35.4", false)]
    #[case::two_wildcards("1.x.x", "v1.35.4", false)]
    #[case::first_of_two_wildcards("1.x.x", "v1.0.4", true)]
    #[case::unknown_operator_of_wildcard("~1.35.x", "v1.35.4", false)]
    #[case::first_of_unknown_operator("^1.35.x", "v1.35.0", true)]
    #[case::joined_wildcard("||1.35.x", "v1.35.0", true)]
    #[case::x_in_pre_release("<1.36.0-x", "v1.35.4", true)]
    #[case::dropped_operator("! 1.35.4", "v1.35.4", true)]
    #[case::hyphen("1.34.0 - 1.36.0", "v1.35.4", false)]
    #[case::signed_number(">1.-1.x", "v1.0.0", true)]
    #[case::leading_zero_of_wildcard(">01.x", "v2.0.0", true)]
    #[case::before_empty_alternative("1.35.4 || || 1.36.0", "v1.35.4", true)]
    #[case::after_empty_alternative("1.35.4 || || 1.36.0", "v1.36.0", false)]
    // Versions as servers report them.
    #[case::without_v("1.35.4", "1.35.4", true)]
    #[case::without_patch("1.35.0", "v1.35", true)]
    #[case::leading_zeros("1.35.4", " v01.35.04 ", true)]
    #[case::no_version(">=0.0.0", "latest", false)]
    #[case::no_text(">=0.0.0", "", false)]
    #[case::build_above_64_bits(">=0.0.0", "v1.35.4+99999999999999999999", false)]
    #[case::leading_zero_of_pre_release(">=0.0.0", "v1.35.4-rc.1.01", false)]
    fn versions_in_and_outside(#[case] range: &str, #[case] version: &str, #[case] allowed: bool) {
        let range = Range::parse(range).unwrap();
        assert_eq!(range.allows(version), allowed, "{range:?}");
    }

    #[rstest]
    #[case::empty("", Problem::Empty)]
    #[case::blanks("   ", Problem::Empty)]
    #[case::dropped("1 x >", Problem::Empty)]
    #[case::or_at_the_start("|| 1.35.0", Problem::OpenAlternative)]
    #[case::or_at_the_end("1.35.0 ||", Problem::OpenAlternative)]
    #[case::or_after_dropped("1 || 1.35.0", Problem::OpenAlternative)]
    #[case::no_version("1.35.0 >=", Problem::NoVersion(">=".to_owned()))]
    #[case::word("latest", Problem::NoVersion("latest".to_owned()))]
    #[case::v("v1.35.0", Problem::Operator("v".to_owned()))]
    #[case::tilde("~1.35.0", Problem::Operator("~".to_owned()))]
    #[case::swapped("=> 1.35.0", Problem::Operator("=>".to_owned()))]
    #[case::two_numbers(">=1.35", Problem::Version("1.35".to_owned()))]
    #[case::four_numbers("1.35.0.0", Problem::Version("1.35.0.0".to_owned()))]
    #[case::comma(">=1.35.0,<1.36.0", Problem::Version("1.35.0,<1.36.0".to_owned()))]
    #[case::or_without_blanks("1.35.0||1.36.0", Problem::Version("1.35.0||1.36.0".to_owned()))]
    #[case::leading_zero("1.035.0", Problem::Version("1.035.0".to_owned()))]
    #[case::number_above_64_bits("18446744073709551616.0.0", Problem::Version("18446744073709551616.0.0".to_owned()))]
    #[case::leading_zero_of_pre_release("1.35.0-01", Problem::Version("1.35.0-01".to_owned()))]
    #[case::empty_identifier("1.35.0+a..b", Problem::Version("1.35.0+a..b".to_owned()))]
    #[case::build_above_64_bits("1.35.0+99999999999999999999", Problem::Version("1.35.0+99999999999999999999".to_owned()))]
    #[case::next_above_63_bits("1.9223372036854775807.x", Problem::Version("1.9223372036854775807.x".to_owned()))]
    #[case::x_in_equal_pre_release("1.35.0-x", Problem::Version("1.35.0-x".to_owned()))]
    #[case::not_ascii(">=1.35.0 é", Problem::NotAscii)]
    fn rejected_texts(#[case] text: &str, #[case] problem: Problem) {
        assert_eq!(Range::parse(text).unwrap_err().problem, problem);
    }

    #[test]
    fn long_texts_are_rejected() {
        let comparisons = ">=1.35.4 ".repeat(113);
        assert!(Range::parse(&comparisons).unwrap().allows("1.35.4"));
        let error = Range::parse(&comparisons.repeat(1000)).unwrap_err();
        assert_eq!(error.problem, Problem::TooLong);
        assert_eq!(error.text, comparisons[..MAX_SHOWN]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([0-9x.<>=!| ~+-]|\\PC){0,60}", version in "(v?[0-9.+a-]|\\PC){0,20}") {
            if let Ok(range) = Range::parse(&text) {
                let _allowed = range.allows(&version);
            }
        }

        #[test]
        fn numbers_are_compared(
            version in prop::array::uniform3(0_u8..4),
            low in prop::array::uniform3(0_u8..4),
            high in prop::array::uniform3(0_u8..4),
            other in prop::array::uniform3(0_u8..4),
        ) {
            let text = |[major, minor, patch]: [u8; 3]| format!("{major}.{minor}.{patch}");
            let range = format!(">={} <{} || {}", text(low), text(high), text(other));
            let expected = (low <= version && version < high) || version == other;
            prop_assert_eq!(Range::parse(&range).unwrap().allows(&text(version)), expected);
        }
    }
}
