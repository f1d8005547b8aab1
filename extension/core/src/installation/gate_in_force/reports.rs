//! Gates that are not in force: since when, and which of them are reported.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use super::{GateInForce, NotInForce, NotInForceReason};
use crate::cluster::ClusterRef;

/// Time for which a gate is not in force before that is reported.
const LASTS: Duration = Duration::from_mins(1);

/// Reports of one leader. It has an entry for each Cluster whose gate is not in force.
#[derive(Debug, Default)]
pub struct GateReports {
    /// Whether the ExtensionConfigs were read.
    was_read: bool,
    seen: HashMap<ClusterRef, Sighting>,
    due: VecDeque<ClusterRef>,
    /// Clusters with a version that was written without an open gate.
    ungated: HashSet<ClusterRef>,
}

#[derive(Debug)]
struct Sighting {
    not: NotInForce,
    since: Instant,
    is_reported: bool,
}

impl GateReports {
    /// Observes the gates of all Clusters at `now`.
    pub fn saw(&mut self, found: impl IntoIterator<Item = (ClusterRef, Option<NotInForce>)>, now: Instant) {
        self.was_read = true;
        let mut before = std::mem::take(&mut self.seen);
        let mut ungated = std::mem::take(&mut self.ungated);
        self.due.clear();
        for (cluster, not) in found {
            if let Some(cluster) = ungated.take(&cluster) {
                self.ungated.insert(cluster);
            }
            let Some(not) = not else { continue };
            let known = before
                .remove(&cluster)
                .filter(|known| known.not.reason == not.reason);
            let sighting = Sighting {
                since: known.as_ref().map_or(now, |known| known.since),
                is_reported: known.is_some_and(|known| known.is_reported && known.not == not),
                not,
            };
            if !sighting.is_reported && now.saturating_duration_since(sighting.since) >= LASTS {
                self.due.push_back(cluster.clone());
            }
            self.seen.insert(cluster, sighting);
        }
    }

    /// Returns the next Cluster to report with its reason, which counts as reported from now on.
    pub fn next_due(&mut self) -> Option<(ClusterRef, NotInForce)> {
        let cluster = self.due.pop_front()?;
        let sighting = self.seen.get_mut(&cluster)?;
        sighting.is_reported = true;
        Some((cluster, sighting.not.clone()))
    }

    /// Notes that the report about a Cluster failed. It is due again after the next observation.
    pub fn not_reported(&mut self, cluster: &ClusterRef) {
        if let Some(sighting) = self.seen.get_mut(cluster) {
            sighting.is_reported = false;
        }
    }

    /// Whether a report is due.
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the report about a Cluster; `None` before the first read, and until a change is reported.
    #[must_use]
    pub fn report(&self, cluster: &ClusterRef) -> Option<GateInForce> {
        match self.seen.get(cluster) {
            None => self.was_read.then_some(GateInForce::Yes),
            Some(sighting) => sighting
                .is_reported
                .then(|| GateInForce::No(sighting.not.clone())),
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
        let mut counts: BTreeMap<_, _> = NotInForceReason::ALL.map(|reason| (reason, 0)).into();
        let reported = self.seen.values().filter(|sighting| sighting.is_reported);
        for sighting in reported {
            *counts.entry(sighting.not.reason).or_default() += 1;
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
        let of = |reason, message| Some(NotInForce::new(reason, message));
        let missing = |message| of(NotInForceReason::HandlersMissing, message);
        for at in [began, began + LASTS] {
            reports.saw([(one(), missing("A"))], at);
        }
        assert!(reports.next_due().is_some());
        reports.saw([(one(), missing("A, B"))], began + LASTS);
        assert_eq!(reports.report(&one()), None);
        assert!(reports.next_due().is_some());
        reports.saw(
            [(one(), of(NotInForceReason::Unreadable, "refused"))],
            began + 2 * LASTS,
        );
        assert!(!reports.has_due());
        reports.saw(
            [(one(), of(NotInForceReason::Unreadable, "refused"))],
            began + 3 * LASTS,
        );
        assert!(reports.has_due());
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
