//! The runs of the search.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use stateright::{Checker as _, Model as _};

use super::{Hop, Kind, STORES};
use crate::{random::number, users::Edit};

fn check(name: &str, kind: Kind, times: u8, lags: Option<usize>) {
    let (began, limit) = (Instant::now(), Duration::from_secs(number("SEARCH", 120)));
    let search = Hop::new(kind, times, lags).checker().threads(2);
    let checker = search.timeout(limit).spawn_dfs().join();
    let took = began.elapsed();
    say(&format!(
        "{name}: {} states, {} different, {} s, {}",
        checker.state_count(),
        checker.unique_state_count(),
        took.as_secs(),
        if took < limit {
            "all".to_owned()
        } else {
            format!("not all: ended by its limit of {} s", limit.as_secs())
        }
    ));
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let broken = path.last_state().clone();
        panic!("{name}: {property}: {broken:?} after {:?}", path.into_actions());
    }
}

/// Prints past the capture of the test runner: a passing search may have covered few states.
fn say(line: &str) {
    // A closed standard error does not fail the search.
    let _ = writeln!(std::io::stderr(), "search: {line}");
}

#[test]
fn undisturbed() {
    check("undisturbed", Kind::Nothing, 0, None);
}

#[test]
#[ignore = "takes minutes: make model"]
fn a_store_that_lags() {
    for (store, (server, kinds)) in STORES.iter().enumerate() {
        check(&format!("{server} {kinds:?} lag"), Kind::Nothing, 0, Some(store));
    }
}

#[test]
#[ignore = "takes minutes: make model"]
fn a_process_that_ends() {
    check("a process ends", Kind::Crash, 1, None);
}

#[test]
#[ignore = "takes minutes: make model"]
fn a_request_that_is_refused() {
    check("a request is refused", Kind::Refused(500), 1, None);
    check("a request meets a conflict", Kind::Refused(409), 1, None);
}

#[test]
#[ignore = "takes minutes: make model"]
fn a_request_that_is_not_answered() {
    check("a request is not answered", Kind::Unanswered, 1, None);
}

#[test]
#[ignore = "takes minutes: make model"]
fn a_write_that_arrives_late() {
    check("a write arrives late", Kind::Frozen, 1, None);
}

#[test]
#[ignore = "takes minutes: make model"]
fn a_run_that_fails_or_is_interrupted() {
    check("a run fails", Kind::Run, 1, None);
}

#[test]
#[ignore = "takes minutes: make model"]
fn two_leaders() {
    check("two leaders", Kind::Rival(1), 1, None);
}

#[test]
#[ignore = "takes minutes: make model"]
fn an_edit() {
    let edits = [
        Edit::Content(1, 1, "b"),
        Edit::Values(2),
        Edit::Choose(1, 0),
        Edit::Alter("secrets", 0),
        Edit::Alter("packages", 0),
        Edit::Remove("packageinstalls", 0),
        Edit::ReplaceServer,
    ];
    for edit in edits {
        check(&format!("{edit:?}"), Kind::Edit(edit), 1, None);
    }
}
