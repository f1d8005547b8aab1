//! Watches of kinds that are only known once an object names them.
//!
//! Each has a task of its own, so that a kind that cannot be read is the matter of the objects that name it.

mod named;

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::FutureExt;
use kube::{
    Api, Resource,
    core::ApiResource,
    runtime::{
        reflector::Store,
        watcher::{self, Error},
    },
};
use sluice_core::pass;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{sleep, timeout},
};

pub use named::{NamedKinds, Standing};

use crate::{
    backoff::Backoff,
    metrics::watch_panicked,
    watch::{Followed, Seen, follow_at},
};

/// How long the API server may take to say how a kind is served.
const FINDING: Duration = Duration::from_secs(10);

/// How long the first list of a kind may take until those that ask are given a reason.
const LISTING: Duration = Duration::from_secs(10);

/// The first delay before a kind that cannot be read is tried again.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest one.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// What is said of a kind whose watch panicked.
const PANICKED: &str = "its watch ended in a bug of Sluice; the log of Sluice says where";

/// How far the watch of a kind is.
#[derive(Debug, Clone)]
pub enum State<K>
where
    K: Resource<DynamicType = ApiResource> + 'static,
{
    /// Nothing is known yet, for some seconds at most.
    Reading,
    /// The store holds every object of the server.
    Readable {
        /// How the kind is served.
        resource: ApiResource,
        /// Its objects.
        store: Store<K>,
    },
    /// The API server does not serve the kind.
    Unserved,
    /// The kind cannot be read, and why: one line without any content of objects.
    Unreadable(String),
}

impl<K> State<K>
where
    K: Resource<DynamicType = ApiResource> + 'static,
{
    /// How far the kind is.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self {
            Self::Readable { .. } => Standing::Readable,
            Self::Reading => Standing::Reading,
            Self::Unserved | Self::Unreadable(_) => Standing::Unreadable,
        }
    }

    fn is_same_failure(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unserved, Self::Unserved) => true,
            (Self::Unreadable(one), Self::Unreadable(other)) => one == other,
            _ => false,
        }
    }
}

/// The watch of one kind. Dropping it ends it.
#[derive(Debug)]
pub struct KindWatch<K>
where
    K: Resource<DynamicType = ApiResource> + 'static,
{
    state: watch::Receiver<State<K>>,
    task: AbortHandle,
}

impl<K> KindWatch<K>
where
    K: Followed + Resource<DynamicType = ApiResource>,
{
    /// Watches what `find` finds, as `scope` says, for as long as the answer lives. `find` returns how the kind is served, nothing
    /// if it is not, or why it may not be read. `on` is called for each event, and `changed` when the state has changed.
    pub fn open<F>(
        find: impl Fn() -> F + Send + Sync + 'static,
        scope: impl Fn(&ApiResource) -> (Api<K>, watcher::Config) + Send + Sync + 'static,
        on: impl Fn(&Seen<'_, K>) + Send + Sync + 'static,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Option<ApiResource>, String>> + Send,
    {
        let (sender, state) = watch::channel(State::Reading);
        let set = move |next: State<K>| {
            // A failure that repeats itself is no news.
            let is_news = sender.send_if_modified(|state| {
                let is_news = !state.is_same_failure(&next);
                *state = next;
                is_news
            });
            if is_news {
                changed();
            }
        };
        let task = async move {
            let mut backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
            loop {
                let attempt = async {
                    match timeout(FINDING, find()).await {
                        Ok(Ok(Some(resource))) => {
                            let (api, config) = scope(&resource);
                            return follow_until_refused(api, config, &resource, &on, &set).await;
                        }
                        Ok(Ok(None)) => set(State::Unserved),
                        Ok(Err(why)) => set(State::Unreadable(why)),
                        Err(_) => set(State::Unreadable(format!(
                            "the API server did not say within {} s how it is served",
                            FINDING.as_secs()
                        ))),
                    }
                    false
                };
                match AssertUnwindSafe(attempt).catch_unwind().await {
                    Ok(true) => backoff.reset(),
                    Ok(false) => {}
                    // The store of this attempt goes with it.
                    Err(_panic) => {
                        watch_panicked();
                        set(State::Unreadable(PANICKED.to_owned()));
                    }
                }
                sleep(backoff.failed()).await;
            }
        };
        Self {
            state,
            task: tokio::spawn(task).abort_handle(),
        }
    }

    /// How far the watch is.
    #[must_use]
    pub fn state(&self) -> State<K> {
        // Without its task the store would be as it was for ever.
        if self.state.has_changed().is_err() {
            return State::Unreadable(PANICKED.to_owned());
        }
        self.state.borrow().clone()
    }

    /// What is readable, as soon as that is known: after some seconds at most. `None` if the API server does not serve the kind.
    ///
    /// # Errors
    /// The kind cannot be read, and why: one line without any content of objects.
    pub async fn settled(&self) -> Result<Option<(ApiResource, Store<K>)>, String> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Reading));
        // What it came to is asked for again, because the task may have ended.
        let _either_way = timeout(FINDING + LISTING, settled).await.is_ok();
        match self.state() {
            State::Readable { resource, store } => Ok(Some((resource, store))),
            State::Unserved => Ok(None),
            State::Unreadable(why) => Err(why),
            State::Reading => Err("nothing was listed in time".to_owned()),
        }
    }
}

impl<K> Drop for KindWatch<K>
where
    K: Resource<DynamicType = ApiResource> + 'static,
{
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Follows `resource` until the API server refuses that. Says whether it was readable at some time.
async fn follow_until_refused<K>(
    api: Api<K>,
    config: watcher::Config,
    resource: &ApiResource,
    on: &(impl Fn(&Seen<'_, K>) + Send + Sync),
    set: &(impl Fn(State<K>) + Send + Sync),
) -> bool
where
    K: Followed + Resource<DynamicType = ApiResource>,
{
    let backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
    let (filled, refused) = (Notify::new(), Notify::new());
    let (readable, ever, failed) = <(AtomicBool, AtomicBool, AtomicBool)>::default();
    let (store, run) = follow_at(backoff, api, config, resource.clone(), |seen| {
        on(&seen);
        match &seen {
            Seen::Synced => {
                readable.store(true, Ordering::Relaxed);
                ever.store(true, Ordering::Relaxed);
                filled.notify_one();
            }
            Seen::Failed(error) => {
                failed.store(true, Ordering::Relaxed);
                let status = status(error);
                // A connection that breaks is no reason: what was listed is still what was there, and it is opened again.
                if !readable.load(Ordering::Relaxed) || status.is_some() {
                    readable.store(false, Ordering::Relaxed);
                    set(State::Unreadable(refusal(resource, error)));
                }
                // After a refused watch kube-runtime lists no more once a later one succeeds, so that nothing would say that the
                // store is readable again. And a kind that is not found may be served in another version.
                if status.is_some() {
                    refused.notify_one();
                }
            }
            Seen::Touched(_) | Seen::Gone(_) | Seen::GivenUp(_) => {}
        }
    });
    let late = async {
        sleep(LISTING).await;
        if !ever.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
            set(State::Unreadable(format!(
                "nothing was listed within {} s",
                LISTING.as_secs()
            )));
        }
        std::future::pending::<()>().await;
    };
    let publish = async {
        loop {
            filled.notified().await;
            set(State::Readable {
                resource: resource.clone(),
                store: store.clone(),
            });
        }
    };
    tokio::select! {
        () = run => {}
        () = refused.notified() => {}
        () = late => {}
        () = publish => {}
    }
    ever.load(Ordering::Relaxed)
}

/// The code with which the API server refused, if it did.
fn status(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            match error {
                kube::Error::Api(status) if (400..429).contains(&status.code) => Some(status.code),
                _ => None,
            }
        }
        Error::WatchError(_) | Error::NoResourceVersion => None,
    }
}

fn refusal(resource: &ApiResource, error: &Error) -> String {
    let ApiResource { group, plural, .. } = resource;
    match status(error) {
        Some(401 | 403) => format!(
            "Sluice may not read {plural} in group {group}; {}",
            pass::missing_rule("get, list and watch", &pass::Resource::from(resource))
        ),
        Some(code) => format!("the API server refuses to list {plural} in group {group} with {code}"),
        None => format!("{plural} in group {group} cannot be listed"),
    }
}
