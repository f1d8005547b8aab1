//! Keeps one kind in memory and tells who is interested when an object changed.

use std::{fmt::Debug, future::pending, hash::Hash, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{
        reflector::{Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use crate::{
    backoff::Backoff,
    freshness::{Freshness, RELIST_AFTER, WATCH_SECONDS},
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
}

/// A store that follows `api`, and the future that keeps it up to date for as long as it is polled.
///
/// `on` is called after the store was changed, so a task that it wakes reads at least that state.
pub fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    follow_at(Backoff::new(MIN_DELAY, MAX_DELAY), api, config, dyntype, on)
}

/// The same with other delays between tries.
pub fn follow_at<K>(
    backoff: Backoff,
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    run(
        api,
        config.timeout(WATCH_TIMEOUT_SECONDS),
        dyntype,
        (backoff, None),
        on,
    )
}

/// The same with a store whose age is known: `freshness` says it, and `api` has to use its [client](Freshness::client).
///
/// A store that is not proven current is listed again before its memory is too old to be used.
pub fn follow_dated<K>(
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    freshness: Freshness,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    run(
        api,
        config.timeout(WATCH_SECONDS),
        dyntype,
        (Backoff::new(MIN_DELAY, MAX_DELAY), Some(Age::of(freshness))),
        on,
    )
}

fn run<K>(
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    (mut backoff, mut age): (Backoff, Option<Age>),
    mut on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let mut writer = Writer::new(dyntype);
    let store = writer.as_reader();
    let reader = store.clone();
    let run = async move {
        let begin = || watcher(api.clone(), config.clone()).boxed();
        let mut events = begin();
        let mut not_before = Instant::now();
        loop {
            let event = tokio::select! {
                biased;
                event = next(&mut events, not_before) => event,
                () = overdue(age.as_ref()) => {
                    age = age.map(|age| Age::of(age.freshness));
                    events = begin();
                    continue;
                }
            };
            let Some(event) = event else { return };
            match event {
                Ok(event) => {
                    let event = event.modify(|object| object.meta_mut().managed_fields = None);
                    writer.apply_watcher_event(&event);
                    if let Some(age) = &mut age {
                        age.note(&event);
                    }
                    match &event {
                        Event::Apply(object) => on(Seen::Touched(object)),
                        Event::Delete(object) => on(Seen::Gone(object)),
                        Event::InitDone => {
                            reader.state().iter().for_each(|object| on(Seen::Touched(object)));
                            on(Seen::Synced);
                        }
                        Event::Init | Event::InitApply(_) => {}
                    }
                }
                Err(error) => {
                    not_before = Instant::now() + backoff.failed();
                    if let Some(age) = &mut age {
                        age.fail();
                    }
                    on(Seen::Failed(&error));
                }
            }
        }
    };
    (store, run)
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
