//! How long releases took after the last proof, and whether that is short enough. The demo and the soak judge by it.

use serde::Serialize;

/// Fewer releases are not significant.
pub const LEAST: usize = 20;

/// How many seconds releases may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goals {
    /// Limit for half of them, if set.
    pub p50: Option<f64>,
    /// Nineteen of twenty.
    pub p95: f64,
}

/// Verdict on the pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// All goals are met.
    Kept,
    /// A goal is not met.
    Missed,
    /// There are fewer releases than [`LEAST`].
    TooFew,
}

impl Goals {
    /// Judges releases by the seconds that each took.
    #[must_use]
    pub fn judge(&self, seconds: &[f64]) -> Pace {
        if seconds.len() < LEAST {
            return Pace::TooFew;
        }
        let Quantiles { p50, p95, .. } = Quantiles::of(seconds.iter().copied());
        if self.p50.is_none_or(|most| p50 <= most) && p95 <= self.p95 {
            Pace::Kept
        } else {
            Pace::Missed
        }
    }
}

/// Three figures of a series.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
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
    pub fn of(series: impl IntoIterator<Item = f64>) -> Self {
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

    #[test]
    fn a_pace_is_kept_by_half_and_by_nineteen_of_twenty() {
        let goals = Goals {
            p50: Some(0.7),
            p95: 1.5,
        };
        let half = |short: f64, long: f64| [[short; 10], [long; 10]].concat();
        assert_eq!(goals.judge(&half(0.7, 1.5)), Pace::Kept);
        assert_eq!(goals.judge(&half(0.701, 1.5)), Pace::Missed);
        assert_eq!(goals.judge(&half(0.7, 1.501)), Pace::Missed);
        let mut one_long = half(0.5, 0.6);
        one_long[3] = 30.0;
        assert_eq!(goals.judge(&one_long), Pace::Kept);
        one_long[4] = 1.501;
        assert_eq!(goals.judge(&one_long), Pace::Missed);
        let no_median = Goals { p50: None, p95: 1.5 };
        assert_eq!(no_median.judge(&half(1.4, 1.5)), Pace::Kept);
    }

    #[test]
    fn nineteen_releases_are_too_few() {
        let goals = Goals { p50: None, p95: 1.5 };
        assert_eq!(goals.judge(&[9.0; LEAST - 1]), Pace::TooFew);
        assert_eq!(goals.judge(&[9.0; LEAST]), Pace::Missed);
    }
}
