//! The searches.

use std::{io::Write as _, time::Instant};

use stateright::{Checker as _, Model as _};

use super::{HOLDS, Kind, STORES, Search, sample::Runs};
use crate::{
    objects::{
        PACKAGES,
        PlannedBy::{Class, Extension, Sluice},
    },
    random::number,
    users::{Edit, Paused},
};

/// Default number of states that the runs of a search visit, repeated ones included.
const STATES: usize = 2_000;

/// A search ends after this multiple of its states although no run has completed: some edits let only one of a hundred runs complete.
const MOST: usize = 10;

fn check(name: &str, search: Search) {
    let (began, limit, seed) = (Instant::now(), number("STATES", STATES), search.seed);
    let mut runs = Runs::of(search);
    while runs.states < limit || runs.complete == 0 && runs.states < limit * MOST {
        if let Some(broken) = runs.run() {
            panic!("{name}, seed {seed}: {broken}");
        }
    }
    assert!(runs.complete > 0, "{name}: no run completes");
    say(&format!(
        "{name}: {}, {} s",
        runs.report(),
        began.elapsed().as_secs()
    ));
}

/// Prints past the capture of the test runner: a passing search may have covered few states.
fn say(line: &str) {
    // A closed standard error does not fail the search.
    let _ = writeln!(std::io::stderr(), "search: {line}");
}

#[test]
fn all_orders_of_an_undisturbed_hop() {
    let search = Search {
        times: 0,
        ..Search::new(Kind::Nothing)
    };
    let checker = search.checker().spawn_dfs().join();
    say(&format!(
        "all orders: {} states, {} different, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
    ));
    if let Some(path) = checker.discovery(HOLDS) {
        let broken = checker.model().broken(path.last_state());
        panic!("{broken:?} after {:?}", path.into_actions());
    }
}

#[test]
fn a_store_that_lags() {
    for (store, (server, kinds)) in STORES.iter().enumerate() {
        let search = Search {
            lags: Some(store),
            ..Search::new(Kind::Nothing)
        };
        check(&format!("{server} {kinds:?} lag"), search);
    }
}

#[test]
fn a_process_that_ends() {
    check("a process ends", Search::new(Kind::Crash));
}

#[test]
fn a_request_that_is_refused() {
    check("a request is refused", Search::new(Kind::Refused(500)));
    check("a request meets a conflict", Search::new(Kind::Refused(409)));
}

#[test]
fn a_request_that_is_not_answered() {
    check("a request is not answered", Search::new(Kind::Unanswered));
}

#[test]
fn a_write_that_arrives_late() {
    check("a write arrives late", Search::new(Kind::Frozen));
}

#[test]
fn a_run_that_fails_or_is_interrupted() {
    check("a run fails", Search::new(Kind::Run));
    let chained = Search {
        planned_by: Extension,
        begins_with: &[Edit::Target(2)],
        ..Search::new(Kind::Run)
    };
    check("a run fails in a chain", chained);
}

#[test]
fn two_leaders() {
    check("two leaders", Search::new(Kind::Rival(1)));
    let chained = Search {
        begins_with: &[Edit::Target(2)],
        ..Search::new(Kind::Rival(1))
    };
    check("two leaders in a chain", chained);
}

#[test]
fn an_edit() {
    const EDITS: [&[Edit]; 7] = [
        &[Edit::Content(1, 1, "b")],
        &[Edit::Values(2)],
        &[Edit::Choose(1, 0)],
        &[Edit::Alter("secrets", 0)],
        &[Edit::Alter("packages", 0)],
        &[Edit::Remove("packageinstalls", 0)],
        &[Edit::ReplaceServer],
    ];
    for edits in EDITS {
        check(&format!("{edits:?}"), Search::new(Kind::Edits(edits)));
    }
}

/// Edits that are made in any order, each once.
const OF_ONE_HOP: [&[Edit]; 11] = {
    use Edit::{
        Again, Delete, Label, Move, NoBootstrap, NoLabel, NoMark, NoStatus, OldManifest, OtherRelease, Pause,
        Restart, Resume, SameRelease, Stop, UnsafeVersion, Values, Version,
    };
    [
        &[Version(1), Label(1), OtherRelease, Values(2)],
        &[Version(1), Label(1), UnsafeVersion(0), Label(0)],
        &[
            Version(1),
            Label(1),
            Pause(Paused::Cluster),
            Resume(Paused::Cluster),
            Pause(Paused::Start),
        ],
        &[
            Version(1),
            Label(1),
            Pause(Paused::Bootstrap),
            Resume(Paused::Bootstrap),
        ],
        &[Version(1), Label(1), NoLabel, SameRelease],
        &[Version(1), Label(1), OtherRelease, NoBootstrap],
        &[Version(1), Label(1), OldManifest, NoMark, NoStatus],
        &[Version(1), Label(1), Move, Again],
        &[Version(1), Label(1), Delete, NoBootstrap],
        &[
            Version(1),
            Label(1),
            Stop(1, "packageinstalls", "canceled"),
            Stop(1, "apps", "paused"),
            Restart(1),
        ],
        &[
            Version(1),
            Label(1),
            Stop(0, "packageinstalls", "paused"),
            Values(2),
            Restart(0),
        ],
    ]
};

#[test]
fn edits_in_any_order() {
    for edits in OF_ONE_HOP {
        let search = Search {
            begins_with: &[],
            ..Search::new(Kind::Edits(edits))
        };
        check(&format!("{edits:?}"), search);
    }
}

#[test]
fn edits_while_a_store_lags() {
    const EDITS: &[Edit] = &[Edit::Version(1), Edit::Label(1), Edit::Values(2)];
    for (store, (server, kinds)) in STORES.iter().enumerate() {
        let search = Search {
            begins_with: &[],
            lags: Some(store),
            ..Search::new(Kind::Edits(EDITS))
        };
        check(&format!("{server} {kinds:?} lag, {EDITS:?}"), search);
    }
}

/// The gates before the control plane are open at the start.
#[test]
fn edits_that_close_a_gate() {
    use Edit::{Choose, Content, Delete, Label, OtherRelease, Pause, Resume, Unimportant, Version};
    const EDITS: [&[Edit]; 6] = [
        &[Content(1, 1, "b"), Unimportant],
        &[Choose(1, 0), Unimportant],
        &[OtherRelease, Unimportant],
        &[Version(2), Label(2)],
        &[Pause(Paused::Bootstrap), Resume(Paused::Bootstrap)],
        &[Pause(Paused::Cluster), Delete],
    ];
    for edits in EDITS {
        let search = Search {
            rounds: 3,
            replica_lags: true,
            ..Search::new(Kind::Edits(edits))
        };
        check(&format!("open gates, {edits:?}"), search);
    }
}

#[test]
fn a_deletion_with_an_additional_package() {
    use Edit::{Delete, Label, Version};
    const KINDS: [Kind; 3] = [
        Kind::Edits(&[Version(1), Label(1), Delete]),
        Kind::Crash,
        Kind::Unanswered,
    ];
    for kind in KINDS {
        let begins_with: &[Edit] = if let Kind::Edits(_) = kind { &[] } else { &[Delete] };
        let search = Search {
            packages: &PACKAGES,
            begins_with,
            ..Search::new(kind)
        };
        check(&format!("a deletion, {kind:?}"), search);
    }
}

#[test]
fn edits_of_a_chain_in_any_order() {
    use Edit::{Label, LaterRelease, Move, NoStatus, OldManifest, UnsafeVersion, Values, Version};
    const EDITS: [(super::PlannedBy, &[Edit]); 6] = [
        (Class, &[Version(2), Label(2), Values(2)]),
        (
            Class,
            &[Version(1), Label(1), UnsafeVersion(2), Label(2), UnsafeVersion(1)],
        ),
        (Extension, &[Version(2), Label(2), OldManifest]),
        (Extension, &[Version(2), Label(2), Move]),
        (Extension, &[Version(2), Label(2), NoStatus]),
        (Sluice { shown: true }, &[Version(2), Label(2), LaterRelease]),
    ];
    for (planned_by, edits) in EDITS {
        let search = Search {
            planned_by,
            begins_with: &[],
            ..Search::new(Kind::Edits(edits))
        };
        check(&format!("{planned_by:?} {edits:?}"), search);
    }
}
