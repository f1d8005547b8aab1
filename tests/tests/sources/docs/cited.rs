//! Files that documents name exist.

use std::path::{Path, PathBuf};

use sluice_tests::sources::root;

use super::read;

/// Where paths in documents may begin.
const BEGIN: [&str; 5] = ["", "extension", "extension/src", "extension/core/src", "crds/src"];

/// Pages whose paths are checked.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md"]
        .iter()
        .map(|page| root().join(page))
        .collect();
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("list the documents") {
            let path = entry.expect("read a directory").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                pages.push(path);
            }
        }
    }
    pages
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, (among, after))) = path
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![path.to_owned()];
    };
    among
        .split(',')
        .map(|one| format!("{before}{one}{after}"))
        .collect()
}

/// Whether a text in backticks is a path of this repository.
fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.{},".contains(c);
    let Some((first, _)) = text.split_once('/') else {
        return Path::new(text)
            .extension()
            .is_some_and(|extension| extension == "rs")
            && text.chars().all(plain);
    };
    text.chars().all(plain)
        && !first.is_empty()
        && first != "target"
        && (first == "core" || BEGIN.iter().any(|begin| root().join(begin).join(first).is_dir()))
}

fn exists(path: &str) -> bool {
    // Parts are named after their modules.
    let of_core = path
        .strip_prefix("core/")
        .map(|rest| format!("extension/core/src/{rest}"));
    let of_binary = path
        .strip_prefix("extension/")
        .map(|rest| format!("extension/src/{rest}"));
    let anywhere = BEGIN.iter().map(|begin| format!("{begin}/{path}"));
    anywhere.chain(of_core).chain(of_binary).any(|path| {
        let path = root().join(path.trim_start_matches('/'));
        path.exists() || path.with_extension("rs").exists()
    })
}

#[test]
fn every_file_that_a_document_names_exists() {
    let mut checked = 0;
    let mut missing = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("read a document");
        let cited = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        for path in cited.filter(|text| is_path(text)).flat_map(alternatives) {
            checked += 1;
            if !exists(&path) {
                missing.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(checked > 20, "the paths were not found: {checked}");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The names of all scenarios.
fn scenarios() -> Vec<String> {
    let mut names = Vec::new();
    let mut directories = vec![root().join("tests/tests/scenarios")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("list the scenarios") {
            let path = entry.expect("read a directory").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("read a scenario");
            let begun = text.split("Scenario::new(").skip(1);
            names.extend(begun.filter_map(|rest| rest.split('"').nth(1)).map(str::to_owned));
        }
    }
    names
}

#[test]
fn every_scenario_that_reliability_names_exists() {
    let known = scenarios();
    assert!(known.len() > 20, "the scenarios were not found: {known:?}");
    let page = read("docs/reliability.md");
    let mut checked = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let tests = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .unwrap_or_default();
        for part in tests
            .split(';')
            .filter(|part| part.trim_start().starts_with("scenario"))
        {
            for name in part.split('`').skip(1).step_by(2) {
                assert!(
                    known.iter().any(|known| known == name),
                    "there is no scenario {name}: {row}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "the names were not found");
}
