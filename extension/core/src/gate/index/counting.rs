//! Counts of held Clusters, updated only for Clusters that have changed.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use sluice_crds::run::{HeldGate, Hook};

use crate::{cluster::ClusterRef, gate::stuck::Held};

/// Clusters whose decisions may have changed since the last count.
#[derive(Debug, Default)]
pub struct Uncounted {
    all: bool,
    clusters: HashSet<ClusterRef>,
}

impl Uncounted {
    /// Marks one Cluster as changed.
    pub fn one(&mut self, cluster: ClusterRef) {
        self.clusters.insert(cluster);
    }

    /// Marks all Clusters as changed.
    pub fn all(&mut self) {
        self.all = true;
    }
}

/// State of a held Cluster in one count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldSnapshot {
    /// Progress, from which the retry delay follows.
    pub held: Option<Held>,
    /// Closed gate in the status of its ClusterBootstrap.
    pub gate: Option<HeldGate>,
    /// Whether the hold exceeds the deadline of the Cluster.
    pub past_deadline: bool,
}

/// Held Clusters.
#[derive(Debug, Default)]
pub struct Counting(HashMap<ClusterRef, HoldSnapshot>);

impl Counting {
    /// Recounts the `uncounted` Clusters. `all` names every Cluster, and `snapshot` returns the held state of one.
    pub fn count(
        &mut self,
        uncounted: Uncounted,
        all: impl FnOnce() -> Vec<ClusterRef>,
        snapshot: impl Fn(&ClusterRef) -> Option<HoldSnapshot>,
    ) {
        let Uncounted {
            all: every,
            mut clusters,
        } = uncounted;
        if every {
            self.0.clear();
            clusters.extend(all());
        }
        for cluster in clusters {
            match snapshot(&cluster) {
                Some(found) => drop(self.0.insert(cluster, found)),
                None => drop(self.0.remove(&cluster)),
            }
        }
    }

    /// Returns the progress of each held Cluster.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.0.values().filter_map(|snapshot| snapshot.held.clone())
    }

    /// Returns the longest hold per hook at `now`; zero without a hold.
    pub fn longest(&self, now: Timestamp) -> impl Iterator<Item = (Hook, Duration)> {
        Hook::ALL.into_iter().map(move |hook| {
            let gates = self.0.values().filter_map(|snapshot| snapshot.gate.as_ref());
            let lasted = gates
                .filter(|gate| gate.hook == hook)
                .filter_map(|gate| Duration::try_from(now.duration_since(gate.since.0)).ok());
            (hook, lasted.max().unwrap_or_default())
        })
    }

    /// Returns the number of Clusters that are held beyond their deadline.
    #[must_use]
    pub fn past_deadline(&self) -> usize {
        self.0.values().filter(|snapshot| snapshot.past_deadline).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gate::stuck::ProgressHash,
        reasons::{GateReason, Hold},
    };

    #[test]
    fn only_changed_clusters_are_recounted() {
        let held = |name: &str| HoldSnapshot {
            held: Some(Held {
                uid: name.to_owned(),
                standing: ProgressHash::of_hold(name, &Hold::new(GateReason::TKRNotFound, "none")),
                recorded: false,
            }),
            ..HoldSnapshot::default()
        };
        let cluster = |name: &str| ClusterRef::new("ns", name);
        let (mut counting, recounted) = (Counting::default(), std::cell::RefCell::new(Vec::new()));
        let mut count = |uncounted, held_now: &[&str]| {
            recounted.borrow_mut().clear();
            counting.count(
                uncounted,
                || vec![cluster("a"), cluster("b")],
                |of| {
                    recounted.borrow_mut().push(of.name().to_owned());
                    held_now.contains(&of.name()).then(|| held(of.name()))
                },
            );
            let mut uids: Vec<String> = counting.held().map(|held| held.uid).collect();
            uids.sort();
            recounted.borrow_mut().sort();
            (recounted.borrow().join(" "), uids.join(" "))
        };
        let one = |name: &str| {
            let mut uncounted = Uncounted::default();
            uncounted.one(cluster(name));
            uncounted
        };
        let all = || Uncounted {
            all: true,
            ..Uncounted::default()
        };
        let expect = |recounted: &str, held: &str| (recounted.to_owned(), held.to_owned());
        assert_eq!(count(one("a"), &["a", "b"]), expect("a", "a"));
        assert_eq!(count(Uncounted::default(), &[]), expect("", "a"));
        assert_eq!(count(all(), &["a", "b"]), expect("a b", "a b"));
        assert_eq!(count(one("b"), &["a"]), expect("b", "a"));
        assert_eq!(count(all(), &[]), expect("a b", ""));
    }

    #[test]
    fn the_longest_hold_of_each_hook_is_measured() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let gate = |hook, since| HoldSnapshot {
            gate: Some(HeldGate {
                hook,
                version: "v1.36.3".to_owned(),
                since: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(since)),
            }),
            past_deadline: since == 10,
            ..HoldSnapshot::default()
        };
        let mut counting = Counting::default();
        let snapshots = [
            ("a", gate(Hook::BeforeClusterUpgrade, 10)),
            ("b", gate(Hook::BeforeClusterUpgrade, 40)),
            ("c", gate(Hook::BeforeWorkersUpgrade, 90)),
            // The clock of the leader that wrote it is ahead.
            ("d", gate(Hook::AfterClusterUpgrade, 200)),
            ("e", HoldSnapshot::default()),
        ];
        let all = Uncounted {
            all: true,
            ..Uncounted::default()
        };
        counting.count(
            all,
            || {
                snapshots
                    .iter()
                    .map(|(name, _)| ClusterRef::new("ns", name))
                    .collect()
            },
            |of| {
                snapshots
                    .iter()
                    .find(|(name, _)| *name == of.name())
                    .map(|(_, snapshot)| snapshot.clone())
            },
        );
        let longest: Vec<_> = counting
            .longest(at(100))
            .filter(|(_, lasted)| !lasted.is_zero())
            .collect();
        let seconds = Duration::from_secs;
        assert_eq!(
            longest,
            [
                (Hook::BeforeClusterUpgrade, seconds(90)),
                (Hook::BeforeWorkersUpgrade, seconds(10))
            ]
        );
        assert_eq!(
            counting.longest(at(100)).count(),
            Hook::ALL.len(),
            "one that is held no more is zero"
        );
        assert_eq!(counting.past_deadline(), 1);
    }
}
