//! Detection of an API server that was restored to an earlier state.

/// Whether `found` is an earlier resourceVersion than `before`. Versions of one API server are numbers that grow (KEP-5504); others are not
/// compared.
#[must_use]
pub fn is_earlier(found: Option<&str>, before: Option<&str>) -> bool {
    let number = |version: Option<&str>| version?.parse::<u64>().ok();
    number(found)
        .zip(number(before))
        .is_some_and(|(found, before)| found < before)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::later(Some("10"), Some("9"), false)]
    #[case::same(Some("9"), Some("9"), false)]
    #[case::earlier(Some("9"), Some("10"), true)]
    #[case::text(Some("a"), Some("b"), false)]
    #[case::empty(Some(""), Some("9"), false)]
    #[case::unknown(None, Some("9"), false)]
    #[case::first(Some("9"), None, false)]
    fn versions_are_compared_as_numbers(
        #[case] found: Option<&str>,
        #[case] before: Option<&str>,
        #[case] expected: bool,
    ) {
        assert_eq!(is_earlier(found, before), expected);
    }
}
