//! How old a replica's memory may be before it is no knowledge.

use std::time::Duration;

/// For how long memory counts after the API server has confirmed it.
pub const CURRENT_FOR: Duration = Duration::from_secs(45);

/// Why what a replica remembers is no knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    /// A store was never filled.
    Starting,
    /// Every store was filled, but one of them may have missed what happened in the last [`CURRENT_FOR`].
    Stale,
}

impl Unsynced {
    /// Judges the stores that decisions rest on by their ages: the time since each is known to have missed no change;
    /// none for a store that was never filled.
    #[must_use]
    pub fn of(ages: impl IntoIterator<Item = Option<Duration>>) -> Option<Self> {
        let mut stale = None;
        for age in ages {
            match age {
                None => return Some(Self::Starting),
                Some(age) if is_current(age) => {}
                Some(_) => stale = Some(Self::Stale),
            }
        }
        stale
    }
}

/// Whether memory of this age is knowledge.
#[must_use]
pub const fn is_current(age: Duration) -> bool {
    age.as_nanos() <= CURRENT_FOR.as_nanos()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NEVER: Option<Duration> = None;
    const NOW: Option<Duration> = Some(Duration::ZERO);
    const LAST: Option<Duration> = Some(Duration::from_secs(45));
    const OLD: Option<Duration> = Some(Duration::from_millis(45_001));
    const ANCIENT: Option<Duration> = Some(Duration::MAX);

    #[rstest]
    #[case::all_filled([NOW, NOW, NOW], None)]
    #[case::just_young_enough([LAST, LAST, LAST], None)]
    #[case::clusters_old([OLD, NOW, NOW], Some(Unsynced::Stale))]
    #[case::bootstraps_old([NOW, OLD, NOW], Some(Unsynced::Stale))]
    #[case::releases_old([NOW, NOW, OLD], Some(Unsynced::Stale))]
    #[case::any_age([ANCIENT, ANCIENT, ANCIENT], Some(Unsynced::Stale))]
    #[case::nothing_filled([NEVER, NEVER, NEVER], Some(Unsynced::Starting))]
    #[case::one_never_filled([NOW, NOW, NEVER], Some(Unsynced::Starting))]
    #[case::never_filled_outweighs_old([OLD, NEVER, NOW], Some(Unsynced::Starting))]
    fn the_oldest_store_counts(#[case] ages: [Option<Duration>; 3], #[case] expected: Option<Unsynced>) {
        assert_eq!(Unsynced::of(ages), expected);
    }
}
