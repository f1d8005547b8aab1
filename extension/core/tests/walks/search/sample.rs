//! Runs of a search from its first state. Each run chooses at random, and visits no state twice.

use std::collections::HashSet;

use stateright::Model as _;

use super::{Action, Search, State, is_over};
use crate::servers::digest;

/// Maximum length of a run: some edits lead to states from which no upgrade completes without another edit.
const LONGEST: usize = 400;

/// Runs of one search.
pub(super) struct Runs {
    search: Search,
    first: State,
    /// Number of runs.
    number: u64,
    /// Number of runs that completed the upgrade or the deletion.
    pub(super) complete: u64,
    /// Number of visited states, repeated ones included.
    pub(super) states: usize,
    different: HashSet<u64>,
    longest: usize,
}

impl Runs {
    pub(super) fn of(search: Search) -> Self {
        Self {
            first: search.init_states().remove(0),
            search,
            number: 0,
            complete: 0,
            states: 0,
            different: HashSet::new(),
            longest: 0,
        }
    }

    /// Runs until no action leads to another state. Returns the first broken rule with the actions before it, if any.
    pub(super) fn run(&mut self) -> Option<String> {
        self.number += 1;
        self.states += 1;
        let (mut state, mut here) = (self.first.clone(), digest(&self.first));
        let (mut met, mut taken) = (HashSet::from([here]), Vec::new());
        while taken.len() < LONGEST {
            let mut actions = Vec::new();
            self.search.actions(&state, &mut actions);
            actions.sort_by_cached_key(|action| self.key(here, *action));
            let next = actions.into_iter().find_map(|action| {
                let next = self.search.next_state(&state, action)?;
                let there = digest(&next);
                met.insert(there).then_some((action, next, there))
            });
            let Some((action, next, there)) = next else {
                break;
            };
            (state, here) = (next, there);
            taken.push(action);
            self.states += 1;
            self.different.insert(here);
            if let Some(broken) = self.search.broken(&state) {
                return Some(format!("{broken} after {taken:?}"));
            }
        }
        self.longest = self.longest.max(taken.len());
        self.complete += u64::from(is_over(&state));
        None
    }

    /// Returns the sort key of an action in a state. Each run gives every action a rate of its own, so edits and faults happen at all depths.
    fn key(&self, here: u64, action: Action) -> u64 {
        let (seed, run) = (self.search.seed, self.number);
        let slowness = digest(&(seed, run, action)) % 8;
        (digest(&(seed, run, here, action)) >> 8) << slowness
    }

    pub(super) fn report(&self) -> String {
        format!(
            "{} states, {} different, {} runs of up to {} steps, {} complete",
            self.states,
            self.different.len(),
            self.number,
            self.longest,
            self.complete,
        )
    }
}
