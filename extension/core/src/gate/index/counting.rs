//! Which Clusters are held, counted again only where something has changed.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use sluice_crds::run::{HeldGate, Hook};

use crate::{cluster::ClusterRef, gate::stuck::Held};

/// Clusters of which hooks may be answered otherwise than at the last count.
#[derive(Debug, Default)]
pub struct Uncounted {
    all: bool,
    clusters: HashSet<ClusterRef>,
}

impl Uncounted {
    /// Hooks of this one may be answered otherwise.
    pub fn one(&mut self, cluster: ClusterRef) {
        self.clusters.insert(cluster);
    }

    /// Hooks of any may be.
    pub fn all(&mut self) {
        self.all = true;
    }
}

/// What one look finds of a Cluster that is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldSnapshot {
    /// Where it stands, for how soon Cluster API asks again.
    pub held: Option<Held>,
    /// The gate that holds it, as its status shows it.
    pub gate: Option<HeldGate>,
    /// Whether that is held for longer than the policy of the Cluster allows.
    pub past_deadline: bool,
}

/// The Clusters that are held.
#[derive(Debug, Default)]
pub struct Counting(HashMap<ClusterRef, HoldSnapshot>);

impl Counting {
    /// Looks again at those that are `uncounted`. `all` names every Cluster, and `look` says where one is held, if it is.
    pub fn count(
        &mut self,
        uncounted: Uncounted,
        all: impl FnOnce() -> Vec<ClusterRef>,
        look: impl Fn(&ClusterRef) -> Option<HoldSnapshot>,
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
            match look(&cluster) {
                Some(found) => drop(self.0.insert(cluster, found)),
                None => drop(self.0.remove(&cluster)),
            }
        }
    }

    /// Where each stands.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.0.values().filter_map(|look| look.held.clone())
    }

    /// For how long the gate of each hook has been held that is held longest `now`; zero where none is.
    pub fn longest(&self, now: Timestamp) -> impl Iterator<Item = (Hook, Duration)> {
        Hook::ALL.into_iter().map(move |hook| {
            let gates = self.0.values().filter_map(|look| look.gate.as_ref());
            let lasted = gates
                .filter(|gate| gate.hook == hook)
                .filter_map(|gate| Duration::try_from(now.duration_since(gate.since.0)).ok());
            (hook, lasted.max().unwrap_or_default())
        })
    }

    /// How many Clusters are held for longer than their policy allows.
    #[must_use]
    pub fn past_deadline(&self) -> usize {
        self.0.values().filter(|look| look.past_deadline).count()
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
    fn only_what_has_changed_is_looked_at() {
        let held = |name: &str| HoldSnapshot {
            held: Some(Held {
                uid: name.to_owned(),
                standing: ProgressHash::of_hold(name, &Hold::new(GateReason::TKRNotFound, "none")),
                recorded: false,
            }),
            ..HoldSnapshot::default()
        };
        let cluster = |name: &str| ClusterRef::new("ns", name);
        let (mut counting, looked) = (Counting::default(), std::cell::RefCell::new(Vec::new()));
        let mut count = |uncounted, held_now: &[&str]| {
            looked.borrow_mut().clear();
            counting.count(
                uncounted,
                || vec![cluster("a"), cluster("b")],
                |of| {
                    looked.borrow_mut().push(of.name().to_owned());
                    held_now.contains(&of.name()).then(|| held(of.name()))
                },
            );
            let mut uids: Vec<String> = counting.held().map(|held| held.uid).collect();
            uids.sort();
            looked.borrow_mut().sort();
            (looked.borrow().join(" "), uids.join(" "))
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
        let expect = |looked: &str, held: &str| (looked.to_owned(), held.to_owned());
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
        let looks = [
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
                looks
                    .iter()
                    .map(|(name, _)| ClusterRef::new("ns", name))
                    .collect()
            },
            |of| {
                looks
                    .iter()
                    .find(|(name, _)| *name == of.name())
                    .map(|(_, look)| look.clone())
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
