//! Keeps one kind in memory and says what its watch has seen.

use std::{
    fmt::Debug,
    hash::Hash,
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures::{FutureExt, Stream, StreamExt};
use kube::{
    Api, Resource,
    runtime::{
        reflector::{Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use sluice_core::walls::{Backoff, Cap, Failure, GivenUp, Sign, WATCH_SECONDS};

use crate::{
    bounded::is_too_long,
    clock::{later, now},
    freshness::Freshness,
    metrics::watch_panicked,
};

/// A watch that is silent for this long is taken for dead; kube's own default would be five minutes.
const WATCH_TIMEOUT_SECONDS: u32 = 30;

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
    + Serialize
    + DeserializeOwned
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Followed for K
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
}

/// What a watch has just seen.
#[derive(Debug)]
pub enum Seen<'a, K> {
    /// An object is new or changed, or the store was filled from a list.
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

impl<K> Seen<'_, K> {
    /// What it says of the server.
    #[must_use]
    pub fn sign(&self) -> Sign {
        match self {
            Self::Touched(_) | Self::Gone(_) => Sign::Changed,
            Self::Synced => Sign::Filled,
            Self::Failed(error) => Sign::Failed(failure(error)),
            Self::GivenUp(why) => Sign::Emptied(*why),
        }
    }
}

fn failure(error: &watcher::Error) -> Failure {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    let code = match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => Some(status.code),
        InitialListFailed(_) | WatchStartFailed(_) | WatchFailed(_) | WatchError(_) | NoResourceVersion => {
            None
        }
    };
    Failure {
        of_list: matches!(error, InitialListFailed(_)),
        answered: code.is_some() || matches!(error, WatchError(_)),
        code,
    }
}

/// How a store is followed; unless said otherwise, as those of the management API server are.
#[derive(Debug)]
pub struct Manner {
    /// Delays before a watch that broke is tried again.
    pub backoff: Backoff,
    /// The age of the store is noted here; it has to be watched with this [client](Freshness::client). A store that is not proven
    /// current is listed again before its memory is too old to be used.
    pub freshness: Option<Freshness>,
    /// The server is not trusted: a store that would take more than so many bytes, or whose answers make this process panic, is given
    /// up.
    pub limit: Option<usize>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(MIN_DELAY, MAX_DELAY),
            freshness: None,
            limit: None,
        }
    }
}

/// A store that follows `api`, and the future that keeps it up to date for as long as it is polled.
///
/// `on` is called after the store was changed, so a task that it wakes reads at least that state.
pub fn follow<K: Followed>(
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    manner: Manner,
    on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    let is_dated = manner.freshness.is_some();
    let writer = Writer::new(dyntype);
    let store = writer.as_reader();
    let following = Following {
        api,
        config: config.timeout(if is_dated {
            WATCH_SECONDS
        } else {
            WATCH_TIMEOUT_SECONDS
        }),
        writer,
        backoff: manner.backoff,
        not_before: now(),
        freshness: manner.freshness,
        cap: manner.limit.map(Cap::new),
        empty: Backoff::new(MIN_EMPTY, MAX_EMPTY),
        on,
    };
    (store, following.run())
}

/// A store, and what keeps it up to date.
struct Following<K: Followed, F> {
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
    backoff: Backoff,
    /// Nothing is asked of the server before.
    not_before: Instant,
    freshness: Option<Freshness>,
    cap: Option<Cap>,
    /// Delays before it is filled again.
    empty: Backoff,
    on: F,
}

impl<K, F> Following<K, F>
where
    K: Followed,
    F: FnMut(Seen<'_, K>) + Send,
{
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
        // Each turn begins with a list.
        loop {
            if let Some(freshness) = &self.freshness {
                freshness.lock().list(now());
            }
            let mut events = watcher(self.api.clone(), self.config.clone()).boxed();
            loop {
                let event = tokio::select! {
                    biased;
                    event = next(&mut events, self.not_before) => event?,
                    () = overdue(self.freshness.as_ref()) => break,
                };
                match event {
                    Ok(event) => {
                        let event = event.modify(|object| object.meta_mut().managed_fields = None);
                        let exceeded = self.cap.as_mut().and_then(|cap| exceeded(cap, &event));
                        if exceeded.is_some() {
                            return exceeded;
                        }
                        self.take_in(&event);
                    }
                    Err(error) => {
                        self.not_before = now() + self.backoff.failed(now());
                        if let Some(freshness) = &self.freshness {
                            freshness.lock().failed(now());
                        }
                        (self.on)(Seen::Failed(&error));
                        if is_too_long(&error) {
                            // What it has brought so far fills the store. A list says what of it is there.
                            break;
                        }
                    }
                }
            }
        }
    }

    fn take_in(&mut self, event: &Event<K>) {
        self.writer.apply_watcher_event(event);
        if let Some(freshness) = &self.freshness {
            let mut age = freshness.lock();
            match event {
                // kube-runtime says so before it asks for the list.
                Event::Init => age.list(now()),
                Event::InitDone => age.filled(now()),
                Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => age.heard(now()),
            }
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
        self.not_before = now() + self.empty.failed(now());
    }
}

/// The next item, asked for `not_before` then: a watcher that failed tries again as soon as it is polled.
async fn next<S: Stream + Unpin>(events: &mut S, not_before: Instant) -> Option<S::Item> {
    later(Some(not_before)).await;
    events.next().await
}

/// Returns when a dated store has to be listed again. A watch may have proven it meanwhile without an event.
async fn overdue(freshness: Option<&Freshness>) {
    loop {
        let relist_at = freshness.and_then(|freshness| freshness.lock().relist_at());
        if relist_at.is_some_and(|at| at <= now()) {
            return;
        }
        later(relist_at).await;
    }
}

/// Whether the store may not take `event`. To be asked once for each.
fn exceeded<K: Followed>(cap: &mut Cap, event: &Event<K>) -> Option<GivenUp> {
    match event {
        Event::Init => cap.list(),
        Event::InitApply(object) => cap.listed(object),
        Event::InitDone => cap.filled(),
        Event::Apply(object) => cap.touched(object),
        Event::Delete(object) => cap.gone(object),
    }
    cap.exceeded()
}
