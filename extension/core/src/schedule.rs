//! Requeue times of Clusters and configurations, spread by their UIDs.

use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::clock::Clock;

/// Shortest requeue delay of a Cluster that waits for a change that no watch reports.
const SHORTEST_WAIT: Duration = Duration::from_secs(10);
/// Longest such delay.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Resync interval of settled Clusters and their configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncPeriod {
    /// Length of the interval; each object is requeued once in it.
    pub length: Duration,
    /// Start of one interval. If it follows from the time of day, all replicas resync at the same times.
    pub since: Instant,
}

impl SyncPeriod {
    /// Returns the next interval of a sequence that starts at the Unix epoch.
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

    /// Returns the time from `now` until the next resync of the Cluster with this UID and of its configurations; never zero. All of
    /// them share the time, so one reconcile covers them.
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

/// Returns the delay of the Cluster with this UID within `over`, so that a change of all Clusters is handled one after the other.
/// Every replica computes the same delay.
#[must_use]
pub fn spread(uid: &str, over: Duration) -> Duration {
    let milliseconds = u32::try_from(over.as_millis()).unwrap_or(u32::MAX);
    Duration::from_millis(bucket(uid, milliseconds.max(1)).into())
}

/// Returns `longest`, shortened by up to a quarter depending on the UID.
pub(crate) fn spread_back(uid: &str, longest: Duration) -> Duration {
    longest * 3 / 4 + spread(uid, longest / 4)
}

/// Returns the requeue delay of a Cluster, or a configuration of it, that has `waited` for a change that no watch reports. The delay
/// grows with `waited` and is spread by the UID, so that objects with the same cause are not requeued together.
pub(crate) fn wait(uid: &str, waited: Duration) -> Duration {
    spread_back(uid, (waited / 10).clamp(SHORTEST_WAIT, LONGEST_WAIT))
}

/// Returns the bucket of a UID, below `buckets`; the same for the same UID.
pub(crate) fn bucket(uid: &str, buckets: u32) -> u32 {
    let hash = Sha256::digest(uid.as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_all_clusters_is_handled_a_few_at_a_time() {
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
    fn each_resync_is_at_the_same_time_of_its_period() {
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
