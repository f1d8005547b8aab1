//! Keeps a store of one kind up to date and reports the events of its watch.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
    panic::AssertUnwindSafe,
    time::Instant,
};

use futures::{
    FutureExt, Stream, StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api, Resource,
    core::ObjectMeta,
    runtime::watcher::{self, Event, watcher},
};
use sluice_core::{
    cache::{Brought, Cached, Failure, FollowedStore, Sign},
    decode::{Decode, Item, Undecodable},
    limits::GivenUp,
};
use tracing::warn;

use crate::{
    cache::{
        rollbacks::Restarts,
        store::{Change, Store, Writer},
        streamed::Lists,
        undecodable::Reported,
    },
    clock::{later, now},
    kube_client::{bounded::is_too_long, responses::code},
    telemetry::metrics::watch_panicked,
};

/// Objects in a page of a list that is not streamed: the whole text of a page is in memory, and an object may have 1.5 MiB.
const PAGE: u32 = 10;

/// The same for a workload cluster, whose responses have a maximum size.
const PAGE_OF_WORKLOAD: u32 = 100;

/// Kind that a store can hold: cacheable, and listed and watched by kube.
pub trait Followed:
    Cached + Resource<DynamicType: Eq + Hash + Clone> + Clone + Debug + Send + Sync + 'static
{
}

impl<K> Followed for K
where
    K: Cached + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
}

/// Event of a watch.
#[derive(Debug)]
pub enum Seen<'a, K> {
    /// The watch has changed an object.
    Changed(&'a Change<K>),
    /// The watch has shown an unchanged object.
    Unchanged,
    /// A list has completed with these changes: the store holds every object of the server.
    Synced(&'a [Change<K>]),
    /// The watch failed; it retries by itself.
    Failed(&'a watcher::Error),
    /// The store was emptied and fills again by itself.
    GivenUp(GivenUp),
}

impl<K: Cached> Seen<'_, K> {
    fn changes(&self) -> &[Change<K>] {
        match self {
            Self::Changed(change) => std::slice::from_ref(change),
            Self::Synced(changes) => changes,
            Self::Unchanged | Self::Failed(_) | Self::GivenUp(_) => &[],
        }
    }

    /// Calls `changed` for each decodable object that is new, changed, deleted, or cannot be decoded any more.
    pub(crate) fn each(&self, mut changed: impl FnMut(&K, Presence)) {
        for change in self.changes() {
            if let Some(object) = change.changed() {
                changed(&object, Presence::There);
            }
            if let Some(object) = change.gone() {
                changed(&object, Presence::Gone);
            }
        }
    }

    /// Calls `changed` for each undecodable object that is new, changed, deleted or corrected.
    pub(crate) fn each_undecodable(&self, mut changed: impl FnMut(&Undecodable, Presence)) {
        for change in self.changes() {
            if let Some(object) = change.undecodable() {
                changed(object, Presence::There);
            }
            if let Some(object) = change.undecodable_gone() {
                changed(object, Presence::Gone);
            }
        }
    }

    /// Returns the sign of life that the event gives.
    #[must_use]
    pub fn sign(&self) -> Sign {
        match self {
            Self::Changed(_) | Self::Unchanged => Sign::Changed,
            Self::Synced(_) => Sign::Filled,
            Self::Failed(error) => Sign::Failed(failure(error)),
            Self::GivenUp(why) => Sign::Emptied(*why),
        }
    }
}

pub(crate) fn failure(error: &watcher::Error) -> Failure {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    let code = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => code(error),
        WatchError(_) | NoResourceVersion => None,
    };
    Failure {
        of_list: matches!(error, InitialListFailed(_)),
        answered: code.is_some() || matches!(error, WatchError(_)),
        code,
    }
}

/// Presence of a changed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object exists.
    There,
    /// The object was deleted.
    Gone,
}

/// Returns a handler that calls `changed` for each object that is new, changed or deleted, decodable or not. It logs failures with the
/// message `watching`.
pub(crate) fn reporting<K: Cached>(
    kind: impl Display,
    watching: &'static str,
    changed: impl Fn(&ObjectMeta, Presence),
) -> impl Fn(&Seen<'_, K>) {
    move |seen| {
        seen.each(|object, presence| changed(object.meta(), presence));
        seen.each_undecodable(|object, presence| changed(&object.metadata, presence));
        if let Seen::Failed(error) = seen {
            warn!(%kind, %error, "{watching}");
        }
    }
}

/// Returns a store that follows `api` as `followed` says, and the future that keeps it up to date while polled. Each of `restarts` starts
/// it again with a list. Lists are streamed only with the client of `cache::streamed`.
///
/// Calls `on` after each change of the store, so a task that it requeues reads at least that state.
pub fn follow<K: Followed>(
    api: Api<Item<K>>,
    config: watcher::Config,
    followed: FollowedStore,
    restarts: Restarts,
    on: impl FnMut(&Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    let untrusted = followed.is_untrusted();
    let writer = Writer::default();
    let store = writer.store();
    let following = Following {
        events: Events::of(api, config, followed, restarts),
        writer,
        reported: Reported::new(untrusted),
        on,
    };
    (store, following.run())
}

/// Task state that keeps a store up to date.
struct Following<K: Followed, F> {
    events: Events<K>,
    writer: Writer<K>,
    reported: Reported,
    on: F,
}

impl<K, F> Following<K, F>
where
    K: Followed,
    F: FnMut(&Seen<'_, K>) + Send,
{
    /// Ends in a panic where that would affect every Cluster: see [`crate::cache::stores`].
    async fn run(mut self) {
        let isolated = self.events.followed.is_untrusted();
        loop {
            let following = self.until_given_up();
            let why = if isolated {
                // A panic may interrupt any change, so the store is emptied.
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

    /// Returns the reason for giving up the store. Without a reason the stream has ended.
    async fn until_given_up(&mut self) -> Option<GivenUp> {
        self.events.list();
        loop {
            match self.events.next().await? {
                Ok(event) => {
                    if let Err(exceeded) = self.events.followed.admit(&brought(&event)) {
                        return Some(exceeded);
                    }
                    self.take_in(event);
                }
                Err(error) => (self.on)(&Seen::Failed(&error)),
            }
        }
    }

    fn take_in(&mut self, event: Event<Item<K>>) {
        let (ends_list, in_list) = match event {
            Event::InitDone => (true, true),
            Event::Init | Event::InitApply(_) => (false, true),
            Event::Apply(_) | Event::Delete(_) => (false, false),
        };
        let changes = self.writer.apply(event);
        let seen = match &*changes {
            changes if ends_list => Seen::Synced(changes),
            [change] => Seen::Changed(change),
            _ if in_list => return,
            _ => Seen::Unchanged,
        };
        seen.each_undecodable(|object, presence| self.reported.saw(object, presence));
        (self.on)(&seen);
        if ends_list {
            self.writer.set_filled();
        }
    }

    /// Empties the store. It fills again after a delay.
    fn give_up(&mut self, why: GivenUp) {
        // First, because an empty store means that no object exists.
        (self.on)(&Seen::GivenUp(why));
        self.writer.clear();
        self.reported = Reported::new(self.events.followed.is_untrusted());
        self.events.followed.emptied(now());
    }
}

/// Stream of the lists and watches of a kind: after a failure it retries as soon as `followed` allows.
pub(crate) struct Events<K> {
    api: Api<Item<K>>,
    config: watcher::Config,
    lists: Lists,
    followed: FollowedStore,
    restarts: Restarts,
    stream: BoxStream<'static, watcher::Result<Event<Item<K>>>>,
}

impl<K> Events<K>
where
    K: Resource<DynamicType: Clone> + Decode + Clone + Debug + Send + Sync + 'static,
{
    /// Creates a stream without events before [`Self::list`] is called.
    pub(crate) fn of(
        api: Api<Item<K>>,
        config: watcher::Config,
        followed: FollowedStore,
        restarts: Restarts,
    ) -> Self {
        let page = if followed.is_untrusted() {
            PAGE_OF_WORKLOAD
        } else {
            PAGE
        };
        Self {
            api,
            lists: Lists::of(&config),
            config: watcher::Config {
                timeout: followed.watch_seconds(),
                ..config.page_size(page)
            },
            followed,
            restarts,
            stream: stream::pending().boxed(),
        }
    }

    /// Starts the stream again with a list.
    pub(crate) fn list(&mut self) {
        self.stream = watcher(self.api.clone(), self.lists.ask(&self.config)).boxed();
    }

    /// Returns the next event. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<watcher::Result<Event<Item<K>>>> {
        loop {
            let not_before = self.followed.not_before();
            let event = tokio::select! {
                biased;
                () = self.restarts.next() => {
                    self.list();
                    continue;
                }
                event = next(&mut self.stream, not_before) => event,
            };
            match event? {
                Ok(event) if self.lists.begins_again(&event) => {
                    self.followed.failed(now());
                    self.list();
                }
                Ok(event) => return Some(Ok(event)),
                Err(error) if self.lists.cannot_be_streamed(&error) => self.list(),
                Err(error) => {
                    self.followed.failed(now());
                    if self.lists.breaks_off() || is_too_long(&error) {
                        // The events so far fill the store. A list shows which of them exist.
                        self.list();
                    }
                    return Some(Err(error));
                }
            }
        }
    }
}

pub(crate) fn brought<T>(event: &Event<T>) -> Brought<'_, T> {
    match event {
        Event::Init => Brought::List,
        Event::InitApply(object) => Brought::Listed(object),
        Event::InitDone => Brought::Filled,
        Event::Apply(object) => Brought::Touched(object),
        Event::Delete(object) => Brought::Gone(object),
    }
}

/// Returns the next item, polled at `not_before` or later: a failed watcher retries as soon as it is polled.
async fn next<S: Stream + Unpin>(events: &mut S, not_before: Option<Instant>) -> Option<S::Item> {
    if not_before.is_some() {
        later(not_before).await;
    }
    events.next().await
}
