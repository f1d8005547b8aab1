//! When Clusters and configurations are reconciled again, spread by their UIDs.

use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::clock::Clock;

/// The time between two looks at what waits for something that no watch shows.
const SHORTEST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// When settled Clusters and their configurations are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncPeriod {
    /// Each is looked at once in it.
    pub length: Duration,
    /// The beginning of one. Where this follows from the time of day, all replicas look at the same times.
    pub since: Instant,
}

impl SyncPeriod {
    /// The next one where they follow each other since 1970.
    #[must_use]
    pub fn of_day(length: Duration, now: Clock) -> Self {
        let milliseconds = u64::try_from(now.now.as_millisecond()).unwrap_or_default();
        let over = milliseconds % u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
        let left = length.saturating_sub(Duration::from_millis(over));
        Self {
            length,
            since: now.instant + left,
        }
    }

    /// How long it is from `now` until the Cluster with this UID, or a configuration of it, is looked at next: never zero. Both have the
    /// same time, so that one look is made at them.
    #[must_use]
    pub fn until_resync(self, uid: &str, now: Instant) -> Duration {
        let length = self.length.max(Duration::from_millis(1));
        let (first, length) = (self.since + spread(uid, length), length.as_nanos());
        let over = match now.checked_duration_since(first) {
            Some(since) => since.as_nanos() % length,
            None => (length - first.duration_since(now).as_nanos() % length) % length,
        };
        let left = length - over;
        Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// How long the Cluster with this UID waits with what concerns all clusters at once, so that they do it one after the
/// other within `over`. The same on every replica.
#[must_use]
pub fn spread(uid: &str, over: Duration) -> Duration {
    let milliseconds = u32::try_from(over.as_millis()).unwrap_or(u32::MAX);
    Duration::from_millis(bucket(uid, milliseconds.max(1)).into())
}

/// Up to a quarter less than `longest`, as the UID says.
pub(crate) fn spread_back(uid: &str, longest: Duration) -> Duration {
    longest * 3 / 4 + spread(uid, longest / 4)
}

/// When the Cluster with this UID, or a configuration of it, is looked at again that has `waited` so long for what no watch shows: the
/// longer, the later. Not all that wait for the same are looked at at once.
pub(crate) fn wait(uid: &str, waited: Duration) -> Duration {
    spread_back(uid, (waited / 10).clamp(SHORTEST_WAIT, LONGEST_WAIT))
}

/// One of so many buckets, the same for the same UID.
pub(crate) fn bucket(uid: &str, buckets: u32) -> u32 {
    let hash = Sha256::digest(uid.as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % buckets
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_look_is_made_at_the_same_time_of_each_period() {
        let (length, since) = (Duration::from_mins(10), Instant::now());
        let period = SyncPeriod { length, since };
        let first = since + period.until_resync("uid", since);
        assert!(first <= since + length);
        for later in [Duration::from_secs(7), Duration::from_hours(500)] {
            let at = since + later + period.until_resync("uid", since + later);
            assert_eq!((at - first).as_nanos() % length.as_nanos(), 0);
            assert_eq!(period.until_resync("uid", at), length, "it is made now");
        }
        let before = SyncPeriod {
            length,
            since: since + length,
        };
        assert_eq!(
            since + before.until_resync("uid", since),
            first,
            "a beginning that is still to come"
        );
    }
}
