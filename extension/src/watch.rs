//! Keeps one kind in memory and tells who is interested when an object changed.

mod cap;

use std::{fmt::Debug, future::pending, hash::Hash, panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt, Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{
        reflector::{Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep_until};

pub use cap::GivenUp;

use cap::Cap;

use crate::{
    backoff::Backoff,
    bounded::is_too_long,
    freshness::{Freshness, RELIST_AFTER, WATCH_SECONDS},
    metrics::watch_panicked,
};

/// A watch that is silent for this long is taken for dead; kube's own default would be five minutes.
const WATCH_TIMEOUT_SECONDS: u32 = 30;

/// A list that brings nothing for this long is asked for again, over another connection. kube-apiserver gives up one that it
/// cannot answer after 60 s.
const LIST_SILENCE: Duration = Duration::from_secs(70);

/// The first delay before a watch that broke is tried again.
const MIN_DELAY: Duration = Duration::from_millis(200);

/// The longest one on the management API server. There are few watches of it, and everything waits for them.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// The first delay before a store that was given up is filled again.
const MIN_EMPTY: Duration = Duration::from_secs(5);

/// The longest one.
const MAX_EMPTY: Duration = Duration::from_mins(1);

/// A kind that a store can hold: each that kube can list and watch.
pub trait Followed:
    Resource<DynamicType: Eq + Hash + Clone + Send + Sync>
    + Clone
    + DeserializeOwned
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Followed for K
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
}

/// What a watch has just seen.
#[derive(Debug)]
pub enum Seen<'a, K> {
    /// An object is new or changed, or the store was filled anew.
    Touched(&'a K),
    /// An object is gone.
    Gone(&'a K),
    /// The store holds every object of the server.
    Synced,
    /// The watch broke; it is tried again by itself.
    Failed(&'a watcher::Error),
    /// The store was emptied, and is filled again by itself.
    GivenUp(GivenUp),
}

/// A store that follows `api`, and the future that keeps it up to date for as long as it is polled.
///
/// `on` is called after the store was changed, so a task that it wakes reads at least that state.
pub fn follow<K: Followed>(
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    follow_at(Backoff::new(MIN_DELAY, MAX_DELAY), api, config, dyntype, on)
}

/// The same with other delays between tries.
pub fn follow_at<K: Followed>(
    backoff: Backoff,
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    let config = config.timeout(WATCH_TIMEOUT_SECONDS);
    Following::of(api, config, dyntype, backoff, on).begin()
}

/// The same with a store whose age is known: `freshness` says it, and `api` has to use its [client](Freshness::client).
///
/// A store that is not proven current is listed again before its memory is too old to be used.
pub fn follow_dated<K: Followed>(
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    freshness: Freshness,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    let backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
    let mut following = Following::of(api, config.timeout(WATCH_SECONDS), dyntype, backoff, on);
    following.age = Some(Age::of(freshness));
    following.begin()
}

/// The same for a server that is not trusted: a store that would take more than `limit` bytes, or whose answers make this process
/// panic, is given up.
pub fn follow_up_to<K: Followed + Serialize>(
    limit: usize,
    backoff: Backoff,
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    let config = config.timeout(WATCH_TIMEOUT_SECONDS);
    let mut following = Following::of(api, config, dyntype, backoff, on);
    following.cap = Some(Cap::new(limit));
    following.begin()
}

/// A store, and what keeps it up to date.
struct Following<K: Followed, F> {
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
    backoff: Backoff,
    /// Nothing is asked of the server before.
    not_before: Instant,
    age: Option<Age>,
    cap: Option<Cap<K>>,
    /// Delays before it is filled again.
    empty: Backoff,
    on: F,
}

impl<K, F> Following<K, F>
where
    K: Followed,
    F: FnMut(Seen<'_, K>) + Send,
{
    fn of(api: Api<K>, config: watcher::Config, dyntype: K::DynamicType, backoff: Backoff, on: F) -> Self {
        Self {
            api,
            config,
            writer: Writer::new(dyntype),
            backoff,
            not_before: Instant::now(),
            age: None,
            cap: None,
            empty: Backoff::new(MIN_EMPTY, MAX_EMPTY),
            on,
        }
    }

    fn begin(self) -> (Store<K>, impl Future<Output = ()> + Send) {
        (self.writer.as_reader(), self.run())
    }

    /// Ends in a panic where that would be the matter of every Cluster: see [`crate::stores`].
    async fn run(mut self) {
        loop {
            let isolated = self.cap.is_some();
            let following = self.until_given_up();
            let why = if isolated {
                // Whatever it was about to do, the store is emptied.
                let following = AssertUnwindSafe(following).catch_unwind().await;
                following.unwrap_or_else(|_panic| {
                    watch_panicked();
                    Some(GivenUp::Panicked)
                })
            } else {
                following.await
            };
            match why {
                Some(why) => self.give_up(why),
                None => return,
            }
        }
    }

    /// Returns why the store has to be given up. Without a reason nothing more will come.
    async fn until_given_up(&mut self) -> Option<GivenUp> {
        let mut events = watcher(self.api.clone(), self.config.clone()).boxed();
        loop {
            let event = tokio::select! {
                biased;
                event = next(&mut events, self.not_before) => event?,
                () = overdue(self.age.as_ref()) => {
                    self.age = self.age.take().map(|age| Age::of(age.freshness));
                    events = watcher(self.api.clone(), self.config.clone()).boxed();
                    continue;
                }
            };
            match event {
                Ok(event) => {
                    let event = event.modify(|object| object.meta_mut().managed_fields = None);
                    if let Some(cap) = &mut self.cap
                        && !cap.lets_in(&event)
                    {
                        return Some(GivenUp::TooMuch(cap.limit()));
                    }
                    self.take_in(&event);
                }
                Err(error) => {
                    self.not_before = Instant::now() + self.backoff.failed();
                    if is_too_long(&error) {
                        // What it has brought so far fills the store. A list says what of it is there.
                        events = watcher(self.api.clone(), self.config.clone()).boxed();
                    }
                    if let Some(age) = &mut self.age {
                        age.fail();
                    }
                    (self.on)(Seen::Failed(&error));
                }
            }
        }
    }

    fn take_in(&mut self, event: &Event<K>) {
        self.writer.apply_watcher_event(event);
        if let Some(age) = &mut self.age {
            age.note(event);
        }
        match event {
            Event::Apply(object) => (self.on)(Seen::Touched(object)),
            Event::Delete(object) => (self.on)(Seen::Gone(object)),
            Event::InitDone => {
                for object in self.writer.as_reader().state() {
                    (self.on)(Seen::Touched(&object));
                }
                (self.on)(Seen::Synced);
            }
            Event::Init | Event::InitApply(_) => {}
        }
    }

    /// Empties the store. It is filled again after a delay.
    fn give_up(&mut self, why: GivenUp) {
        // First, because an empty store says that nothing is there.
        (self.on)(Seen::GivenUp(why));
        self.writer.apply_watcher_event(&Event::Init);
        self.writer.apply_watcher_event(&Event::InitDone);
        if let Some(cap) = &mut self.cap {
            cap.clear();
        }
        self.not_before = Instant::now() + self.empty.failed();
    }
}

/// The next item, asked for `not_before` then: a watcher that failed tries again as soon as it is polled.
async fn next<S: Stream + Unpin>(events: &mut S, not_before: Instant) -> Option<S::Item> {
    sleep_until(not_before).await;
    events.next().await
}

/// What the stream of a dated store has shown.
struct Age {
    freshness: Freshness,
    /// Since when the store is being filled; none while it is watched.
    filling: Option<Instant>,
    /// When the stream said something last.
    heard: Instant,
    /// When the store was filled last.
    filled: Instant,
}

impl Age {
    fn of(freshness: Freshness) -> Self {
        let now = Instant::now();
        Self {
            freshness,
            filling: Some(now),
            heard: now,
            filled: now,
        }
    }

    /// To be called when the event is in the store.
    fn note<K>(&mut self, event: &Event<K>) {
        self.heard = Instant::now();
        match event {
            // kube-runtime says so before it asks for the list.
            Event::Init => self.filling = Some(self.heard),
            Event::InitDone => {
                self.filled = self.heard;
                if let Some(asked) = self.filling.take() {
                    self.freshness.proven(asked);
                }
            }
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
        }
    }

    fn fail(&mut self) {
        self.heard = Instant::now();
        self.freshness.doubted();
    }

    /// When to begin again with a list.
    fn deadline(&self) -> Instant {
        match (self.filling, self.freshness.proven_at()) {
            // A list that took long proves an old age, and the watch that follows proves a young one.
            (None, Some(proven)) => proven.max(self.filled) + RELIST_AFTER,
            _ => self.heard + LIST_SILENCE,
        }
    }
}

/// Returns when a dated store has to be listed again. A watch may have proven it meanwhile without an event.
async fn overdue(age: Option<&Age>) {
    let Some(age) = age else { return pending().await };
    while age.deadline() > Instant::now() {
        sleep_until(age.deadline()).await;
    }
}
