//! Counts outcomes of calls.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;

use super::outcome::{Answered, Kind, Unanswered};
use super::report::Failed;

/// Reasons that are told apart, and the name of all others.
const REASONS: usize = 32;
const OTHERS: &str = "others";

/// The shortest and the longest latency that are told apart.
const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST: Duration = Duration::from_hours(1);

/// Counts of one thread, or of all together.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) released: u64,
    /// Answers that hold, by reason: the first word of their message.
    pub(super) held: BTreeMap<String, u64>,
    pub(super) errors: BTreeMap<Kind, Failed>,
    /// Connections that were opened, handshakes of discovery left out.
    pub(super) opened: u64,
    /// Nanoseconds from when each call was due until it was answered, or until it was given up.
    pub(super) latencies: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Result<Self> {
        let bounds = [SHORTEST, LONGEST].map(nanoseconds);
        Ok(Self {
            released: 0,
            held: BTreeMap::new(),
            errors: BTreeMap::new(),
            opened: 0,
            latencies: Histogram::new_with_bounds(bounds[0], bounds[1], 3).context("make a histogram")?,
        })
    }

    /// So many calls that ended alike, and how long each took since it was due.
    pub(super) fn count(&mut self, outcome: Result<Answered<'_>, Unanswered>, took: Duration, calls: u64) {
        match outcome {
            Ok(Answered::Released) => self.released += calls,
            Ok(Answered::Held(message)) => self.hold(&message, calls),
            Err(why) => self.fail(why, calls),
        }
        self.latencies.saturating_record_n(nanoseconds(took), calls);
    }

    fn hold(&mut self, message: &str, calls: u64) {
        let reason = message.split([':', ' ']).next().unwrap_or_default();
        // An extension may give each answer another text.
        let is_many = self.held.len() >= REASONS;
        if let Some(count) = self.held.get_mut(reason) {
            *count += calls;
        } else {
            let reason = if is_many { OTHERS } else { reason };
            *self.held.entry(reason.to_owned()).or_default() += calls;
        }
    }

    fn fail(&mut self, Unanswered { kind, what }: Unanswered, calls: u64) {
        let errors = self.errors.entry(kind).or_insert(Failed {
            count: 0,
            first: what,
        });
        errors.count += calls;
    }

    /// Calls without an answer, by the name of their kind.
    pub(super) fn failed(&self) -> impl Iterator<Item = (String, Failed)> {
        let errors = self.errors.iter();
        errors.map(|(kind, failed)| (kind.as_str().to_owned(), failed.clone()))
    }

    pub(super) fn answered(&self) -> u64 {
        self.released + self.holds()
    }

    pub(super) fn holds(&self) -> u64 {
        self.held.values().sum()
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        self.released += other.released;
        for (reason, calls) in &other.held {
            self.hold(reason, *calls);
        }
        self.opened += other.opened;
        for (kind, errors) in &other.errors {
            let own = self.errors.entry(*kind);
            let own = own.or_insert_with(|| Failed {
                count: 0,
                first: errors.first.clone(),
            });
            own.count += errors.count;
        }
        self.latencies.add(&other.latencies).context("add histograms")
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
