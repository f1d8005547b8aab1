//! Gates that are not in force: since when, and which of them are reported.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use super::{GateInForce, NotInForce, NotInForceReason};
use crate::cluster::ClusterRef;

/// Time for which a gate is not in force before that is reported.
const LASTS: Duration = Duration::from_mins(1);

/// Reports of one leader.
#[derive(Debug, Default)]
pub struct GateReports {
    /// Clusters whose gates are in force.
    in_force: HashSet<ClusterRef>,
    /// The others.
    seen: HashMap<ClusterRef, Sighting>,
    due: VecDeque<ClusterRef>,
    /// Clusters with a version that was written without an open gate.
    ungated: HashSet<ClusterRef>,
}

#[derive(Debug)]
struct Sighting {
    not: NotInForce,
    /// Time since which the gate is not in force.
    since: Instant,
    /// Time since which it has this reason.
    of_reason_since: Instant,
    reported: Option<NotInForce>,
}

impl Sighting {
    /// Returns the next sighting.
    fn then(before: Option<Self>, not: NotInForce, now: Instant) -> Self {
        let Some(before) = before else {
            return Self {
                not,
                since: now,
                of_reason_since: now,
                reported: None,
            };
        };
        let is_same = before.not.reason == not.reason;
        Self {
            of_reason_since: if is_same { before.of_reason_since } else { now },
            not,
            ..before
        }
    }

    /// Whether a report is due: the first one once the gate is not in force for a minute, another reason once it has lasted as long.
    fn is_due(&self, now: Instant) -> bool {
        let since = match &self.reported {
            None => self.since,
            Some(reported) if *reported == self.not => return false,
            Some(reported) if reported.reason == self.not.reason => return true,
            Some(_) => self.of_reason_since,
        };
        now.saturating_duration_since(since) >= LASTS
    }
}

impl GateReports {
    /// Observes the gates of all Clusters at `now`.
    pub fn saw(&mut self, found: impl IntoIterator<Item = (ClusterRef, Option<NotInForce>)>, now: Instant) {
        let mut before = std::mem::take(&mut self.seen);
        let mut ungated = std::mem::take(&mut self.ungated);
        self.in_force.clear();
        self.due.clear();
        for (cluster, not) in found {
            if let Some(cluster) = ungated.take(&cluster) {
                self.ungated.insert(cluster);
            }
            let Some(not) = not else {
                self.in_force.insert(cluster);
                continue;
            };
            let sighting = Sighting::then(before.remove(&cluster), not, now);
            if sighting.is_due(now) {
                self.due.push_back(cluster.clone());
            }
            self.seen.insert(cluster, sighting);
        }
    }

    /// Returns the next Cluster to report with its reason, which counts as reported from now on.
    pub fn next_due(&mut self) -> Option<(ClusterRef, NotInForce)> {
        let cluster = self.due.pop_front()?;
        let sighting = self.seen.get_mut(&cluster)?;
        sighting.reported = Some(sighting.not.clone());
        Some((cluster, sighting.not.clone()))
    }

    /// Notes that the report about a Cluster failed. It is due again after the next observation.
    pub fn not_reported(&mut self, cluster: &ClusterRef) {
        if let Some(sighting) = self.seen.get_mut(cluster) {
            sighting.reported = None;
        }
    }

    /// Whether a report is due.
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the last report about a Cluster; `None` before the first one.
    #[must_use]
    pub fn report(&self, cluster: &ClusterRef) -> Option<GateInForce> {
        match self.seen.get(cluster) {
            None => self.in_force.contains(cluster).then_some(GateInForce::Yes),
            Some(sighting) => sighting.reported.clone().map(GateInForce::No),
        }
    }

    /// Notes whether a Cluster has a version that was written without an open gate.
    pub fn ungated(&mut self, cluster: &ClusterRef, is_ungated: bool) {
        if !is_ungated {
            self.ungated.remove(cluster);
        } else if !self.ungated.contains(cluster) {
            self.ungated.insert(cluster.clone());
        }
    }

    /// Returns the number of reported Clusters by reason.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<NotInForceReason, usize> {
        let mut counts: BTreeMap<_, _> = NotInForceReason::ALL.iter().map(|reason| (*reason, 0)).collect();
        let reported = self
            .seen
            .values()
            .filter_map(|sighting| sighting.reported.as_ref());
        for not in reported {
            *counts.entry(not.reason).or_default() += 1;
        }
        counts.insert(NotInForceReason::VersionUngated, self.ungated.len());
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> ClusterRef {
        ClusterRef::new("team-a", "one")
    }

    fn unselected() -> NotInForce {
        NotInForce::new(NotInForceReason::NamespaceNotSelected, "unselected")
    }

    #[test]
    fn nothing_is_known_before_the_first_read() {
        let mut reports = GateReports::default();
        assert_eq!(reports.report(&one()), None);
        reports.saw([(one(), None)], Instant::now());
        assert_eq!(reports.report(&one()), Some(GateInForce::Yes));
        assert!(!reports.has_due());
    }

    #[test]
    fn a_gate_is_reported_after_a_minute_and_once() {
        let (mut reports, began) = (GateReports::default(), Instant::now());
        reports.saw([(one(), Some(unselected()))], began);
        reports.saw([(one(), Some(unselected()))], began + LASTS / 2);
        assert_eq!((reports.next_due(), reports.report(&one())), (None, None));
        reports.saw([(one(), Some(unselected()))], began + LASTS);
        assert_eq!(reports.counts()[&NotInForceReason::NamespaceNotSelected], 0);
        let due = reports.next_due();
        assert_eq!(due.clone().map(|(cluster, _)| cluster), Some(one()));
        assert_eq!(reports.report(&one()), due.map(|(_, not)| GateInForce::No(not)));
        assert_eq!(reports.counts()[&NotInForceReason::NamespaceNotSelected], 1);
        reports.saw([(one(), Some(unselected()))], began + 2 * LASTS);
        assert!(!reports.has_due());
        reports.not_reported(&one());
        reports.saw([(one(), Some(unselected()))], began + 2 * LASTS);
        assert!(reports.has_due());
        reports.saw([(one(), None)], began + 3 * LASTS);
        assert_eq!(reports.report(&one()), Some(GateInForce::Yes));
    }

    #[test]
    fn a_gate_that_is_in_force_again_within_a_minute_is_not_reported() {
        let (mut reports, began) = (GateReports::default(), Instant::now());
        reports.saw([(one(), Some(unselected()))], began);
        reports.saw([(one(), None)], began + LASTS / 2);
        reports.saw([(one(), Some(unselected()))], began + LASTS);
        assert!(!reports.has_due());
    }

    #[test]
    fn another_reason_lasts_a_minute_and_another_message_is_reported_at_once() {
        let (mut reports, began) = (GateReports::default(), Instant::now());
        let missing = |message| Some(NotInForce::new(NotInForceReason::HandlersMissing, message));
        for at in [began, began + LASTS] {
            reports.saw([(one(), missing("A"))], at);
        }
        let first = reports.next_due().map(|(_, not)| GateInForce::No(not));
        reports.saw([(one(), missing("A, B"))], began + LASTS);
        assert_eq!(reports.report(&one()), first);
        assert!(reports.next_due().is_some());
        reports.saw([(one(), Some(unselected()))], began + 2 * LASTS);
        assert!(!reports.has_due());
        assert_eq!(reports.counts()[&NotInForceReason::HandlersMissing], 1);
        reports.saw([(one(), Some(unselected()))], began + 3 * LASTS);
        assert!(reports.next_due().is_some());
        assert_eq!(reports.counts()[&NotInForceReason::HandlersMissing], 0);
    }

    #[test]
    fn alternating_reasons_are_reported_once() {
        let (mut reports, began) = (GateReports::default(), Instant::now());
        let unread = || NotInForce::new(NotInForceReason::Unreadable, "unread");
        let mut reported = 0;
        for at in 0..8 {
            let not = if at % 2 == 0 { unselected() } else { unread() };
            reports.saw([(one(), Some(not))], began + at * LASTS / 2);
            reported += u32::from(reports.next_due().is_some());
        }
        assert_eq!(reported, 1);
    }

    #[test]
    fn a_cluster_that_was_not_checked_has_no_report() {
        let mut reports = GateReports::default();
        reports.saw([(ClusterRef::new("team-a", "two"), None)], Instant::now());
        assert_eq!(reports.report(&one()), None);
    }

    #[test]
    fn deleted_clusters_are_forgotten() {
        let (mut reports, began) = (GateReports::default(), Instant::now());
        reports.ungated(&one(), true);
        for at in [began, began + LASTS] {
            reports.saw([(one(), Some(unselected()))], at);
        }
        assert!(reports.next_due().is_some());
        assert_eq!(reports.counts()[&NotInForceReason::VersionUngated], 1);
        reports.saw([], began + 2 * LASTS);
        assert!(reports.counts().values().all(|count| *count == 0));
    }
}
