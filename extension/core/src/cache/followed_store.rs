//! How the memory of one kind is kept up to date: when its server is asked again after a failure, when everything is listed again
//! because its age is not proven, and when it is emptied because it takes too much.

use std::time::{Duration, Instant};

use kube::Resource;
use serde::Serialize;

use super::{Age, FollowedKind, WATCH_SECONDS, WatchAnswer};
use crate::limits::{Backoff, Cap, GivenUp};

/// For how long the server is asked to keep a watch without an age; kube-runtime takes the watch for dead soon after. Its own default
/// would be five minutes.
const WATCH_TIMEOUT_SECONDS: u32 = 30;

/// About as many Clusters are asked about in a second.
const RECENT: usize = 32;

/// The first delay before a watch that broke is tried again. Workload API servers restart in the middle of every upgrade.
const MIN_DELAY: Duration = Duration::from_millis(200);

/// The longest one on the management API server. There are few watches of it, and everything waits for them.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// The longest one on a workload API server.
const MAX_WORKLOAD_DELAY: Duration = Duration::from_mins(1);

/// The first delay before a store that was given up is filled again.
const MIN_EMPTY: Duration = Duration::from_secs(5);

/// The longest one.
const MAX_EMPTY: Duration = Duration::from_mins(1);

/// What the list or watch of a store brings.
#[derive(Debug)]
pub enum Brought<'a, K> {
    /// The beginning of a list.
    List,
    /// An object of the list.
    Listed(&'a K),
    /// The end of the list.
    Filled,
    /// An object that is new or changed.
    Touched(&'a K),
    /// An object that is gone.
    Gone(&'a K),
}

/// One store, as its server fills it.
#[derive(Debug)]
pub struct FollowedStore {
    /// Delays before a list or watch that broke is tried again.
    backoff: Backoff,
    /// Delays before it is filled again that was given up.
    empty: Backoff,
    not_before: Option<Instant>,
    age: Age,
    dated: bool,
    cap: Option<Cap>,
}

impl Default for FollowedStore {
    /// A store of the management API server.
    fn default() -> Self {
        Self {
            backoff: Backoff::new(MIN_DELAY, MAX_DELAY),
            empty: Backoff::new(MIN_EMPTY, MAX_EMPTY),
            not_before: None,
            age: Age::default(),
            dated: false,
            cap: None,
        }
    }
}

impl FollowedStore {
    /// The same, whose age is asked for: it is listed again before its memory is too old to be used.
    #[must_use]
    pub fn dated() -> Self {
        Self {
            dated: true,
            ..Self::default()
        }
    }

    /// A store of a kind that an object names.
    #[must_use]
    pub fn of_named_kind() -> Self {
        Self {
            backoff: FollowedKind::delays(),
            ..Self::default()
        }
    }

    /// A store of a workload API server, which is not trusted: where it would take more than so many bytes, or its answers make this
    /// process panic, it is given up.
    #[must_use]
    pub fn of_workload(limit: usize) -> Self {
        Self {
            backoff: Backoff::new(MIN_DELAY, MAX_WORKLOAD_DELAY),
            cap: Some(Cap::new(limit)),
            ..Self::default()
        }
    }

    /// What a watch is asked to last, in seconds.
    #[must_use]
    pub fn watch_seconds(&self) -> u32 {
        if self.dated {
            WATCH_SECONDS
        } else {
            WATCH_TIMEOUT_SECONDS
        }
    }

    /// How many objects are kept unpacked that were looked up last: hooks are answered from what has an age.
    #[must_use]
    pub fn recent(&self) -> usize {
        if self.dated { RECENT } else { 0 }
    }

    /// Whether a panic concerns this store alone.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        self.cap.is_some()
    }

    /// Nothing is asked of the server before.
    #[must_use]
    pub fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// When to begin again with a list, whatever the watch seems to do.
    #[must_use]
    pub fn relist_at(&self) -> Option<Instant> {
        self.age.relist_at().filter(|_| self.dated)
    }

    /// For how long the store may have missed changes; none if it was never filled.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.age.proven().map(|proven| now.duration_since(proven))
    }

    /// A list is asked for.
    pub fn list(&mut self, now: Instant) {
        self.age.list(now);
    }

    /// What became of a watch.
    pub fn watch(&mut self, answer: WatchAnswer, now: Instant) {
        match answer {
            WatchAnswer::Lists => self.age.list(now),
            WatchAnswer::Begun => {}
            WatchAnswer::Ended { asked } => self.age.watch_ended(asked, now),
        }
    }

    /// To be asked once of all that is brought, before the store takes it.
    ///
    /// # Errors
    /// The store has to be given up, and why.
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

    /// The store has taken what was brought. To be said only then: those who ask for its age look into it next.
    pub fn took<K>(&mut self, brought: &Brought<'_, K>, now: Instant) {
        match brought {
            // kube-runtime says so before it asks for a page, and when the API server has begun to stream.
            Brought::List => self.age.list_begins(now),
            Brought::Filled => self.age.filled(now),
            Brought::Listed(_) | Brought::Touched(_) | Brought::Gone(_) => self.age.heard(now),
        }
    }

    /// The list or watch failed.
    pub fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + self.backoff.failed(now));
        self.age.failed(now);
    }

    /// The store was given up and emptied. It is filled again after a delay.
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
    use crate::cache::RELIST_AFTER;

    const NOTHING: Brought<'static, ConfigMap> = Brought::Filled;

    fn seconds() -> impl Fn(u64) -> Instant {
        let began = Instant::now();
        move |second| began + Duration::from_secs(second)
    }

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
    fn only_a_dated_store_is_listed_again_for_its_age() {
        let at = seconds();
        for (mut store, watch, relist) in [
            (FollowedStore::dated(), WATCH_SECONDS, Some(at(1) + RELIST_AFTER)),
            (FollowedStore::default(), 30, None),
            (FollowedStore::of_named_kind(), 30, None),
            (FollowedStore::of_workload(1), 30, None),
        ] {
            assert_eq!((store.relist_at(), store.age(at(0))), (None, None));
            store.list(at(0));
            store.took(&NOTHING, at(1));
            assert_eq!((store.watch_seconds(), store.relist_at()), (watch, relist));
            assert_eq!(store.age(at(5)), Some(Duration::from_secs(5)));
        }
    }

    #[test]
    fn a_list_and_the_end_of_a_watch_prove_an_age() {
        let (mut store, at) = (FollowedStore::dated(), seconds());
        let object = object("one");
        let age = |store: &FollowedStore, second| store.age(at(second)).map(|age| age.as_secs());
        store.took(&Brought::<ConfigMap>::List, at(1));
        store.took(&Brought::Listed(&object), at(2));
        assert_eq!(age(&store, 3), None);
        store.took(&NOTHING, at(3));
        assert_eq!(age(&store, 3), Some(2), "since it was asked for");
        for brought in [Brought::Touched(&object), Brought::Gone(&object)] {
            store.took(&brought, at(20));
            assert_eq!(age(&store, 20), Some(19), "events prove nothing");
        }
        store.watch(WatchAnswer::Begun, at(20));
        assert_eq!(age(&store, 20), Some(19), "nor does the beginning of a watch");
        store.watch(WatchAnswer::Ended { asked: at(10) }, at(20));
        assert_eq!(age(&store, 20), Some(10));
        store.failed(at(30));
        store.watch(WatchAnswer::Ended { asked: at(20) }, at(31));
        assert_eq!(age(&store, 31), Some(21), "it has failed since");
    }

    #[test]
    fn the_server_is_left_alone_after_a_failure() {
        for (mut store, least, most) in [
            (FollowedStore::default(), MIN_DELAY, MAX_DELAY),
            (FollowedStore::dated(), MIN_DELAY, MAX_DELAY),
            (FollowedStore::of_workload(1), MIN_DELAY, MAX_WORKLOAD_DELAY),
            (
                FollowedStore::of_named_kind(),
                Duration::from_secs(1),
                MAX_WORKLOAD_DELAY,
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
    fn a_store_that_takes_too_much_is_filled_again_later() {
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
            "nothing is held any more"
        );
    }

    #[test]
    fn a_store_of_a_trusted_server_takes_all() {
        for mut store in [
            FollowedStore::default(),
            FollowedStore::dated(),
            FollowedStore::of_named_kind(),
        ] {
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
