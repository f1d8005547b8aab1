//! Keeps one kind in memory and says what its watch has seen.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use futures::{FutureExt, Stream, StreamExt, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event, watcher},
};
use sluice_core::{
    compact::{Change, Kept, Packer},
    walls::{Brought, Failure, FollowedStore, GivenUp, Sign},
};
use tracing::warn;

use crate::{
    bounded::is_too_long,
    clock::{later, now},
    contract::code,
    lock::lock,
    metrics::watch_panicked,
    store::{Store, Writer},
};

/// A kind that a store can hold: each that is kept and that kube can list and watch.
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

/// What a watch has just seen.
#[derive(Debug)]
pub enum Seen<'a, K> {
    /// An object is new or changed.
    Touched(&'a K),
    /// A list has brought an object that is as it was.
    Unchanged(&'a K),
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
            Self::Touched(_) | Self::Unchanged(_) | Self::Gone(_) => Sign::Changed,
            Self::Synced => Sign::Filled,
            Self::Failed(error) => Sign::Failed(failure(error)),
            Self::GivenUp(why) => Sign::Emptied(*why),
        }
    }
}

fn failure(error: &watcher::Error) -> Failure {
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

/// Whether an object that has changed is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    There,
    /// It was.
    Gone,
}

/// Calls `changed` for each object that is new, changed or gone, and logs failures: that of `watching` the kind.
pub(crate) fn reporting<K>(
    kind: impl Display,
    watching: &'static str,
    changed: impl Fn(&K, Presence),
) -> impl Fn(&Seen<'_, K>) {
    move |seen| match seen {
        Seen::Touched(object) => changed(object, Presence::There),
        Seen::Gone(object) => changed(object, Presence::Gone),
        Seen::Failed(error) => warn!(%kind, %error, "{watching}"),
        Seen::Unchanged(_) | Seen::Synced | Seen::GivenUp(_) => {}
    }
}

/// A store that follows `api` as `followed` says, and the future that keeps it up to date for as long as it is polled. The age of a
/// dated one is known only if it is watched with a client that notes it, see [`crate::freshness`].
///
/// `on` is called after the store was changed, so a task that it wakes reads at least that state.
pub fn follow<K: Followed>(
    api: Api<K>,
    config: watcher::Config,
    packer: Arc<Packer<K>>,
    followed: Arc<Mutex<FollowedStore>>,
    on: impl FnMut(&Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send) {
    let seconds = lock(&followed).watch_seconds();
    let writer = Writer::new(packer, lock(&followed).recent());
    let store = writer.store();
    let following = Following {
        api,
        config: config.timeout(seconds),
        writer,
        followed,
        on,
    };
    (store, following.run())
}

/// A store, and what keeps it up to date.
struct Following<K: Followed, F> {
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
    followed: Arc<Mutex<FollowedStore>>,
    on: F,
}

impl<K, F> Following<K, F>
where
    K: Followed,
    F: FnMut(&Seen<'_, K>) + Send,
{
    /// Ends in a panic where that would be the matter of every Cluster: see [`crate::stores`].
    async fn run(mut self) {
        let isolated = self.followed().is_untrusted();
        loop {
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
        let mut events = self.list();
        loop {
            let (not_before, relist_at) = {
                let followed = self.followed();
                (followed.not_before(), followed.relist_at())
            };
            let event = tokio::select! {
                biased;
                event = next(&mut events, not_before) => event?,
                () = later(relist_at) => {
                    // The end of a watch may have proven it meanwhile, without an event.
                    if self.followed().relist_at().is_some_and(|at| at <= now()) {
                        events = self.list();
                    }
                    continue;
                }
            };
            match event {
                Ok(event) => {
                    if let Err(exceeded) = self.take_in(&event.modify(Kept::prune)) {
                        return Some(exceeded);
                    }
                }
                Err(error) => {
                    self.followed().failed(now());
                    (self.on)(&Seen::Failed(&error));
                    if is_too_long(&error) {
                        // What it has brought so far fills the store. A list says what of it is there.
                        events = self.list();
                    }
                }
            }
        }
    }

    /// What comes from now on, beginning with a list.
    fn list(&self) -> BoxStream<'static, watcher::Result<Event<K>>> {
        self.followed().list(now());
        watcher(self.api.clone(), self.config.clone()).boxed()
    }

    fn take_in(&mut self, event: &Event<K>) -> Result<(), GivenUp> {
        let brought = brought(event);
        self.followed().admit(&brought)?;
        let (mut change, mut gone) = (Change::Changed, Vec::new());
        match brought {
            Brought::List => self.writer.list(),
            Brought::Listed(object) | Brought::Touched(object) => change = self.writer.put(object),
            Brought::Gone(object) => self.writer.remove(object),
            Brought::Filled => gone = self.writer.listed(),
        }
        self.followed().took(&brought, now());
        match brought {
            Brought::Listed(object) if change == Change::Same => (self.on)(&Seen::Unchanged(object)),
            Brought::Listed(object) | Brought::Touched(object) => (self.on)(&Seen::Touched(object)),
            Brought::Gone(object) => (self.on)(&Seen::Gone(object)),
            Brought::Filled => {
                for object in &gone {
                    (self.on)(&Seen::Gone(object));
                }
                (self.on)(&Seen::Synced);
            }
            Brought::List => {}
        }
        Ok(())
    }

    /// Empties the store. It is filled again after a delay.
    fn give_up(&mut self, why: GivenUp) {
        // First, because an empty store says that nothing is there.
        (self.on)(&Seen::GivenUp(why));
        self.writer.clear();
        self.followed().emptied(now());
    }

    fn followed(&self) -> MutexGuard<'_, FollowedStore> {
        lock(&self.followed)
    }
}

fn brought<K>(event: &Event<K>) -> Brought<'_, K> {
    match event {
        Event::Init => Brought::List,
        Event::InitApply(object) => Brought::Listed(object),
        Event::InitDone => Brought::Filled,
        Event::Apply(object) => Brought::Touched(object),
        Event::Delete(object) => Brought::Gone(object),
    }
}

/// The next item, asked for `not_before` then: a watcher that failed tries again as soon as it is polled.
async fn next<S: Stream + Unpin>(events: &mut S, not_before: Option<Instant>) -> Option<S::Item> {
    if not_before.is_some() {
        later(not_before).await;
    }
    events.next().await
}
