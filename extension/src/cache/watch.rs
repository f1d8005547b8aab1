//! Keeps a store of one kind up to date and reports the events of its watch.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
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
    cache::{
        Brought, Failure, FollowedStore, Sign,
        compact::{Change, Kept, Listed, Packed, Packer},
    },
    decode::{Decode, Item, Undecodable},
    limits::GivenUp,
};
use tracing::warn;

use crate::{
    cache::{
        rollbacks::Restarts,
        store::{Store, Writer},
        streamed::Lists,
        undecodable::Reported,
    },
    clock::{later, now},
    kube_client::{bounded::is_too_long, responses::code},
    lock::lock,
    telemetry::metrics::watch_panicked,
};

/// Objects in a page of a list that is not streamed: the whole text of a page is in memory, and an object may have 1.5 MiB.
const PAGE: u32 = 10;

/// The same for a workload cluster, whose responses have a maximum size.
const PAGE_OF_WORKLOAD: u32 = 100;

/// Kind that a store can hold: cacheable, and listed and watched by kube.
pub trait Followed:
    Kept + Resource<DynamicType: Eq + Hash + Clone> + Clone + Debug + Send + Sync + 'static
{
}

impl<K> Followed for K
where
    K: Kept + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
}

/// Event of a watch.
#[derive(Debug)]
pub enum Seen<'a, K> {
    /// An object is new or changed.
    Touched(&'a K),
    /// The watch has shown an unchanged object.
    Unchanged,
    /// An object is deleted or cannot be decoded any more.
    Gone(&'a K),
    /// An undecodable object is new, changed or deleted.
    Undecodable(&'a Undecodable, Presence),
    /// The store holds every object of the server, including the changes of the list.
    Synced(Changes<'a, K>),
    /// The watch failed; it retries by itself.
    Failed(&'a watcher::Error),
    /// The store was emptied and fills again by itself.
    GivenUp(GivenUp),
}

/// Changes of a list, besides those that were [touched](Seen::Touched) by the first list.
#[derive(Debug)]
pub struct Changes<'a, K> {
    store: &'a Store<K>,
    listed: &'a Listed<K>,
}

impl<K: Kept> Changes<'_, K> {
    /// Unpacks each object when its turn comes.
    fn each(&self, changed: &mut impl FnMut(&K, Presence)) {
        for name in &self.listed.changed {
            if let Some(object) = self.store.peek(Some(name.namespace()), name.name()) {
                changed(&object, Presence::There);
            }
        }
        for object in self.listed.gone.iter() {
            changed(&object, Presence::Gone);
        }
    }

    fn each_undecodable(&self, changed: &mut impl FnMut(&Undecodable, Presence)) {
        for object in &self.listed.undecodable_gone {
            changed(object, Presence::Gone);
        }
        for object in &self.listed.undecodable {
            changed(object, Presence::There);
        }
    }
}

impl<K: Kept> Seen<'_, K> {
    /// Calls `changed` for each decodable object that is new, changed or deleted.
    pub(crate) fn each(&self, mut changed: impl FnMut(&K, Presence)) {
        match self {
            Seen::Touched(object) => changed(object, Presence::There),
            Seen::Gone(object) => changed(object, Presence::Gone),
            Seen::Synced(listed) => listed.each(&mut changed),
            Seen::Undecodable(..) | Seen::Unchanged | Seen::Failed(_) | Seen::GivenUp(_) => {}
        }
    }

    /// Calls `changed` for each undecodable object that is new, changed or deleted.
    pub(crate) fn each_undecodable(&self, mut changed: impl FnMut(&Undecodable, Presence)) {
        match self {
            Seen::Undecodable(object, presence) => changed(object, *presence),
            Seen::Synced(listed) => listed.each_undecodable(&mut changed),
            Seen::Touched(_) | Seen::Gone(_) | Seen::Unchanged | Seen::Failed(_) | Seen::GivenUp(_) => {}
        }
    }
}

impl<K> Seen<'_, K> {
    /// Returns the sign of life that the event gives.
    #[must_use]
    pub fn sign(&self) -> Sign {
        match self {
            Self::Touched(_) | Self::Undecodable(..) | Self::Unchanged | Self::Gone(_) => Sign::Changed,
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
pub(crate) fn reporting<K: Kept>(
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
/// it again with a list. Lists are streamed only with the client of [`crate::cache::streamed`].
///
/// Calls `on` after each change of the store, so a task that it requeues reads at least that state.
pub fn follow<K: Followed>(
    api: Api<Item<K>>,
    config: watcher::Config,
    packer: Arc<Packer<K>>,
    followed: Arc<Mutex<FollowedStore>>,
    restarts: Restarts,
    on: impl FnMut(&Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    let untrusted = lock(&followed).is_untrusted();
    let writer = Writer::new(packer, lock(&followed).recent());
    let store = writer.store();
    let following = Following {
        events: Events::of(api, config, Arc::clone(&followed), restarts),
        writer,
        followed,
        reported: Reported::new(untrusted),
        on,
    };
    (store, following.run())
}

/// Task state that keeps a store up to date.
struct Following<K: Followed, F> {
    events: Events<K>,
    writer: Writer<K>,
    followed: Arc<Mutex<FollowedStore>>,
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
        let isolated = self.followed().is_untrusted();
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
                    let mut packed = None;
                    let event = event.modify(|item| packed = self.writer.pack(item));
                    if let Err(exceeded) = self.take_in(&event, packed.as_ref()) {
                        return Some(exceeded);
                    }
                }
                Err(error) => (self.on)(&Seen::Failed(&error)),
            }
        }
    }

    fn take_in(&mut self, event: &Event<Item<K>>, packed: Option<&Packed>) -> Result<(), GivenUp> {
        let brought = brought(event);
        self.followed().admit(&brought)?;
        match brought {
            Brought::List => self.writer.list(),
            Brought::Listed(item) | Brought::Touched(item) => {
                let change = self.put(item, packed);
                // An unchanged object of a list gives no sign of the server before the end of the list.
                if matches!(brought, Brought::Touched(_)) && change != Change::Changed {
                    (self.on)(&Seen::Unchanged);
                }
            }
            Brought::Gone(item) => {
                // The event may show a different state than the cached one.
                let (before, undecodable) = self.writer.remove(item.meta());
                match (item, before) {
                    (_, Some(before)) => (self.on)(&Seen::Gone(&before)),
                    (Item::Decoded(object), None) => (self.on)(&Seen::Gone(object)),
                    (Item::Undecodable(_), None) => {}
                }
                if let Some(undecodable) = undecodable {
                    self.saw_undecodable(&undecodable, Presence::Gone);
                }
            }
            Brought::Filled => {
                let listed = &self.writer.listed();
                let store = &self.writer.store();
                let changes = Changes { store, listed };
                changes.each_undecodable(&mut |object, presence| self.reported.saw(object, presence));
                (self.on)(&Seen::Synced(changes));
            }
        }
        Ok(())
    }

    /// Puts an object of a list or a watch into the store.
    fn put(&mut self, item: &Item<K>, packed: Option<&Packed>) -> Change {
        let object = match item {
            Item::Undecodable(object) => object,
            Item::Decoded(object) => {
                let Some(packed) = packed else { return Change::Same };
                let (change, mended) = self.writer.put(object, packed);
                if change == Change::Changed {
                    (self.on)(&Seen::Touched(object));
                    if let Some(mended) = mended {
                        self.reported.saw(&mended, Presence::Gone);
                    }
                }
                return change;
            }
        };
        let (change, before) = self.writer.put_undecodable(object);
        if let Some(before) = before {
            (self.on)(&Seen::Gone(&before));
        }
        if change == Change::Changed {
            self.saw_undecodable(object, Presence::There);
        }
        change
    }

    fn saw_undecodable(&mut self, object: &Undecodable, presence: Presence) {
        self.reported.saw(object, presence);
        (self.on)(&Seen::Undecodable(object, presence));
    }

    /// Empties the store. It fills again after a delay.
    fn give_up(&mut self, why: GivenUp) {
        // First, because an empty store means that no object exists.
        (self.on)(&Seen::GivenUp(why));
        self.writer.clear();
        let untrusted = self.followed().is_untrusted();
        self.reported = Reported::new(untrusted);
        self.followed().emptied(now());
    }

    fn followed(&self) -> MutexGuard<'_, FollowedStore> {
        lock(&self.followed)
    }
}

/// Stream of the lists and watches of a kind: after a failure it retries as soon as `followed` allows.
pub(crate) struct Events<K> {
    api: Api<Item<K>>,
    config: watcher::Config,
    lists: Lists,
    followed: Arc<Mutex<FollowedStore>>,
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
        followed: Arc<Mutex<FollowedStore>>,
        restarts: Restarts,
    ) -> Self {
        let (seconds, untrusted) = {
            let followed = lock(&followed);
            (followed.watch_seconds(), followed.is_untrusted())
        };
        let page = if untrusted { PAGE_OF_WORKLOAD } else { PAGE };
        Self {
            api,
            lists: Lists::of(&config),
            config: watcher::Config {
                timeout: seconds,
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
            let not_before = lock(&self.followed).not_before();
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
                    lock(&self.followed).failed(now());
                    self.list();
                }
                Ok(event) => return Some(Ok(event)),
                Err(error) if self.lists.cannot_be_streamed(&error) => self.list(),
                Err(error) => {
                    lock(&self.followed).failed(now());
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
