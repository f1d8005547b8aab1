//! Retry delay in hook responses.

use std::time::Duration;

use crate::{gate::stuck::STUCK_AFTER, schedule::bucket};

/// Delay in seconds before Cluster API may call again; at least one.
///
/// Since Cluster API 1.12 this is a lower bound: nothing makes it call sooner, so the delay is as small as the load allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryAfter(u32);

impl RetryAfter {
    /// Shortest delay. Zero would release the call.
    pub const SHORTEST: Self = Self(1);

    /// Longest delay. It fits the 32 bits of the response and is acceptable for a user who waits.
    pub const LONGEST: Self = Self(3600);

    /// Returns the delay in whole seconds.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

/// Call budget, and numbers of held Clusters.
///
/// It involves neither estimates nor randomness: the same inputs give the same delay on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum calls per second for all held Clusters together.
    pub budget: u32,
    /// Held Clusters with recent progress, whose gates could open.
    pub moving: u32,
    /// Held Clusters that are stuck; see [`stuck`](crate::gate::stuck).
    pub stuck: u32,
    /// Seconds after which the deletion of a Cluster is released although packages still exist.
    pub deletion_limit: u32,
}

impl RetryPolicy {
    /// Default of the maximum calls per second for all held Clusters together.
    pub const BUDGET: u32 = 20;

    /// Default of the seconds after which a deletion is released: the ten minutes of the addons-manager.
    pub const DELETION_LIMIT: u32 = 600;

    /// Number of Clusters whose gates could open up to which no delay exceeds [`PROMISED`](Self::PROMISED).
    pub const FEW: u32 = 600;

    /// Longest delay, in seconds, for up to [`FEW`](Self::FEW) Clusters whose gates could open.
    pub const PROMISED: u32 = 30;

    /// Delays of stuck Clusters, in seconds.
    pub const STUCK: std::ops::RangeInclusive<u32> = 30..=300;

    /// Delay of a stuck Cluster as a fraction of the time without progress; at least the shortest delay of [`STUCK`](Self::STUCK).
    const LATE: u32 = 20;

    /// Fraction of the budget for stuck Clusters.
    const STUCK_PART: u32 = 4;

    /// Returns the policy with the default budget for a number of held Clusters whose gates could open.
    #[must_use]
    pub const fn with_held(moving: u32) -> Self {
        Self {
            budget: Self::BUDGET,
            moving,
            stuck: 0,
            deletion_limit: Self::DELETION_LIMIT,
        }
    }

    /// Returns the delay for the Cluster with this UID, which has made no progress for `still`.
    #[must_use]
    pub fn retry_after(&self, uid: &str, still: Duration) -> RetryAfter {
        if still < STUCK_AFTER {
            self.of_moving(uid)
        } else {
            self.of_stuck(uid, still)
        }
    }

    /// Returns the delay of a Cluster with recent progress. With more held Clusters than calls per second, the UID spreads the delays
    /// over half as much again, so that Clusters that were edited together do not call again together.
    fn of_moving(&self, uid: &str) -> RetryAfter {
        let seconds = self
            .moving
            .div_ceil(self.budget.max(1))
            .max(RetryAfter::SHORTEST.0);
        let mut room = if seconds > 1 { seconds / 2 } else { 0 };
        if self.moving <= Self::FEW {
            room = room.min(Self::PROMISED.saturating_sub(seconds));
        }
        let spread = bucket(uid, room + 1);
        RetryAfter(seconds.saturating_add(spread).min(RetryAfter::LONGEST.0))
    }

    /// Returns the delay of a stuck Cluster. Nothing makes Cluster API call sooner, so the delay is proportional to the time without
    /// progress, and longer only with many stuck Clusters. The UID spreads it over a quarter less, because Cluster API calls for all
    /// of them together after a restart.
    fn of_stuck(&self, uid: &str, still: Duration) -> RetryAfter {
        let (shortest, longest) = (*Self::STUCK.start(), *Self::STUCK.end());
        let in_proportion = u32::try_from(still.as_secs() / u64::from(Self::LATE)).unwrap_or(u32::MAX);
        let of_all = self.stuck.div_ceil((self.budget / Self::STUCK_PART).max(1));
        let of_moving = self.moving.div_ceil(self.budget.max(1));
        let seconds = in_proportion.max(of_all).max(of_moving).clamp(shortest, longest);
        let room = (seconds / 4).min(seconds - shortest);
        RetryAfter(seconds - bucket(uid, room + 1))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::with_held(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(0, 1, 1)]
    #[case::one(1, 1, 1)]
    #[case::within_budget(20, 1, 1)]
    #[case::above_budget(21, 2, 3)]
    #[case::hundred(100, 5, 7)]
    #[case::four_hundred(400, 20, 30)]
    #[case::five_hundred(500, 25, 30)]
    #[case::few(600, 30, 30)]
    #[case::more(601, 31, 46)]
    #[case::thousand(1000, 50, 75)]
    fn the_wait_grows_with_the_held_clusters(#[case] held: u32, #[case] least: u32, #[case] most: u32) {
        let policy = RetryPolicy::with_held(held);
        for uid in 0..200 {
            for still in [Duration::ZERO, Duration::from_millis(599_999)] {
                let seconds = policy.retry_after(&uid.to_string(), still).seconds();
                assert!((least..=most).contains(&seconds), "{seconds} for {uid}");
            }
        }
    }

    #[rstest]
    #[case::just_stuck(1, 10, 30, 30)]
    #[case::half_an_hour(1, 30, 68, 90)]
    #[case::an_hour(1, 60, 135, 180)]
    #[case::long(1, 100, 225, 300)]
    #[case::for_ever(1, 1_000_000, 225, 300)]
    #[case::as_many_as_the_shortest_wait_serves(150, 10, 30, 30)]
    #[case::more(1_000, 10, 150, 200)]
    #[case::a_whole_fleet(100_000, 10, 225, 300)]
    fn a_stuck_cluster_waits_in_proportion(
        #[case] stuck: u32,
        #[case] minutes: u64,
        #[case] least: u32,
        #[case] most: u32,
    ) {
        let policy = RetryPolicy {
            stuck,
            ..RetryPolicy::with_held(1)
        };
        let still = Duration::from_mins(minutes);
        let seen: std::collections::BTreeSet<u32> = (0..2_000)
            .map(|uid| policy.retry_after(&uid.to_string(), still).seconds())
            .collect();
        assert_eq!(seen, (least..=most).collect());
    }

    #[test]
    fn stuck_clusters_do_not_slow_the_others() {
        let policy = RetryPolicy {
            stuck: 100_000,
            ..RetryPolicy::with_held(20)
        };
        assert_eq!(policy.retry_after("uid", Duration::ZERO), RetryAfter::SHORTEST);
    }

    #[test]
    fn a_stuck_cluster_is_not_asked_before_those_whose_gates_could_open() {
        let policy = RetryPolicy::with_held(4_000);
        let stuck = policy.retry_after("uid", STUCK_AFTER).seconds();
        assert!((150..=200).contains(&stuck), "{stuck}");
    }

    #[test]
    fn a_spread_uses_every_second_it_has() {
        let policy = RetryPolicy::with_held(200);
        let seen: std::collections::BTreeSet<u32> = (0..500)
            .map(|uid| policy.retry_after(&uid.to_string(), Duration::ZERO).seconds())
            .collect();
        assert_eq!(seen, (10..=15).collect());
    }

    proptest! {
        #[test]
        fn a_wait_is_never_zero_and_never_too_long(budget: u32, moving: u32, stuck: u32, uid: String, seconds: u64) {
            let policy = RetryPolicy { budget, moving, stuck, deletion_limit: 0 };
            let still = Duration::from_secs(seconds);
            let wait = policy.retry_after(&uid, still);
            prop_assert!(wait >= RetryAfter::SHORTEST && wait <= RetryAfter::LONGEST);
            prop_assert_eq!(wait, policy.retry_after(&uid, still));
            if still >= STUCK_AFTER {
                prop_assert!(RetryPolicy::STUCK.contains(&wait.seconds()));
            }
        }

        /// Cluster API does not call before the delay ends, so this bounds the late release of a stuck Cluster.
        #[test]
        fn a_few_stuck_clusters_are_released_late_by_a_twentieth_of_their_time(
            stuck in 0_u32..=150,
            moving in 0_u32..=600,
            uid: String,
            still in 600_u64..1_000_000,
        ) {
            let policy = RetryPolicy { stuck, ..RetryPolicy::with_held(moving) };
            let late = policy.retry_after(&uid, Duration::from_secs(still)).seconds();
            prop_assert!(u64::from(late) <= (still / 20).max(30), "{late} s after {still} s");
        }

        #[test]
        fn a_few_clusters_whose_gates_could_open_wait_half_a_minute_at_most(moving in 0_u32..=600, stuck: u32, uid: String) {
            let policy = RetryPolicy { stuck, ..RetryPolicy::with_held(moving) };
            prop_assert!(policy.retry_after(&uid, Duration::ZERO).seconds() <= 30);
        }
    }
}
