//! Plan of one run: a pure function of the seed and of the run's number.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

use super::disturbance::{Delivery, Kind};
use crate::components::minor;
use crate::scenario::VERSIONS;

/// Milliseconds from the change of `topology.version` to that of the chart.
const LATER: Range<u64> = 200..6_000;

/// Milliseconds that a disturbance lasts.
const LASTS: Range<u64> = 1_000..10_000;

/// Milliseconds that new Pods take to become ready.
const ROLLOUT: Range<u64> = 0..3_000;

/// The same where Helm waits for them and its controller is killed meanwhile.
const SLOW_ROLLOUT: Range<u64> = 4_000..7_000;

/// Milliseconds from the change of the chart to the death of the controller: the time that Helm needs until it waits for Pods, and more.
const KILLED: Range<u64> = 0..4_000;

/// Milliseconds from the change of `topology.version` to the death of the leader: before, during and after the delivery.
const LEADER_KILLED: Range<u64> = 0..9_000;

/// One upgrade with its disturbance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Seed of the run.
    pub(crate) seed: u64,
    /// Number of the run.
    pub(crate) index: u64,
    /// Index in [`VERSIONS`] of the version before; the one after it is the target.
    pub(super) from: usize,
    pub(super) kind: Kind,
    pub(super) delivery: Delivery,
    /// From the change of `topology.version` to that of the chart.
    pub(super) later: Duration,
    /// When the disturbance begins: after the change of the chart for a killed controller, else after that of `topology.version`. Kinds that
    /// edit the delivery begin with the change of the chart.
    pub(super) after: Duration,
    /// How long it lasts.
    pub(super) lasts: Duration,
    /// How long new Pods take to become ready.
    pub(super) rollout: Duration,
}

impl Plan {
    /// The plan of run `index` for `seed`. Seven consecutive runs from a multiple of seven on have each kind once.
    pub(super) fn of(seed: u64, index: u64) -> Self {
        let all = as_number(Kind::ALL.len());
        let (block, place) = (index / all, index % all);
        let mut kinds = Kind::ALL;
        generator(seed, block, 1).shuffle(&mut kinds);
        let kind = kinds[usize::try_from(place).unwrap_or_default()];
        // So that kinds which both deliveries will do for meet each of them.
        let is_odd = seed.wrapping_add(block) & 1 == 1;
        let delivery = kind.needs().unwrap_or(Delivery::ALL[usize::from(is_odd)]);
        let mut rng = generator(seed, index, 2);
        let from = rng.usize(..VERSIONS.len() - 1);
        let later = rng.u64(LATER);
        let after = match kind {
            Kind::ControllerKilled => rng.u64(KILLED),
            Kind::LeaderKilled => rng.u64(LEADER_KILLED),
            // Before the chart is delivered: nothing takes a proof away then.
            Kind::OldGateApplied => rng.u64(0..later),
            Kind::ReleaseSuspended | Kind::ControllerFrozen | Kind::OtherClusterBroken | Kind::RolledBack => {
                later
            }
        };
        let rollout = if kind == Kind::ControllerKilled {
            SLOW_ROLLOUT
        } else {
            ROLLOUT
        };
        Self {
            seed,
            index,
            from,
            kind,
            delivery,
            later: Duration::from_millis(later),
            after: Duration::from_millis(after),
            lasts: Duration::from_millis(rng.u64(LASTS)),
            rollout: Duration::from_millis(rng.u64(rollout)),
        }
    }

    /// Name of the Cluster, its chart, its delivery and its gate.
    pub(super) fn name(&self) -> String {
        format!("r{}-{}", self.seed, self.index)
    }

    /// Kubernetes version before.
    pub(super) fn from(&self) -> &'static str {
        VERSIONS[self.from]
    }

    /// Kubernetes version after.
    pub(super) fn to(&self) -> &'static str {
        VERSIONS[self.from + 1]
    }

    /// The minor versions before and after, as rows spell them: `1.35`.
    pub(super) fn minors(&self) -> [&'static str; 2] {
        [self.from(), self.to()].map(|version| minor(version).trim_start_matches('v'))
    }
}

/// Random numbers for one purpose. The odd constants spread consecutive numbers over the whole range.
fn generator(seed: u64, number: u64, purpose: u64) -> Rng {
    let mixed = number
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(purpose.wrapping_mul(0xD1B5_4A32_D192_ED03));
    Rng::with_seed(seed.wrapping_add(mixed))
}

fn as_number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {} by {}, chart {:.1} s later, Pods {:.1} s; {} {:.1}+{:.1}",
            self.from(),
            self.to(),
            self.delivery.name(),
            self.later.as_secs_f64(),
            self.rollout.as_secs_f64(),
            self.kind.name(),
            self.after.as_secs_f64(),
            self.lasts.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn a_plan_depends_on_seed_and_number_alone() {
        assert_eq!(Plan::of(7, 3), Plan::of(7, 3));
        assert_ne!(Plan::of(7, 3).to_string(), Plan::of(7, 4).to_string());
        assert_ne!(Plan::of(7, 3).to_string(), Plan::of(8, 3).to_string());
    }

    #[test]
    fn twenty_consecutive_runs_have_each_kind_twice() {
        for seed in 0..20 {
            for first in 0..14 {
                let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
                for index in first..first + 20 {
                    *counts.entry(Plan::of(seed, index).kind).or_default() += 1;
                }
                assert_eq!(counts.len(), Kind::ALL.len());
                assert!(counts.values().all(|count| *count >= 2), "{counts:?}");
            }
        }
    }

    #[test]
    fn each_kind_meets_every_delivery_that_it_can_have() {
        let met: BTreeSet<(Kind, Delivery)> = (0..14)
            .map(|index| Plan::of(1, index))
            .map(|plan| (plan.kind, plan.delivery))
            .collect();
        let wanted: BTreeSet<(Kind, Delivery)> = Kind::ALL
            .into_iter()
            .flat_map(|kind| Delivery::ALL.map(|delivery| (kind, delivery)))
            .filter(|(kind, delivery)| kind.needs().is_none_or(|needed| needed == *delivery))
            .collect();
        assert_eq!(met, wanted);
    }

    #[test]
    fn an_old_gate_comes_before_the_chart() {
        let plans = (0..200).map(|index| Plan::of(1, index));
        let mut old = plans.filter(|plan| plan.kind == Kind::OldGateApplied);
        assert!(old.all(|plan| plan.after < plan.later));
    }

    #[test]
    fn rows_have_minor_versions() {
        let plan = Plan {
            from: 0,
            ..Plan::of(1, 0)
        };
        assert_eq!(plan.minors(), ["1.34", "1.35"]);
    }
}
