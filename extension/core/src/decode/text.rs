//! Text of an object before decoding, and error messages about it.

use std::borrow::Cow;

use sluice_crds::decode::{self, Fault};

/// Longest field path in a message, in bytes: a tenant chooses the names of fields, and they may have any length.
const LONGEST_PATH: usize = 160;

/// Describes a fault: the field and what is wrong. The text repeats no values, because they may be secret.
pub(super) fn why(Fault { path, what }: &Fault) -> String {
    if path == "." {
        return without_values(what);
    }
    // Keeps the message on one line for any field name.
    let path = path.escape_debug().to_string();
    let end = path.floor_char_boundary(LONGEST_PATH);
    let more = if end < path.len() { "…" } else { "" };
    format!("field {}{more}: {}", &path[..end], without_values(what))
}

/// Removes the object's content from a message of serde_json.
fn without_values(text: &str) -> String {
    const WHOLE: [&str; 3] = ["missing field `", "duplicate field `", decode::EXCEEDED];
    const EXPECTED: [&str; 3] = ["invalid type: ", "invalid value: ", "invalid length "];
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| text.starts_with(beginning));
    if text.starts_with("recursion limit exceeded") {
        return "it is nested deeper than 127 levels".to_owned();
    }
    if text.starts_with("trailing characters") {
        return "it has more than one object in it".to_owned();
    }
    if begins(&WHOLE) {
        return text.to_owned();
    }
    match text.rsplit_once(", expected ") {
        Some((_value, expected)) if begins(&EXPECTED) => format!("it has to be {expected}"),
        _ => "it has a value that this kind cannot have".to_owned(),
    }
}

/// Replaces each lone half of a surrogate pair with U+FFFD, as Go does.
pub(super) fn with_whole_characters(text: &str) -> Cow<'_, str> {
    // Halves are written as escapes, and most objects have none.
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let unit = unit(escape);
        let paired = unit.is_some_and(is_high) && escape.get(6..).and_then(self::unit).is_some_and(is_low);
        let (read, length) = match unit {
            _ if paired => (escape.get(..12), 12),
            Some(unit) if is_high(unit) || is_low(unit) => (Some("\\ufffd"), 6),
            _ => (escape.get(..2), 2),
        };
        whole.push_str(read.unwrap_or(escape));
        rest = escape.get(length..).unwrap_or_default();
    }
    whole.push_str(rest);
    Cow::Owned(whole)
}

/// The UTF-16 unit of an escape `\uXXXX` at the start of a text.
fn unit(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_high(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xDC00..0xE000).contains(&unit)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use rstest::rstest;
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use sluice_crds::{decode::Limit, foreign::Cluster, run::TanzuKubernetesRelease};

    use super::*;

    const LIMIT: Limit = Limit::projected(1024 * 1024);

    #[rstest]
    #[case::plain(r#"{"a\n":"é\\ud800"}"#, r#"{"a\n":"é\\ud800"}"#)]
    #[case::pair(r#""\ud83d\ude00""#, r#""\ud83d\ude00""#)]
    #[case::high(r#""\uD800x""#, r#""\ufffdx""#)]
    #[case::low(r#""\udc00\udc00""#, r#""\ufffd\ufffd""#)]
    #[case::high_before_another(r#""\ud800\u0041""#, r#""\ufffd\u0041""#)]
    #[case::cut("\\ud8", "\\ud8")]
    #[case::before_wide("\\é", "\\é")]
    fn halves_of_characters_are_replaced(#[case] text: &str, #[case] whole: &str) {
        assert_eq!(with_whole_characters(text), whole);
    }

    fn why_not<K: DeserializeOwned + fmt::Debug>(object: &str) -> String {
        why(&decode::from_str::<K>(object, LIMIT).unwrap_err())
    }

    #[test]
    fn the_field_is_named_and_no_value_is_repeated() {
        let release = |spec: serde_json::Value| {
            why_not::<TanzuKubernetesRelease>(&json!({"metadata": {}, "spec": spec}).to_string())
        };
        let said = release(json!({"version": "v1", "kubernetes": "s3cret, expected nothing"}));
        assert!(said.starts_with("field spec.kubernetes: it has to be "), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
        let said = release(json!({"version": "v1", "kubernetes": {"version": {"s3cret": 1}}}));
        assert_eq!(said, "field spec.kubernetes.version: it has to be a string");
        let said = release(json!({"version": "v1"}));
        assert_eq!(said, "field spec: missing field `kubernetes`");
        let deep = ["[".repeat(300), "]".repeat(300)].concat();
        let said = why_not::<serde_json::Value>(&format!(r#"{{"a\nERROR b":{deep}}}"#));
        assert!(!said.contains('\n'), "{said}");
        let time = r#"{"metadata":{"creationTimestamp":"s3cret"},"spec":{}}"#;
        let said = why_not::<Cluster>(time);
        assert!(
            said.contains("creationTimestamp") && !said.contains("s3cret"),
            "{said}"
        );
    }
}
