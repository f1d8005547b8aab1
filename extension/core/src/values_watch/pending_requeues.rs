//! Delayed requeues after edits. The delay merges simultaneous edits into one reconcile and excludes writes of this process. It grows for
//! endless edits.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::versions::Edit;
use crate::{cluster::ClusterRef, limits::TokenBucket};

/// Delay of a requeue after an edit. By then the writes of this process are recorded.
const TOGETHER: Duration = Duration::from_millis(100);

/// Number of Clusters in one batch. Each reads its values, and upgrades run between two batches.
const BATCH: usize = 10;

/// Time between two batches.
const BETWEEN: Duration = Duration::from_millis(100);

/// Shortest time between two requeues of one Cluster.
const GAP: Duration = Duration::from_millis(500);

/// Cost of a requeue: the interval between requeues for endless edits. A hot Cluster reads its values at this interval anyway.
const REST: Duration = Duration::from_secs(10);

/// Requeues that a series of edits by a user gets without this interval, and one more for the first edit.
const OWED: Duration = Duration::from_secs(100);

/// Time that a standby keeps an edit. A leader change takes no longer.
const REMEMBERED: Duration = Duration::from_mins(2);

/// Time that writes of this process are kept. If the watch delivers one later, it causes an unnecessary reconcile.
const OWN: Duration = Duration::from_mins(1);

/// Number of edits per Cluster that can be withdrawn.
const WITHDRAWN: usize = 16;

/// Clusters that wait for their requeue.
#[derive(Debug, Default)]
pub(super) struct PendingRequeues {
    leads: bool,
    waiting: HashMap<ClusterRef, Waiting>,
    rests: HashMap<ClusterRef, Rest>,
    /// Hashes of the versions that this process wrote, with the time.
    own: HashMap<u64, Instant>,
    batches: Option<TokenBucket>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    due: Instant,
    /// Edits that may be writes of this process.
    edits: Vec<u64>,
    /// Whether another client made at least one edit.
    is_certain: bool,
}

#[derive(Debug)]
struct Rest {
    /// Earliest time of the next requeue.
    until: Instant,
    rate: TokenBucket,
}

impl PendingRequeues {
    /// Starts requeues.
    pub(super) fn lead(&mut self) {
        self.leads = true;
    }

    /// Records an edit.
    pub(super) fn edited(&mut self, edit: Edit, now: Instant) {
        if edit
            .version
            .is_some_and(|version| self.own.contains_key(&version))
        {
            return;
        }
        let rested = self.rests.get(&edit.cluster).map(|rest| rest.until);
        let waiting = self.waiting.entry(edit.cluster).or_insert_with(|| Waiting {
            since: now,
            due: rested.max(Some(now + TOGETHER)).unwrap_or(now),
            edits: Vec::new(),
            is_certain: false,
        });
        match edit.version {
            Some(version) if waiting.edits.len() < WITHDRAWN => waiting.edits.push(version),
            _ => waiting.is_certain = true,
        }
        if !self.leads {
            waiting.since = now;
        }
    }

    /// Withdraws the edit to `version`, which this process made, before or after the watch delivers it.
    pub(super) fn withdraw(&mut self, version: u64, now: Instant) {
        self.own.retain(|_, at| now.duration_since(*at) < OWN);
        self.own.insert(version, now);
        self.waiting.retain(|_, waiting| {
            waiting.edits.retain(|edit| *edit != version);
            waiting.is_certain || !waiting.edits.is_empty()
        });
    }

    /// Returns the Clusters to requeue now, longest wait first.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ClusterRef> {
        if !self.leads {
            self.waiting
                .retain(|_, waiting| now.duration_since(waiting.since) < REMEMBERED);
            return Vec::new();
        }
        let batches = self
            .batches
            .get_or_insert_with(|| TokenBucket::full(BETWEEN, now));
        if batches.available_at(BETWEEN) > now {
            return Vec::new();
        }
        let due = self.waiting.iter().filter(|(_, waiting)| waiting.due <= now);
        let mut due: Vec<_> = due
            .map(|(cluster, waiting)| (waiting.due, cluster.clone()))
            .collect();
        due.sort();
        due.truncate(BATCH);
        if !due.is_empty() {
            batches.take(BETWEEN, now);
        }
        self.rests.retain(|_, rest| now < rest.rate.full_at());
        for (_, cluster) in &due {
            self.waiting.remove(cluster);
            let rest = self.rests.entry(cluster.clone()).or_insert_with(|| Rest {
                until: now,
                rate: TokenBucket::full(OWED + REST, now),
            });
            rest.rate.take(REST, now);
            rest.until = rest.rate.available_at(REST).max(now + GAP);
        }
        due.into_iter().map(|(_, cluster)| cluster).collect()
    }

    /// Returns the time of the next due requeue.
    pub(super) fn next_at(&self) -> Option<Instant> {
        if !self.leads {
            let since = self.waiting.values().map(|waiting| waiting.since).min();
            return since.map(|since| since + REMEMBERED);
        }
        let due = self.waiting.values().map(|waiting| waiting.due).min()?;
        Some(due).max(self.batches.map(|batches| batches.available_at(BETWEEN)))
    }
}
