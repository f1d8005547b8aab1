//! Parser for selectors in annotations, `os-name=ubuntu,os-arch in (amd64, arm64),!fips`.

use kube::core::{Expression, Selector};

/// Syntax error of a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} {why}; a selector is a list of a, !a, a=b, a==b, a!=b, a in (b,c) and a notin (b,c), with commas between them"
)]
pub struct NoSelector {
    /// The unreadable part.
    part: String,
    why: &'static str,
}

/// Parses a selector; an empty text selects everything. The grammar is that of Kubernetes without its operators `<` and `>`
/// (`k8s.io/apimachinery/pkg/labels`).
///
/// # Errors
/// The first unreadable part.
pub fn parse(text: &str) -> Result<Selector, NoSelector> {
    let mut selector = Selector::default();
    if text.trim().is_empty() {
        return Ok(selector);
    }
    for part in parts(text) {
        selector.extend(expression(part.trim())?);
    }
    Ok(selector)
}

/// Returns the label keys in a selector.
pub(super) fn keys(selector: &Selector) -> impl Iterator<Item = String> {
    let expressions = selector.clone().into_iter();
    expressions.map(|expression| match expression {
        Expression::In(key, _)
        | Expression::NotIn(key, _)
        | Expression::Equal(key, _)
        | Expression::NotEqual(key, _)
        | Expression::Exists(key)
        | Expression::DoesNotExist(key) => key,
    })
}

/// Splits a selector at commas outside of parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |letter: char| {
        match letter {
            '(' => inside = true,
            ')' => inside = false,
            _ => {}
        }
        letter == ',' && !inside
    })
}

fn expression(part: &str) -> Result<Expression, NoSelector> {
    let no = |why| NoSelector {
        part: part.to_owned(),
        why,
    };
    let key = |text: &str| {
        let text = text.trim();
        is_key(text)
            .then(|| text.to_owned())
            .ok_or_else(|| no("has no key of a label"))
    };
    let value = |text: &str| {
        let text = text.trim();
        let is_value = text.is_empty() || is_name(text);
        is_value
            .then(|| text.to_owned())
            .ok_or_else(|| no("has no value of a label"))
    };
    if let Some(absent) = part.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(key(absent)?));
    }
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Expression::NotEqual(key(left)?, value(right)?));
    }
    if let Some((left, right)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Expression::Equal(key(left)?, value(right)?));
    }
    let Some((left, set)) = part.split_once('(') else {
        return Ok(Expression::Exists(key(part)?));
    };
    let set = set
        .strip_suffix(')')
        .ok_or_else(|| no("has no end of its list"))?;
    let values = set.split(',').map(value).collect::<Result<_, _>>()?;
    let mut words = left.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(left), Some("in"), None) => Ok(Expression::In(key(left)?, values)),
        (Some(left), Some("notin"), None) => Ok(Expression::NotIn(key(left)?, values)),
        _ => Err(no("has another operator than in and notin before its list")),
    }
}

/// Whether a text is a valid label key: a name with or without a prefix.
fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => {
            let parts = prefix.split('.');
            let lower = !prefix
                .bytes()
                .any(|byte| byte.is_ascii_uppercase() || byte == b'_');
            prefix.len() <= 253 && lower && parts.into_iter().all(is_name) && is_name(name)
        }
        None => is_name(text),
    }
}

fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= crate::names::LONGEST_LABEL
        && bytes.iter().copied().all(good)
        && ends(bytes.first())
        && ends(bytes.last())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt as _;
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn labels() -> BTreeMap<String, String> {
        let labels = [("os-name", "ubuntu"), ("a.test/b", ""), ("v1.35", "")];
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    #[rstest]
    #[case::everything("", true)]
    #[case::everything_with_spaces("  ", true)]
    #[case::exists("os-name", true)]
    #[case::prefixed("a.test/b", true)]
    #[case::version("v1.35", true)]
    #[case::absent("!os-name", false)]
    #[case::absent_with_a_space("! os-version", true)]
    #[case::equal("os-name=ubuntu", true)]
    #[case::equal_twice("os-name == ubuntu", true)]
    #[case::equal_to_nothing("v1.35=", true)]
    #[case::equal_to_another("os-name=photon", false)]
    #[case::not_equal("os-name!=photon", true)]
    #[case::not_equal_absent("os-arch!=amd64", true)]
    #[case::among("os-name in (photon, ubuntu)", true)]
    #[case::not_among("os-name notin (photon,ubuntu)", false)]
    #[case::all("os-name in (ubuntu,photon),!fips,v1.35", true)]
    #[case::all_but_one("os-name in (ubuntu,photon),fips", false)]
    fn selectors_match_labels(#[case] text: &str, #[case] selected: bool) {
        assert_eq!(parse(text).unwrap().matches(&labels()), selected);
    }

    #[rstest]
    #[case::nothing_between_commas("a,,b", "\"\" has no key")]
    #[case::comma_at_the_end("a,", "\"\" has no key")]
    #[case::no_key("=b", "\"=b\" has no key")]
    #[case::two_words("a b", "\"a b\" has no key")]
    #[case::greater("a>1", "\"a>1\" has no key")]
    #[case::no_end("a in (b", "has no end of its list")]
    #[case::other_operator("a among (b)", "another operator")]
    #[case::bad_value("a=b c", "has no value")]
    #[case::bad_prefix("A.test/b", "has no key")]
    fn syntax_errors_name_the_unreadable_part(#[case] text: &str, #[case] says: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    proptest! {
        #[test]
        fn parsed_selectors_round_trip(text in "[a-c!=()in, ./]{0,24}") {
            if let Ok(selector) = parse(&text) {
                prop_assert_eq!(parse(&selector.to_string()).unwrap(), selector);
            }
        }
    }
}
