//! When a Cluster is woken for edits: a moment later, so that one pass is made for all that comes together and none for what this process
//! has written itself, and ever more rarely for what is edited without end.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::versions::Edit;
use crate::cluster::ClusterRef;

/// A Cluster is woken so long after an edit. Until then what this process wrote itself is known.
const TOGETHER: Duration = Duration::from_millis(100);

/// So many Clusters are woken at once: each reads its values, and those that are upgraded have their turns between them.
const BATCH: usize = 10;

/// The time between two batches.
const BETWEEN: Duration = Duration::from_millis(100);

/// Between two wakes of one Cluster at least.
const GAP: Duration = Duration::from_millis(500);

/// The rest that a Cluster owes each time that it is woken: so often the values of a hot one are read anyway.
const REST: Duration = Duration::from_secs(10);

/// So much rest may be owed. A user who edits one thing after the other waits for none of it.
const OWED: Duration = Duration::from_secs(100);

/// For so long a replica that does not lead remembers an edit: no longer does it take to lead in the place of another one.
const REMEMBERED: Duration = Duration::from_mins(2);

/// For so long it is known what this process has written. The watch shows it within this time, or a pass is made for nothing.
const OWN: Duration = Duration::from_mins(1);

/// So many edits of one Cluster can be withdrawn.
const WITHDRAWN: usize = 16;

/// Clusters that wait to be woken.
#[derive(Debug, Default)]
pub(super) struct PendingRequeues {
    leads: bool,
    waiting: HashMap<ClusterRef, Waiting>,
    rests: HashMap<ClusterRef, Rest>,
    /// What this process has written, and when.
    own: HashMap<u64, Instant>,
    next_batch: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    due: Instant,
    /// Edits that may turn out to be of this process.
    edits: Vec<u64>,
    /// Whether one is of another one in any case.
    is_certain: bool,
}

#[derive(Debug)]
struct Rest {
    /// The Cluster is not woken before.
    until: Instant,
    /// When all rest is made up for that it owes.
    owes_until: Instant,
}

impl PendingRequeues {
    /// Clusters are woken from now on.
    pub(super) fn lead(&mut self) {
        self.leads = true;
    }

    /// Something of a Cluster was edited.
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

    /// This process has made the object this version itself, whether or not the watch has shown it.
    pub(super) fn withdraw(&mut self, version: u64, now: Instant) {
        self.own.retain(|_, at| now.duration_since(*at) < OWN);
        self.own.insert(version, now);
        self.waiting.retain(|_, waiting| {
            waiting.edits.retain(|edit| *edit != version);
            waiting.is_certain || !waiting.edits.is_empty()
        });
    }

    /// Clusters that are woken now, those first that have waited longest.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ClusterRef> {
        if !self.leads {
            self.waiting
                .retain(|_, waiting| now.duration_since(waiting.since) < REMEMBERED);
            return Vec::new();
        }
        if self.next_batch.is_some_and(|at| now < at) {
            return Vec::new();
        }
        let due = self.waiting.iter().filter(|(_, waiting)| waiting.due <= now);
        let mut due: Vec<_> = due
            .map(|(cluster, waiting)| (waiting.due, cluster.clone()))
            .collect();
        due.sort();
        due.truncate(BATCH);
        self.rests.retain(|_, rest| now < rest.owes_until);
        self.next_batch = (!due.is_empty()).then(|| now + BETWEEN);
        for (_, cluster) in &due {
            self.waiting.remove(cluster);
            let before = self.rests.get(cluster).map(|rest| rest.owes_until);
            let owes_until = before.unwrap_or(now) + REST;
            let until = owes_until
                .checked_sub(OWED)
                .map_or(now + GAP, |until| until.max(now + GAP));
            self.rests.insert(cluster.clone(), Rest { until, owes_until });
        }
        due.into_iter().map(|(_, cluster)| cluster).collect()
    }

    /// When the next one is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        if !self.leads {
            let since = self.waiting.values().map(|waiting| waiting.since).min();
            return since.map(|since| since + REMEMBERED);
        }
        let due = self.waiting.values().map(|waiting| waiting.due).min()?;
        Some(due).max(self.next_batch)
    }
}
