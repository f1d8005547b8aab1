//! Checks that the stores of a replica are synced and recent enough for a decision.

use std::time::Duration;

use crate::cache::stored_kind::{CURRENT_FOR, StoredKind};

/// Reason why the cache of a replica cannot decide a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    /// The store of this kind has never synced.
    Unlisted(StoredKind),
    /// A store may have missed changes of the last [`CURRENT_FOR`].
    Stale,
}

impl Unsynced {
    /// Judges the stores of a decision by age: the time since the store was last confirmed to have missed no change; none for a store
    /// that has never synced.
    ///
    /// A store that is too old takes precedence over one that has never synced, because a deletion does not wait for the latter.
    #[must_use]
    pub fn of(ages: impl IntoIterator<Item = (StoredKind, Option<Duration>)>) -> Option<Self> {
        let mut unlisted = None;
        for (kind, age) in ages {
            match age {
                None => unlisted = unlisted.or(Some(Self::Unlisted(kind))),
                Some(age) if is_current(age) => {}
                Some(_) => return Some(Self::Stale),
            }
        }
        unlisted
    }
}

/// Whether a cache of this age may decide calls.
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

    const UNLISTED: fn(StoredKind) -> Option<Unsynced> = |kind| Some(Unsynced::Unlisted(kind));

    #[rstest]
    #[case::all_filled([NOW, NOW, NOW], None)]
    #[case::just_young_enough([LAST, LAST, LAST], None)]
    #[case::the_first_one_old([OLD, NOW, NOW], Some(Unsynced::Stale))]
    #[case::the_second_one_old([NOW, OLD, NOW], Some(Unsynced::Stale))]
    #[case::the_third_one_old([NOW, NOW, OLD], Some(Unsynced::Stale))]
    #[case::any_age([ANCIENT, ANCIENT, ANCIENT], Some(Unsynced::Stale))]
    #[case::nothing_filled([NEVER, NEVER, NEVER], UNLISTED(StoredKind::Cluster))]
    #[case::one_never_filled([NOW, NOW, NEVER], UNLISTED(StoredKind::App))]
    #[case::two_never_filled([NOW, NEVER, NEVER], UNLISTED(StoredKind::Package))]
    #[case::old_outweighs_never_filled([NEVER, NOW, OLD], Some(Unsynced::Stale))]
    fn every_store_counts(#[case] ages: [Option<Duration>; 3], #[case] expected: Option<Unsynced>) {
        let kinds = [StoredKind::Cluster, StoredKind::Package, StoredKind::App];
        assert_eq!(Unsynced::of(kinds.into_iter().zip(ages)), expected);
    }
}
