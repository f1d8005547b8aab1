//! Whose turn it is: scenarios that CI does not run each time take turns, those that ran longest ago first.
//!
//! A landing is a commit that CI ran for. The oldest tenth is run whatever it takes, so every scenario runs at least once in ten landings;
//! a budget says whether another one is begun, and nothing is ended or failed for time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Every scenario runs at least once in so many landings.
pub(super) const LANDINGS: usize = 10;

/// Number of landings that the ledger keeps. What ran before them counts as never run.
const REMEMBERED: usize = 100;

/// What earlier runs of CI have left.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// Commits, oldest first.
    landings: Vec<String>,
    /// By scenario: its last run that passed.
    passed: BTreeMap<String, Passed>,
}

/// A run that passed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Passed {
    commit: String,
    seconds: f64,
}

/// A scenario that is next.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Turn {
    pub(super) name: String,
    /// How many landings ago it passed; none if that is not known.
    pub(super) age: Option<usize>,
    /// How long it took then.
    took: Duration,
    /// Whether it is run whatever the budget.
    pub(super) due: bool,
}

impl Ledger {
    /// CI runs for this commit.
    pub(super) fn lands(&mut self, commit: &str) {
        if !self.landings.iter().any(|known| known == commit) {
            self.landings.push(commit.to_owned());
        }
        self.landings
            .drain(..self.landings.len().saturating_sub(REMEMBERED));
        let landings = &self.landings;
        self.passed.retain(|_, passed| landings.contains(&passed.commit));
    }

    /// A scenario has passed at the last landing.
    pub(super) fn passes(&mut self, name: &str, took: Duration) {
        let Some(commit) = self.landings.last().cloned() else {
            return;
        };
        let seconds = took.as_secs_f64();
        self.passed.insert(name.to_owned(), Passed { commit, seconds });
    }

    /// How long a scenario took when it passed last.
    pub(super) fn took(&self, name: &str) -> Option<Duration> {
        let passed = self.passed.get(name)?;
        Duration::try_from_secs_f64(passed.seconds).ok()
    }

    /// How many landings ago a scenario passed: 0 at the last one.
    fn age(&self, name: &str) -> Option<usize> {
        let passed = self.passed.get(name)?;
        self.landings
            .iter()
            .rev()
            .position(|commit| *commit == passed.commit)
    }

    /// All of `names`, those that passed longest ago first. A hash of commit and name decides between equals, and so everything where
    /// there is no ledger.
    pub(super) fn turns<'a>(&self, names: impl IntoIterator<Item = &'a str>, commit: &str) -> Vec<Turn> {
        let turn = |name: &str| Turn {
            name: name.to_owned(),
            age: self.age(name),
            took: self.took(name).unwrap_or_default(),
            due: false,
        };
        let mut turns: Vec<Turn> = names.into_iter().map(turn).collect();
        turns.sort_by_cached_key(|turn| {
            let hash = Sha256::digest(format!("{commit} {}", turn.name));
            (Reverse(turn.age.unwrap_or(usize::MAX)), hash.to_vec())
        });
        let due = turns.len().div_ceil(LANDINGS);
        turns.iter_mut().take(due).for_each(|turn| turn.due = true);
        turns
    }

    /// Those of `names` that have not passed within [`LANDINGS`], this one included. A ledger that is younger says nothing of them.
    pub(super) fn overdue<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let is_overdue = |name: &&str| self.age(name).is_none_or(|age| age >= LANDINGS);
        let is_old_enough = self.landings.len() >= LANDINGS;
        names
            .into_iter()
            .filter(|name| is_old_enough && is_overdue(name))
            .collect()
    }
}

impl Turn {
    /// One that never passed.
    #[cfg(test)]
    pub(super) fn of(name: &str, due: bool) -> Self {
        Self {
            name: name.to_owned(),
            age: None,
            took: Duration::ZERO,
            due,
        }
    }

    /// Whether it may be begun after this time of a budget: what is due always, another one if it is likely to end in time.
    pub(super) fn may_begin(&self, elapsed: Duration, budget: Duration) -> bool {
        self.due || elapsed + self.took < budget
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const BUDGET: Duration = Duration::from_mins(4);

    fn ledger(landings: &[&str], passed: &[(&str, &str, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for landing in landings {
            ledger.lands(landing);
            for (name, _, seconds) in passed.iter().filter(|(_, commit, _)| commit == landing) {
                ledger.passes(name, Duration::from_secs(*seconds));
            }
        }
        ledger
    }

    fn names(turns: &[Turn]) -> Vec<&str> {
        turns.iter().map(|turn| turn.name.as_str()).collect()
    }

    #[test]
    fn the_oldest_success_is_next_after_scenarios_without_one() {
        let ledger = ledger(
            &["1", "2", "3"],
            &[("new", "3", 1), ("old", "1", 2), ("middle", "2", 3)],
        );
        let turns = ledger.turns(["new", "never", "middle", "old"], "3");
        assert_eq!(names(&turns), ["never", "old", "middle", "new"]);
        let ages: Vec<_> = turns.iter().map(|turn| turn.age).collect();
        assert_eq!(ages, [None, Some(2), Some(1), Some(0)]);
    }

    #[test]
    fn a_hash_decides_where_there_is_no_ledger() {
        let all: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
        let order = |commit: &str| {
            let turns = Ledger::default().turns(all.iter().map(String::as_str), commit);
            turns.into_iter().map(|turn| turn.name).collect::<Vec<_>>()
        };
        assert_eq!(order("a"), order("a"));
        assert_ne!(order("a"), order("b"));
        assert_ne!(order("a"), all);
    }

    #[test]
    fn a_tenth_is_due() {
        for (count, due) in [(0, 0), (1, 1), (10, 1), (11, 2), (40, 4)] {
            let all: Vec<String> = (0..count).map(|number| format!("s{number}")).collect();
            let turns = Ledger::default().turns(all.iter().map(String::as_str), "a");
            assert_eq!(turns.iter().filter(|turn| turn.due).count(), due, "{count}");
            assert!(turns.iter().take(due).all(|turn| turn.due));
        }
    }

    #[test]
    fn a_budget_limits_started_scenarios() {
        let turn = |due, took| Turn {
            name: "s".to_owned(),
            age: None,
            took: Duration::from_secs(took),
            due,
        };
        for (due, took, elapsed, begins) in [
            (false, 0, 0, true),
            (false, 0, 239, true),
            (false, 0, 240, false),
            (false, 100, 100, true),
            (false, 100, 150, false),
            (false, 300, 0, false),
            (true, 300, 0, true),
            (true, 300, 1000, true),
        ] {
            let elapsed = Duration::from_secs(elapsed);
            assert_eq!(turn(due, took).may_begin(elapsed, BUDGET), begins);
        }
    }

    #[test]
    fn a_scenario_without_success_in_ten_landings_is_overdue() {
        let commits: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        let landings: Vec<&str> = commits.iter().map(String::as_str).collect();
        let ledger = ledger(&landings, &[("just", "2", 1), ("too-long", "1", 1)]);
        let all = ["just", "too-long", "never"];
        assert_eq!(ledger.overdue(all), ["too-long", "never"]);
        let young = self::ledger(&landings[..9], &[]);
        assert_eq!(young.overdue(all), Vec::<&str>::new());
    }

    #[test]
    fn a_commit_that_ci_runs_for_again_is_one_landing() {
        let mut ledger = ledger(&["1", "2"], &[("s", "1", 1)]);
        ledger.lands("2");
        assert_eq!(ledger.age("s"), Some(1));
    }

    #[test]
    fn a_ledger_does_not_grow_for_ever() {
        let mut ledger = ledger(&["0"], &[("s", "0", 1)]);
        for number in 1..=REMEMBERED {
            assert!(ledger.age("s").is_some());
            ledger.lands(&number.to_string());
        }
        assert_eq!((ledger.landings.len(), ledger.age("s")), (REMEMBERED, None));
        assert_eq!(ledger.passed.len(), 0);
    }

    /// One landing after the other, with whatever number of scenarios, times and budget.
    #[test]
    fn every_scenario_runs_at_least_once_in_ten_landings() {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let count = rng.usize(1..=60);
            let all: Vec<String> = (0..count).map(|number| format!("s{number}")).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let budget = Duration::from_secs(rng.u64(0..600));
            let mut ledger = Ledger::default();
            let mut last_run: BTreeMap<&str, usize> = BTreeMap::new();
            for landing in 1..=50_usize {
                let commit = format!("{seed}-{landing}");
                ledger.lands(&commit);
                let mut elapsed = Duration::ZERO;
                for turn in ledger.turns(all.iter().copied(), &commit) {
                    if !turn.may_begin(elapsed, budget) {
                        continue;
                    }
                    let took = Duration::from_secs(rng.u64(1..500));
                    elapsed += took / 3;
                    ledger.passes(&turn.name, took);
                    let name = all.iter().find(|name| **name == turn.name).unwrap();
                    last_run.insert(name, landing);
                }
                if landing >= LANDINGS {
                    for name in &all {
                        let last = last_run.get(name).copied().unwrap_or_default();
                        assert!(
                            landing - last < LANDINGS,
                            "{name} ran last at {last} of {landing}, seed {seed}"
                        );
                    }
                    assert_eq!(ledger.overdue(all.iter().copied()), Vec::<&str>::new());
                }
            }
        }
    }
}
