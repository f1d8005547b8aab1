//! Comparison of the values that the addons-manager deployed with those that Sluice would deploy.
//!
//! Both write the same values differently: the addons-manager as YAML of Go, Sluice inline values as JSON. So the comparison is by
//! content. Where YAML readers might disagree, only equal bytes are equal.

use serde_json::Value;

use crate::{packages::build::Values, strict_yaml};

/// Nesting limit, above that of any values.
const MAX_DEPTH: usize = 64;

/// Size limit, above that of any Secret.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// Whether both have the same files with equal content.
#[must_use]
pub fn same_values(one: &Values, other: &Values) -> bool {
    one.keys().eq(other.keys())
        && one
            .values()
            .zip(other.values())
            .all(|(one, other)| one == other || contents_equal(one, other))
}

/// Whether values are empty, so a PackageInstall without values deploys the same.
#[must_use]
pub fn are_empty(values: &Values) -> bool {
    let is_empty = |content: &Vec<u8>| match read(content) {
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Null) => true,
        _ => false,
    };
    values.values().all(is_empty)
}

fn contents_equal(one: &[u8], other: &[u8]) -> bool {
    match (read(one), read(other)) {
        (Some(one), Some(other)) => one == other && !is_ambiguous(&one),
        _ => false,
    }
}

/// Parses a file; `None` if its content is ambiguous.
fn read(content: &[u8]) -> Option<Value> {
    let text = str::from_utf8(content)
        .ok()
        .filter(|text| text.len() <= MAX_BYTES)?;
    // ytt directives in comments are not part of the values.
    if text.contains("#@") || text.contains("#!") {
        return None;
    }
    serde_saphyr::from_str_with_options(text, strict_yaml::options(MAX_DEPTH)).ok()
}

/// Whether a text would not be a text without quotes for a reader of YAML 1.1, such as ytt.
fn is_ambiguous(value: &Value) -> bool {
    match value {
        Value::String(text) => is_ambiguous_text(text),
        Value::Array(items) => items.iter().any(is_ambiguous),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| is_ambiguous_text(name) || is_ambiguous(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_ambiguous_text(text: &str) -> bool {
    const WORDS: [&str; 6] = ["y", "yes", "n", "no", "on", "off"];
    let is_word = WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    // Numbers in base 60 and 8, numbers with `_` between digits, and dates.
    let begins = text
        .trim_start_matches(['+', '-'])
        .starts_with(|sign: char| sign.is_ascii_digit());
    let in_number = |sign: char| sign.is_ascii_digit() || matches!(sign, '_' | ':' | '.' | '+' | '-');
    let counts = begins && text.chars().all(in_number);
    let is_odd = text.contains(['_', ':', '-', '+']) || text.starts_with('0') && text.len() > 1;
    is_word || (counts && is_odd)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        let pairs = pairs
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec()));
        pairs.collect()
    }

    #[rstest]
    #[case::the_same_bytes("#@data/values\n---\na: yes\n", "#@data/values\n---\na: yes\n", true)]
    #[case::json(
        "{\"antrea\":{\"mtu\":1450,\"cidrs\":[\"10.0.0.0/8\"],\"on\":true}}\n",
        "antrea:\n  cidrs:\n  - 10.0.0.0/8\n  mtu: 1450\n  \"on\": true\n",
        false
    )]
    #[case::order_of_fields("{\"a\":{\"b\":1,\"c\":\"10.0.0.1\"}}\n", "a:\n  c: 10.0.0.1\n  b: 1\n", true)]
    #[case::comments("a: 1\n", "# as written\na: 1\n", true)]
    #[case::another_value("{\"a\":1}\n", "a: 2\n", false)]
    #[case::text_is_no_number("{\"a\":\"1\"}\n", "a: 1\n", false)]
    #[case::text_that_one_reader_takes_for_a_bool("{\"a\":\"yes\"}\n", "a: yes\n", false)]
    #[case::text_that_one_reader_takes_for_a_number("{\"a\":\"1:20\"}\n", "a: 1:20\n", false)]
    #[case::text_that_one_reader_takes_for_a_date("{\"a\":\"2001-12-14\"}\n", "a: 2001-12-14\n", false)]
    #[case::what_ytt_reads("a: 1\n", "#@overlay/match-child-defaults missing_ok=True\na: 1\n", false)]
    #[case::two_documents("a: 1\n", "a: 1\n---\na: 1\n", false)]
    #[case::aliases("a: {b: 1}\nc: {b: 1}\n", "a: &x {b: 1}\nc: *x\n", false)]
    #[case::no_yaml("a: [", "a: {", false)]
    fn one_file(#[case] one: &str, #[case] other: &str, #[case] expected: bool) {
        let of = |content| values(&[("values.yaml", content)]);
        assert_eq!(same_values(&of(one), &of(other)), expected);
        assert_eq!(same_values(&of(other), &of(one)), expected);
        assert!(same_values(&of(one), &of(one)));
    }

    #[test]
    fn files_have_their_names() {
        let one = values(&[("values.yaml", "a: 1\n")]);
        assert!(!same_values(&one, &values(&[("values.yml", "a: 1\n")])));
        // A key that was removed from the source is still in the workload.
        assert!(!same_values(
            &one,
            &values(&[("values.yaml", "a: 1\n"), ("old.yaml", "")])
        ));
    }

    #[rstest]
    #[case(&[], true)]
    #[case(&[("values.yaml", "{}\n")], true)]
    #[case(&[("values.yaml", "")], true)]
    #[case(&[("values.yaml", "a: 1\n")], false)]
    #[case(&[("values.yaml", "[")], false)]
    fn values_that_say_nothing(#[case] files: &[(&str, &str)], #[case] expected: bool) {
        assert_eq!(are_empty(&values(files)), expected);
    }
}
