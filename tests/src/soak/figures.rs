//! Figures of one upgrade.

use jiff::Timestamp;

use super::act::Happened;
use crate::objects::Release;
use crate::observer::{Event, Milestone};

/// Seconds from the last proof to the write of the version.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(super) struct Lag {
    /// Counted from the last proof, whatever else had to end first.
    pub(super) since_proof: f64,
    /// Counted from the last proof or the end of the last disturbance before the write, whichever came later.
    pub(super) since_all_was_good: f64,
}

impl Lag {
    /// The lag of the first write of the version of `release` among `milestones`; none if a package had no proof by then.
    pub(super) fn of(release: &Release, milestones: &[Milestone], happened: &[Happened]) -> Option<Self> {
        let version = release.kubernetes();
        let written = milestones.iter().find(
            |milestone| matches!(&milestone.event, Event::ControlPlaneWritten { version: written } if written == version),
        )?;
        let before = || {
            milestones
                .iter()
                .filter(|milestone| milestone.revision < written.revision)
        };
        let mut proven: Option<Timestamp> = None;
        for package in release.packages() {
            // The latest: a disturbance may have taken earlier ones away.
            let latest = before().rfind(|milestone| {
                matches!(&milestone.event, Event::PackageProven { ref_name, version }
                    if ref_name == package.ref_name() && version == package.version())
            })?;
            proven = proven.max(Some(latest.seen));
        }
        let proven = proven?;
        let good = happened
            .iter()
            .filter(|happened| happened.ended_at < written.revision)
            .map(|happened| happened.ended)
            .chain([proven])
            .max()?;
        let since = |moment: Timestamp| written.seen.duration_since(moment).as_secs_f64();
        Some(Self {
            since_proof: since(proven),
            since_all_was_good: since(good),
        })
    }
}

/// Three figures of a series.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Quantiles {
    /// Half of the series is not longer.
    pub p50: f64,
    /// Nineteen of twenty are not longer.
    pub p95: f64,
    /// The longest.
    pub max: f64,
}

impl Quantiles {
    /// Of a series; all zero if it is empty.
    #[must_use]
    pub(super) fn of(series: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = series.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            p50: rank(&sorted, 50),
            p95: rank(&sorted, 95),
            max: rank(&sorted, 100),
        }
    }
}

/// The smallest member that so many percent of the series do not exceed.
fn rank(sorted: &[f64], percent: usize) -> f64 {
    let position = (sorted.len() * percent).div_ceil(100);
    let found = position.checked_sub(1).and_then(|position| sorted.get(position));
    found.map_or(0.0, |value| (value * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_members_of_the_series() {
        let quantiles = Quantiles::of((1..=20).rev().map(f64::from));
        let wanted = Quantiles {
            p50: 10.0,
            p95: 19.0,
            max: 20.0,
        };
        assert_eq!(quantiles, wanted);
        assert_eq!(Quantiles::of([]), Quantiles::default());
        assert_eq!(
            Quantiles::of([0.5]),
            Quantiles {
                p50: 0.5,
                p95: 0.5,
                max: 0.5
            }
        );
    }
}
