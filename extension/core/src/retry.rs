//! When Cluster API asks again.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// Seconds after which Cluster API may ask again; at least one.
///
/// Since Cluster API 1.12 this is a floor: nothing makes it ask sooner, so it is as small as the load allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryAfter(u32);

impl RetryAfter {
    /// The shortest wait. Zero would be a release.
    pub const SHORTEST: Self = Self(1);

    /// The longest wait that is ever asked for, so that the wire's 32 bits and a person's patience are kept.
    pub const LONGEST: Self = Self(3600);

    /// The wait in whole seconds.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

/// How many calls are wanted, and how many clusters wait.
///
/// There is no estimate and no randomness in it: the same inputs give the same answer on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Calls per second that all held clusters together may make.
    pub budget: u32,
    /// Clusters that are held at the moment.
    pub held: u32,
    /// Seconds after which the deletion of a cluster is let go although packages are still there.
    pub deletion_limit: u32,
}

impl RetryPolicy {
    /// Calls per second that all held clusters together may make, unless configured.
    pub const BUDGET: u32 = 20;

    /// Seconds after which a deletion is let go, unless configured: the addons-manager's ten minutes.
    pub const DELETION_LIMIT: u32 = 600;

    /// The policy with the default budget for a number of held clusters.
    #[must_use]
    pub const fn with_held(held: u32) -> Self {
        Self {
            budget: Self::BUDGET,
            held,
            deletion_limit: Self::DELETION_LIMIT,
        }
    }

    /// The wait for the Cluster with this UID.
    ///
    /// With more held clusters than calls per second the waits are spread by the UID over half as much again, so that
    /// clusters that were edited together do not come back together.
    #[must_use]
    pub fn retry_after(&self, uid: &str) -> RetryAfter {
        let seconds = self.held.div_ceil(self.budget.max(1)).max(RetryAfter::SHORTEST.0);
        let spread = if seconds > 1 {
            bucket(uid, seconds / 2 + 1)
        } else {
            0
        };
        RetryAfter(seconds.saturating_add(spread).min(RetryAfter::LONGEST.0))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::with_held(0)
    }
}

/// How long the Cluster with this UID waits with what concerns all clusters at once, so that they do it one after the
/// other within `over`. The same on every replica.
#[must_use]
pub fn spread(uid: &str, over: Duration) -> Duration {
    let milliseconds = u32::try_from(over.as_millis()).unwrap_or(u32::MAX);
    Duration::from_millis(bucket(uid, milliseconds.max(1)).into())
}

fn bucket(uid: &str, buckets: u32) -> u32 {
    let hash = Sha256::digest(uid.as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % buckets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nobody(0, 1, 1)]
    #[case::one(1, 1, 1)]
    #[case::within_budget(20, 1, 1)]
    #[case::above_budget(21, 2, 3)]
    #[case::hundred(100, 5, 7)]
    #[case::thousand(1000, 50, 75)]
    fn the_wait_grows_with_the_held_clusters(#[case] held: u32, #[case] least: u32, #[case] most: u32) {
        let policy = RetryPolicy::with_held(held);
        for uid in 0..200 {
            let seconds = policy.retry_after(&uid.to_string()).seconds();
            assert!((least..=most).contains(&seconds), "{seconds} for {uid}");
        }
    }

    #[test]
    fn a_spread_uses_every_second_it_has() {
        let policy = RetryPolicy::with_held(200);
        let seen: std::collections::BTreeSet<u32> = (0..500)
            .map(|uid| policy.retry_after(&uid.to_string()).seconds())
            .collect();
        assert_eq!(seen, (10..=15).collect());
    }

    #[test]
    fn what_concerns_all_clusters_is_done_by_a_few_at_a_time() {
        let over = Duration::from_mins(10);
        let mut minutes = [0_u32; 10];
        for uid in 0..10_000 {
            let wait = spread(&uid.to_string(), over);
            assert!(wait < over);
            assert_eq!(wait, spread(&uid.to_string(), over));
            minutes[usize::try_from(wait.as_secs() / 60).unwrap()] += 1;
        }
        assert!(
            minutes.iter().all(|clusters| (900..=1_100).contains(clusters)),
            "{minutes:?}"
        );
        assert_eq!(spread("uid", Duration::ZERO), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn a_wait_is_never_zero_and_never_too_long(budget: u32, held: u32, uid: String) {
            let policy = RetryPolicy { budget, held, deletion_limit: 0 };
            let wait = policy.retry_after(&uid);
            prop_assert!(wait >= RetryAfter::SHORTEST && wait <= RetryAfter::LONGEST);
            prop_assert_eq!(wait, policy.retry_after(&uid));
        }
    }
}
