//! Documents that must follow the code.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot read its inputs has failed"
)]

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
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

/// The first column of every table row.
fn documented() -> BTreeSet<String> {
    let page = read("docs/failure-modes.md");
    page.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_reason_to_hold_is_documented_and_no_other() {
    let (reasons, documented) = (reasons("extension/core/src/hold.rs"), documented());
    assert!(reasons.len() > 40, "the list was not read: {reasons:?}");
    let missing: Vec<_> = reasons.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&reasons).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "missing {missing:?}, stale {stale:?} in docs/failure-modes.md"
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
