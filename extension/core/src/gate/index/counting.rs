//! Counts of held Clusters, updated only for Clusters that have changed.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use sluice_crds::run::{HeldGate, Hook};

use crate::{
    cluster::ClusterRef,
    gate::stuck::{Counted, Held, STUCK_AFTER, Stuck},
    held_cause::Cause,
};

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
    /// Closed gates in the status of its ClusterBootstrap and of its ClusterUpgrade.
    pub gates: Vec<HeldGate>,
    /// Whether the hold exceeds the deadline of the Cluster.
    pub past_deadline: bool,
}

/// Held Clusters, with the time of their last progress. Times are measured from an arbitrary origin.
#[derive(Debug, Default)]
pub struct Counting(HashMap<ClusterRef, Observed>);

#[derive(Debug)]
struct Observed {
    snapshot: HoldSnapshot,
    /// Time since which the progress of the Cluster is unchanged.
    since: Duration,
}

impl Counting {
    /// Recounts the `uncounted` Clusters at `now`. `all` names every Cluster, and `snapshot` returns the held state of one.
    pub fn count(
        &mut self,
        now: Duration,
        uncounted: Uncounted,
        all: impl FnOnce() -> Vec<ClusterRef>,
        snapshot: impl Fn(&ClusterRef) -> Option<HoldSnapshot>,
    ) {
        let Uncounted {
            all: every,
            mut clusters,
        } = uncounted;
        if every {
            clusters.extend(self.0.keys().cloned());
            clusters.extend(all());
        }
        for cluster in clusters {
            let Some(snapshot) = snapshot(&cluster) else {
                self.0.remove(&cluster);
                continue;
            };
            let before = self.0.get(&cluster);
            let unchanged = before.filter(|before| before.snapshot.held == snapshot.held);
            let since = unchanged.map_or(now, |before| before.since);
            self.0.insert(cluster, Observed { snapshot, since });
        }
    }

    /// Returns the numbers of held Clusters with and without progress at `now`.
    #[must_use]
    pub fn counted(&self, now: Duration) -> Counted {
        let mut counted = Counted::default();
        for Observed { snapshot, since } in self.0.values() {
            let Some(held) = &snapshot.held else { continue };
            if now.saturating_sub(*since) < STUCK_AFTER {
                counted.moving += u32::from(held.recorded);
            } else {
                let stuck = Stuck::new(held.standing, *since);
                counted.stuck.insert(held.uid.clone(), stuck);
            }
        }
        counted
    }

    fn snapshots(&self) -> impl Iterator<Item = &HoldSnapshot> {
        self.0.values().map(|observed| &observed.snapshot)
    }

    /// Returns the longest hold per hook at `now`; zero without a hold.
    pub fn longest(&self, now: Timestamp) -> impl Iterator<Item = (Hook, Duration)> {
        Hook::ALL.into_iter().map(move |hook| {
            let gates = self.snapshots().flat_map(|snapshot| &snapshot.gates);
            let lasted = gates
                .filter(|gate| gate.hook == hook)
                .filter_map(|gate| Duration::try_from(now.duration_since(gate.since.0)).ok());
            (hook, lasted.max().unwrap_or_default())
        })
    }

    /// Returns the number of Clusters whose hold has each cause. A cause that this build does not know counts as unknown.
    pub fn by_cause(&self) -> impl Iterator<Item = (Cause, usize)> {
        let mut counts: HashMap<Cause, usize> = HashMap::new();
        let gates = self.snapshots().flat_map(|snapshot| &snapshot.gates);
        for cause in gates.filter_map(|gate| gate.cause.as_ref()) {
            let cause = Cause::parse(&cause.name).unwrap_or(Cause::Unknown);
            *counts.entry(cause).or_default() += 1;
        }
        Cause::ALL
            .iter()
            .map(move |cause| (*cause, counts.get(cause).copied().unwrap_or_default()))
    }

    /// Returns the number of Clusters that are held beyond their deadline.
    #[must_use]
    pub fn past_deadline(&self) -> usize {
        self.snapshots().filter(|snapshot| snapshot.past_deadline).count()
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use sluice_crds::run::HeldCause;

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
                Duration::ZERO,
                uncounted,
                || vec![cluster("a"), cluster("b")],
                |of| {
                    recounted.borrow_mut().push(of.name().to_owned());
                    held_now.contains(&of.name()).then(|| held(of.name()))
                },
            );
            let held = counting.snapshots().filter_map(|snapshot| snapshot.held.clone());
            let mut uids: Vec<String> = held.map(|held| held.uid).collect();
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
        let cause = |since| match since {
            10 => Some("ImagePull"),
            40 => Some("OfALaterRelease"),
            _ => None,
        };
        let cause = |since| {
            cause(since).map(|name| HeldCause {
                name: name.to_owned(),
                ..HeldCause::default()
            })
        };
        let gate = |hook, since| HoldSnapshot {
            gates: vec![HeldGate {
                hook,
                version: "v1.36.3".to_owned(),
                since: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(since)),
                cause: cause(since),
            }],
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
            Duration::ZERO,
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
        let caused: Vec<_> = counting
            .by_cause()
            .filter(|(_, clusters)| *clusters > 0)
            .collect();
        assert_eq!(caused, [(Cause::ImagePull, 1), (Cause::Unknown, 1)]);
    }

    fn standing(number: u64) -> ProgressHash {
        ProgressHash::of_hold(&number.to_string(), &Hold::new(GateReason::PackagesNotReady, ""))
    }

    fn held(uid: &str, number: u64) -> Held {
        Held {
            uid: uid.to_owned(),
            standing: standing(number),
            recorded: true,
        }
    }

    const fn minutes(minutes: u64) -> Duration {
        Duration::from_mins(minutes)
    }

    fn stuck<const N: usize>(of: [(&str, u64, Duration); N]) -> HashMap<String, Stuck> {
        of.map(|(uid, number, since)| (uid.to_owned(), Stuck::new(standing(number), since)))
            .into()
    }

    /// Counts all Clusters, of which these are held.
    fn observe(counting: &mut Counting, now: Duration, held: &[Held]) -> Counted {
        let all = Uncounted {
            all: true,
            ..Uncounted::default()
        };
        let name = |held: &Held| ClusterRef::new("ns", &held.uid);
        let snapshot = |cluster: &ClusterRef| {
            let held = held.iter().find(|held| name(held) == *cluster)?;
            Some(HoldSnapshot {
                held: Some(held.clone()),
                ..HoldSnapshot::default()
            })
        };
        counting.count(now, all, || held.iter().map(name).collect(), snapshot);
        counting.counted(now)
    }

    #[test]
    fn ten_minutes_without_progress_are_stuck_and_progress_ends_it() {
        let mut counting = Counting::default();
        let both = |one| [held("one", one), held("two", 7)];
        let counted = |moving, stuck| Counted { moving, stuck };

        assert_eq!(
            observe(&mut counting, minutes(5), &both(1)),
            counted(2, stuck([]))
        );
        let almost = Duration::from_millis(899_999);
        let moved = || [held("one", 1), held("two", 8)];
        assert_eq!(observe(&mut counting, almost, &moved()), counted(2, stuck([])));
        let now = observe(&mut counting, minutes(15), &moved());
        assert_eq!(now, counted(1, stuck([("one", 1, minutes(5))])));
        let now = counting.counted(minutes(60));
        assert_eq!(
            now,
            counted(0, stuck([("one", 1, minutes(5)), ("two", 8, almost)])),
            "also while nothing is recounted"
        );

        let now = observe(&mut counting, minutes(61), &[held("one", 2), held("two", 8)]);
        assert_eq!(now, counted(1, stuck([("two", 8, almost)])), "one has moved");
    }

    #[test]
    fn a_cluster_that_is_held_again_begins_again() {
        let mut counting = Counting::default();
        observe(&mut counting, minutes(0), &[held("one", 1)]);
        assert_eq!(observe(&mut counting, minutes(9), &[]), Counted::default());
        assert_eq!(
            observe(&mut counting, minutes(10), &[held("one", 1)]).stuck,
            stuck([])
        );
        assert!(observe(&mut counting, minutes(11), &[]).stuck.is_empty());
        assert!(counting.0.is_empty(), "nothing is kept of what is not held");
    }

    #[test]
    fn a_cluster_of_the_same_name_begins_again() {
        let mut counting = Counting::default();
        let snapshot = |uid: &str| HoldSnapshot {
            held: Some(held(uid, 1)),
            ..HoldSnapshot::default()
        };
        for (now, uid) in [(minutes(0), "one"), (minutes(9), "another")] {
            let mut changed = Uncounted::default();
            changed.one(ClusterRef::new("ns", "name"));
            counting.count(now, changed, Vec::new, |_| Some(snapshot(uid)));
        }
        assert_eq!(counting.counted(minutes(11)).stuck, stuck([]));
    }

    #[test]
    fn a_cluster_without_a_record_slows_no_other_and_may_be_stuck() {
        let mut counting = Counting::default();
        let unrecorded = Held {
            recorded: false,
            ..held("one", 1)
        };
        assert_eq!(
            observe(&mut counting, minutes(0), slice::from_ref(&unrecorded)),
            Counted::default()
        );
        let now = observe(&mut counting, minutes(10), &[unrecorded]);
        assert_eq!((now.moving, now.stuck), (0, stuck([("one", 1, minutes(0))])));
    }
}
