//! Documents that must follow the code.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot read its inputs has failed"
)]

mod cited;

use std::collections::BTreeSet;

use sluice_core::reasons::{PAGE, with_tables};
use sluice_tests::components::{
    CLUSTER_API_VERSION, ClusterApiRelease, KAPP_CONTROLLER_VERSION, KUBERNETES_VERSIONS, MANAGEMENT_VERSION,
};
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

/// Operators read about the files on the page, and apply the files.
#[test]
fn the_examples_of_gates_are_the_files() {
    let page = read("docs/gates.md");
    let blocks = page.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = blocks
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    let files = [
        "examples/gate.yaml",
        "examples/gates/flux-helmrelease.yaml",
        "examples/gates/flux-kustomization.yaml",
        "examples/gates/plain-objects.yaml",
        "examples/gates/expressions.yaml",
    ];
    assert_eq!(blocks, files.map(read));
}

#[test]
fn the_readme_names_the_test_command_that_ci_runs() {
    assert!(read("README.md").lines().any(|line| line == "make test"));
}

#[test]
fn the_readme_has_the_versions_that_tests_run() {
    use ClusterApiRelease::{V1_11, V1_12, V1_13};
    let [v1_13, v1_12, v1_11] = [V1_13, V1_12, V1_11].map(ClusterApiRelease::version);
    let [newest, emulated @ ..] = KUBERNETES_VERSIONS;
    let table = [
        (
            "Cluster API",
            format!(
                "{CLUSTER_API_VERSION}; creation, an upgrade and deletion with {v1_13}, {v1_12}, \
                 and {v1_11} with profile `capi-1.11`"
            ),
        ),
        ("Kubernetes, management cluster", MANAGEMENT_VERSION.to_owned()),
        (
            "Kubernetes, workload clusters",
            format!("{newest}; {} (emulated by {newest})", emulated.join(", ")),
        ),
        ("kapp-controller", KAPP_CONTROLLER_VERSION.to_owned()),
    ]
    .map(|(component, versions)| format!("| {component} | {versions} |\n"))
    .concat();
    assert!(
        read("README.md").contains(&table),
        "README.md has not this table:\n{table}"
    );
}

/// The time of the first run, as `make cold-demo` has recorded it.
#[test]
fn the_readme_has_the_recorded_time_of_a_first_run() {
    let record: serde_json::Value =
        serde_json::from_str(&read("docs/performance/cold.json")).expect("a record in JSON");
    let seconds = |field: &str| record[field].as_u64().expect("a number of seconds");
    let (rust, demo, total) = (seconds("rust_s"), seconds("demo_s"), seconds("total_s"));
    let minutes = |seconds: u64| (seconds + 30) / 60;
    let sentence = format!(
        "the first `make demo` takes about {} minutes: {} for Sluice, {} for the components and {demo} seconds for the demo",
        minutes(total),
        minutes(rust),
        minutes(total - rust - demo),
    );
    let readme = read("README.md").replace('\n', " ");
    assert!(readme.contains(&sentence), "README.md does not say: {sentence}");
}
