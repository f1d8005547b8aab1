//! Documents that must follow the code.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot read its inputs has failed"
)]

mod cited;
mod ways;

use std::collections::BTreeSet;

use sluice_core::hold::{PAGE, with_tables};
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

/// File below `extension/src`, a constant in it, the beginning of its row of the table of walls, and what the row says of it.
#[rustfmt::skip]
const FIGURES: [(&str, &str, &str, &str); 50] = [
    ("run.rs", "time: Duration::from_secs(30)", "a request of a pass to the management", "30 s"),
    ("run.rs", "SILENCE: Duration = Duration::from_secs(75)", "list or watch of a store", "75 s of silence"),
    // kube-runtime adds 5 s.
    ("../core/src/walls/followed_store.rs", "WATCH_TIMEOUT_SECONDS: u32 = 30", "list or watch of a store", "again after 35 s"),
    ("../core/src/walls/age.rs", "LIST_SILENCE: Duration = Duration::from_secs(70)", "list or watch of a store", "with an age 70 s"),
    ("bounded.rs", "BETWEEN_WATCHES: Duration = Duration::from_millis(500)", "list or watch of a store", "twice a second"),
    ("../core/src/walls/followed_kind.rs", "FINDING: Duration = Duration::from_secs(10)", "how a kind is served", "10 s each"),
    ("../core/src/walls/followed_kind.rs", "LISTING: Duration = Duration::from_secs(10)", "how a kind is served", "10 s each"),
    ("../core/src/unsynced.rs", "CURRENT_FOR: Duration = Duration::from_secs(45)", "list or watch of such a kind", "45 s of nothing but"),
    ("../core/src/walls/followed_kind.rs", "UNPROVEN: Duration = Duration::from_secs(75)", "list or watch of such a kind", "75 s without a watch"),
    ("remote/client.rs", "time: Duration::from_secs(10)", "a request of a pass to a workload", "10 s in all"),
    ("remote/client.rs", "answer: 8 * 1024 * 1024", "a request of a pass to a workload", "8 MiB"),
    ("remote/client.rs", "memory: 32 * 1024 * 1024", "a request of a pass to a workload", "32 MiB in memory"),
    ("bounded.rs", "REFUSAL: usize = 64 * 1024", "a request of a pass to a workload", "a refusal 64 KiB"),
    ("../core/src/walls/breaker.rs", "MAX_DELAY: Duration = Duration::from_mins(1)", "a request of a pass to a workload", "1 to 60 s"),
    ("remote/client.rs", "SILENCE: Duration = Duration::from_secs(45)", "list or watch of a workload", "45 s of silence"),
    ("remote/client.rs", "list: 16 * 1024 * 1024", "list or watch of a workload", "16 MiB all pages"),
    ("remote/client.rs", "page: 256 * 1024", "list or watch of a workload", "counts as 256 KiB"),
    ("remote/client.rs", "pace: 2 * 1024 * 1024", "list or watch of a workload", "2 MiB each second"),
    ("remote/connection.rs", "LARGEST_STORE: usize = 16 * 1024 * 1024", "list or watch of a workload", "16 MiB in a store"),
    ("leader.rs", "TRIES: u32 = 3", "a renewal of the lease", "a third of"),
    ("../core/src/step/error.rs", "PASS_TIMEOUT: Duration = Duration::from_mins(2)", "a whole pass", "2 min"),
    ("../core/src/slots.rs", "SLOW: Duration = Duration::from_secs(3)", "a whole pass", "3 s where"),
    ("../hooks/src/body.rs", "MAX_BODY: usize = 20 * 1024 * 1024", "a peer of the hook port", "20 MiB each body"),
    ("../hooks/src/body.rs", "DEADLINE: Duration = Duration::from_secs(2)", "a peer of the hook port", "2 s for its body"),
    ("../core/src/walls/followed_store.rs", "MIN_DELAY: Duration = Duration::from_millis(200)", "list or watch of a store", "0.2 to 2 s"),
    ("../core/src/walls/followed_store.rs", "MAX_DELAY: Duration = Duration::from_secs(2)", "list or watch of a store", "0.2 to 2 s"),
    ("../core/src/walls/age.rs", "WATCH_SECONDS: u32 = 10", "list or watch of a store", "with an age after 15 s"),
    ("../core/src/walls/followed_kind.rs", "MIN_DELAY: Duration = Duration::from_secs(1)", "how a kind is served", "1 to 60 s"),
    ("../core/src/walls/followed_kind.rs", "MAX_DELAY: Duration = Duration::from_mins(1)", "how a kind is served", "1 to 60 s"),
    ("../core/src/slots.rs", "MIN_DELAY: Duration = Duration::from_millis(500)", "a request of a pass to the management", "0.5 to 60 s"),
    ("../core/src/slots.rs", "MAX_DELAY: Duration = Duration::from_mins(1)", "a request of a pass to the management", "0.5 to 60 s"),
    ("../core/src/walls/again.rs", "MIN_DELAY: Duration = Duration::from_secs(1)", "a request of a pass to the management", "1 to 60 s"),
    ("../core/src/walls/again.rs", "MAX_DELAY: Duration = Duration::from_mins(1)", "a request of a pass to the management", "1 to 60 s"),
    ("remote/client.rs", "connect_timeout = Some(Duration::from_secs(5))", "a request of a pass to a workload", "5 s to connect"),
    ("../core/src/walls/breaker.rs", "MIN_DELAY: Duration = Duration::from_secs(1)", "a request of a pass to a workload", "1 to 60 s"),
    ("../core/src/walls/followed_store.rs", "MIN_DELAY: Duration = Duration::from_millis(200)", "list or watch of a workload", "0.2 to 60 s"),
    ("../core/src/walls/followed_store.rs", "MAX_WORKLOAD_DELAY: Duration = Duration::from_mins(1)", "list or watch of a workload", "0.2 to 60 s"),
    ("../core/src/walls/followed_store.rs", "MIN_EMPTY: Duration = Duration::from_secs(5)", "list or watch of a workload", "after 5 to 60 s"),
    ("../core/src/walls/followed_store.rs", "MAX_EMPTY: Duration = Duration::from_mins(1)", "list or watch of a workload", "after 5 to 60 s"),
    ("serve/config.rs", "handshake: Duration::from_secs(5)", "a peer of the hook port", "5 s for the handshake"),
    ("serve/config.rs", "head: Duration::from_secs(5)", "a peer of the hook port", "5 s for a request's head"),
    ("serve/config.rs", "idle: Duration::from_mins(2)", "a peer of the hook port", "2 min idle"),
    ("serve/config.rs", "connections: 1024", "a peer of the hook port", "of 1024 connections"),
    ("serve/config.rs", "wide_connections: 32", "a peer of the hook port", "of 32 HTTP/2 connections"),
    ("serve/connection.rs", "connection: 1024 * 1024", "a peer of the hook port", "1 MiB of 32"),
    ("serve/connection.rs", "connection: 65_535", "a peer of the hook port", "64 KiB of each other"),
    ("../hooks/src/body.rs", "SMALL: usize = 128 * 1024", "a peer of the hook port", "up to 128 KiB"),
    ("../hooks/src/body.rs", "SMALL_KIB: usize = 8 * 1024", "a peer of the hook port", "have 8 and"),
    ("../hooks/src/body.rs", "SMALL_KIB_OF_PEER: usize = 2 * 1024", "a peer of the hook port", "of one address 2,"),
    ("../hooks/src/body.rs", "LARGE_KIB: usize = 24 * 1024", "a peer of the hook port", "larger ones 24 and 20"),
];

/// The table of walls says what the constants say.
#[test]
fn the_figures_of_walls_are_those_of_the_code() {
    let page = read("docs/architecture.md");
    let walls = page.split("## Walls").nth(1).expect("the table of walls");
    for (file, constant, begins, says) in FIGURES {
        let source = read(&format!("extension/src/{file}"));
        assert!(
            source.contains(constant),
            "{file}: {constant} has changed; change its row, and this table"
        );
        let row = walls
            .lines()
            .find(|line| line.starts_with(&format!("| {begins}")));
        let row = row.unwrap_or_else(|| panic!("no row begins with {begins:?}"));
        assert!(row.contains(says), "{says:?} is not in: {row}");
    }
}
