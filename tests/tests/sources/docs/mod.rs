//! Documents that must follow the code.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot read its inputs has failed"
)]

mod cited;

use std::collections::BTreeSet;

use sluice_core::reasons::{PAGE, with_tables};
use sluice_tests::sources::root;

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

/// The names in `reasons! { … }` of a file.
fn reasons(file: &str) -> BTreeSet<String> {
    let source = read(file);
    let list = source
        .split("\nreasons! {")
        .nth(1)
        .and_then(|rest| rest.split("\n}").next())
        .expect("the list of reasons");
    list.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
        .filter_map(|line| line.strip_suffix(','))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_tables_of_reasons_to_hold_are_those_of_the_code() {
    let page = read(PAGE);
    let written = with_tables(&page);
    assert_eq!(
        written,
        Ok(page),
        "{PAGE} is out of date; run `make generate` and commit what it writes"
    );
}

#[test]
fn every_reason_of_a_configuration_is_documented() {
    let page = read("docs/reference/providers.md");
    let missing: Vec<String> = reasons("extension/core/src/providers/problem.rs")
        .into_iter()
        .filter(|reason| !page.contains(&format!("`{reason}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "missing {missing:?} in docs/reference/providers.md"
    );
}

#[test]
fn the_readme_names_the_test_command_that_ci_runs() {
    assert!(read("README.md").lines().any(|line| line == "make test"));
}
