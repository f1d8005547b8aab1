//! Maintenance of the store of one kind: retries after failures, and a reset when the store exceeds its size limit.

use std::time::{Duration, Instant};

use kube::Resource;
use serde::Serialize;

use super::KindHealth;
use crate::limits::{Backoff, Cap, GivenUp};

/// Requested duration of a watch of a workload cluster, in seconds: its end shows that the server still responds.
const WATCH_OF_WORKLOAD: u32 = 30;

/// First delay before the retry of a broken watch. Workload API servers restart during every upgrade.
const MIN_DELAY: Duration = Duration::from_millis(200);

/// Longest delay for the management API server. Its watches are few, and all Clusters depend on them.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Longest delay for a workload API server.
const MAX_WORKLOAD_DELAY: Duration = Duration::from_mins(1);

/// First delay before an emptied store is filled again.
const MIN_EMPTY: Duration = Duration::from_secs(5);

/// Longest delay before an emptied store is filled again.
const MAX_EMPTY: Duration = Duration::from_mins(1);

/// Event of the list or watch of a store.
#[derive(Debug)]
pub enum Brought<'a, K> {
    /// Start of a list.
    List,
    /// Object of the list.
    Listed(&'a K),
    /// End of the list.
    Filled,
    /// New or changed object.
    Touched(&'a K),
    /// Deleted object.
    Gone(&'a K),
}

/// State of one store and its watch.
#[derive(Debug)]
pub struct FollowedStore {
    /// Delays before the retry of a broken list or watch.
    backoff: Backoff,
    /// Delays before the emptied store is filled again.
    empty: Backoff,
    not_before: Option<Instant>,
    cap: Option<Cap>,
}

impl Default for FollowedStore {
    /// Returns a store of the management API server.
    fn default() -> Self {
        Self {
            backoff: Backoff::new(MIN_DELAY, MAX_DELAY),
            empty: Backoff::new(MIN_EMPTY, MAX_EMPTY),
            not_before: None,
            cap: None,
        }
    }
}

impl FollowedStore {
    /// Returns a store of a kind that an object names.
    #[must_use]
    pub fn of_named_kind() -> Self {
        Self {
            backoff: KindHealth::watch_delays(),
            ..Self::default()
        }
    }

    /// Returns a store of an untrusted workload API server. It is emptied if it exceeds `limit` bytes, or if the responses cause a panic.
    #[must_use]
    pub fn of_workload(limit: usize) -> Self {
        Self {
            backoff: Backoff::new(MIN_DELAY, MAX_WORKLOAD_DELAY),
            cap: Some(Cap::new(limit)),
            ..Self::default()
        }
    }

    /// Returns the requested duration of a watch, in seconds; none for that of kube-runtime.
    #[must_use]
    pub fn watch_seconds(&self) -> Option<u32> {
        self.is_untrusted().then_some(WATCH_OF_WORKLOAD)
    }

    /// Returns whether a panic affects only this store.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        self.cap.is_some()
    }

    /// Returns the earliest time of the next request.
    #[must_use]
    pub fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Checks the size limit. Call it once per event, before the store applies the event.
    ///
    /// # Errors
    /// The reason to empty the store.
    pub fn admit<K: Resource + Serialize>(&mut self, brought: &Brought<'_, K>) -> Result<(), GivenUp> {
        let Some(cap) = &mut self.cap else {
            return Ok(());
        };
        match brought {
            Brought::List => cap.list(),
            Brought::Listed(object) => cap.listed(*object),
            Brought::Filled => cap.filled(),
            Brought::Touched(object) => cap.touched(*object),
            Brought::Gone(object) => cap.gone(*object),
        }
        cap.exceeded().map_or(Ok(()), Err)
    }

    /// Records a failure of the list or watch.
    pub fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + self.backoff.failed(now));
    }

    /// Records that the store was emptied. It is filled again after a delay.
    pub fn emptied(&mut self, now: Instant) {
        if let Some(cap) = &mut self.cap {
            cap.clear();
        }
        self.not_before = Some(now + self.empty.failed(now));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    use super::*;

    const NOTHING: Brought<'static, ConfigMap> = Brought::Filled;

    fn object(name: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    #[test]
    fn requests_pause_after_a_failure() {
        for (mut store, least, most) in [
            (FollowedStore::default(), MIN_DELAY, MAX_DELAY),
            (FollowedStore::of_workload(1), MIN_DELAY, MAX_WORKLOAD_DELAY),
            (
                FollowedStore::of_named_kind(),
                Duration::from_secs(1),
                Duration::from_secs(30),
            ),
        ] {
            let mut now = Instant::now();
            assert_eq!(store.not_before(), None);
            let mut longest = Duration::ZERO;
            for _ in 0..40 {
                store.failed(now);
                let until = store.not_before().unwrap_or(now);
                longest = longest.max(until - now);
                assert!(until - now >= least && until - now <= most, "{:?}", until - now);
                now = until;
            }
            assert!(longest >= most / 2, "{longest:?}");
        }
    }

    #[test]
    fn an_oversized_store_is_filled_again_later() {
        let (mut store, now) = (FollowedStore::of_workload(6_000), Instant::now());
        assert!(store.is_untrusted());
        let (one, two, three) = (object("one"), object("two"), object("three"));
        assert_eq!(store.admit(&Brought::<ConfigMap>::List), Ok(()));
        assert_eq!(store.admit(&Brought::Listed(&one)), Ok(()));
        assert_eq!(store.admit(&NOTHING), Ok(()));
        assert_eq!(store.admit(&Brought::Touched(&two)), Ok(()));
        assert_eq!(store.admit(&Brought::Gone(&two)), Ok(()));
        assert_eq!(
            store.admit(&Brought::Touched(&three)),
            Ok(()),
            "as many as before"
        );
        let exceeded = store.admit(&Brought::Touched(&two));
        assert_eq!(exceeded, Err(GivenUp::TooMuch(6_000)));
        store.emptied(now);
        assert!(store.not_before() >= Some(now + MIN_EMPTY));
        assert_eq!(
            store.admit(&Brought::Touched(&two)),
            Ok(()),
            "the store is empty now"
        );
    }

    #[test]
    fn a_store_of_a_trusted_server_has_no_limit() {
        for mut store in [FollowedStore::default(), FollowedStore::of_named_kind()] {
            assert!(!store.is_untrusted());
            for number in 0..100 {
                assert_eq!(
                    store.admit(&Brought::Touched(&object(&number.to_string()))),
                    Ok(())
                );
            }
        }
    }
}
