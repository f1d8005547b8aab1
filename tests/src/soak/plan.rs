//! Plan of one run: a pure function of the seed and of the run's number.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use super::disturbance::Kind;
use crate::scenario::VERSIONS;
use crate::stack::kubelet::Delay;

/// Short names of the packages of a release.
pub(super) const PACKAGES: [&str; 4] = [
    "kapp-controller",
    "antrea",
    "metrics-server",
    "secretgen-controller",
];

/// The shortest time that a disturbance lasts.
const SHORTEST: Duration = Duration::from_millis(200);

/// Within this time after the change of version disturbances begin.
const WINDOW: Duration = Duration::from_secs(6);

/// How many happen to one upgrade at most.
const MOST: usize = 5;

/// One upgrade with its disturbances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the run.
    pub index: u64,
    /// Index in [`VERSIONS`] of the version before; the one after it is the target.
    pub from: usize,
    /// How long the CNI takes to become ready.
    pub antrea: Duration,
    /// How long another package takes.
    pub metrics: Duration,
    /// What happens, in order.
    pub disturbances: Vec<Planned>,
}

/// One disturbance of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// What.
    pub kind: Kind,
    /// When, counted from the beginning of the upgrade.
    pub after: Duration,
    /// How long until it is taken back.
    pub lasts: Duration,
    /// Which package, for kinds that concern one.
    pub package: &'static str,
}

impl Plan {
    /// The plan of run `index` for `seed`.
    #[must_use]
    pub fn of(seed: u64, index: u64) -> Self {
        // The odd constant spreads consecutive numbers over the whole range.
        let mut rng =
            Rng::with_seed(seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let from = rng.usize(..VERSIONS.len() - 1);
        let antrea = milliseconds(&mut rng, 0..3_000);
        let metrics = milliseconds(&mut rng, 0..2_000);
        let count = rng.usize(1..=MOST);
        let mut kinds: Vec<Kind> = Vec::new();
        while kinds.len() < count {
            let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
            if kinds.iter().all(|chosen| chosen.goes_with(kind)) {
                kinds.push(kind);
            }
        }
        let mut disturbances: Vec<Planned> = kinds
            .into_iter()
            .map(|kind| Planned::of(&mut rng, kind))
            .collect();
        disturbances.sort_by_key(|planned| planned.after);
        Self {
            seed,
            index,
            from,
            antrea,
            metrics,
            disturbances,
        }
    }

    /// Seed and number of the run.
    #[must_use]
    pub fn run(&self) -> (u64, u64) {
        (self.seed, self.index)
    }

    /// Kubernetes version before.
    #[must_use]
    pub fn from(&self) -> &'static str {
        VERSIONS[self.from]
    }

    /// Kubernetes version after.
    #[must_use]
    pub fn to(&self) -> &'static str {
        VERSIONS[self.from + 1]
    }

    /// Delay of the packages with a Deployment.
    pub(super) fn delays(&self) -> [(&'static str, Delay); 2] {
        [
            ("antrea", Delay::After(self.antrea)),
            ("metrics-server", Delay::After(self.metrics)),
        ]
    }

    /// The disturbance that starts the upgrade, if one does.
    #[must_use]
    pub fn bump(&self) -> Option<&Planned> {
        self.disturbances.iter().find(|planned| planned.kind.is_bump())
    }
}

impl Planned {
    fn of(rng: &mut Rng, kind: Kind) -> Self {
        let after = milliseconds(rng, 0..as_milliseconds(WINDOW));
        let lasts = milliseconds(rng, as_milliseconds(SHORTEST)..as_milliseconds(kind.longest()));
        let package = PACKAGES[rng.usize(..PACKAGES.len())];
        Self {
            kind,
            after: if kind.is_bump() { Duration::ZERO } else { after },
            lasts,
            package,
        }
    }
}

fn milliseconds(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

fn as_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} to {}, antrea {:.1} s, metrics-server {:.1} s",
            self.from(),
            self.to(),
            self.antrea.as_secs_f64(),
            self.metrics.as_secs_f64()
        )?;
        self.disturbances
            .iter()
            .try_for_each(|planned| write!(f, "; {planned}"))
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if self.kind.has_package() {
            write!(f, "({})", self.package)?;
        }
        write!(
            f,
            " {:.1}+{:.1}",
            self.after.as_secs_f64(),
            self.lasts.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_plan_depends_on_seed_and_number_alone() {
        assert_eq!(Plan::of(7, 3), Plan::of(7, 3));
        assert_ne!(Plan::of(7, 3).to_string(), Plan::of(7, 4).to_string());
        assert_ne!(Plan::of(7, 3).to_string(), Plan::of(8, 3).to_string());
    }

    #[test]
    fn three_hundred_runs_disturb_in_every_way_and_within_bounds() {
        let plans: Vec<Plan> = (0..300).map(|index| Plan::of(1, index)).collect();
        let planned = || plans.iter().flat_map(|plan| &plan.disturbances);
        let kinds: BTreeSet<Kind> = planned().map(|planned| planned.kind).collect();
        assert_eq!(kinds.len(), Kind::ALL.len());
        assert!(planned().all(|planned| planned.after < WINDOW));
        assert!(planned().all(|planned| (SHORTEST..planned.kind.longest()).contains(&planned.lasts)));
        assert!(
            plans
                .iter()
                .all(|plan| (1..=MOST).contains(&plan.disturbances.len()))
        );
    }
}
