//! Watches of kinds that are only known once an object names them.
//!
//! Each has a task of its own, so that a kind that cannot be read is the matter of the objects that name it.

mod answers;
mod named;

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::FutureExt;
use kube::{
    Api, Client, Resource,
    core::ApiResource,
    runtime::{
        reflector::Store,
        watcher::{self, Error},
    },
};
use sluice_core::{pass, unsynced::CURRENT_FOR};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{sleep, timeout},
};

pub use named::{NamedKinds, Standing};

use answers::Answers;

use crate::{
    backoff::Backoff,
    metrics::watch_panicked,
    watch::{Followed, Seen, follow_at},
};

/// How long the API server may take to say how a kind is served.
const FINDING: Duration = Duration::from_secs(10);

/// How long the first list of a kind may take until those that ask are given a reason.
const LISTING: Duration = Duration::from_secs(10);

/// A kind of which nothing has shown for so long that no change of it was missed is listed again. Longer than two watches last: one
/// that brings nothing shows at its end what was not missed until it began.
const UNPROVEN: Duration = Duration::from_secs(75);

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
    /// Watches what `find` finds, as `scope` says of the client that it is given, for as long as the answer lives. `find` returns how
    /// the kind is served, nothing if it is not, or why it may not be read. `on` is called for each event, and `changed` when the
    /// state has changed.
    pub fn open<F>(
        client: Client,
        find: impl Fn() -> F + Send + Sync + 'static,
        scope: impl Fn(Client, &ApiResource) -> (Api<K>, watcher::Config) + Send + Sync + 'static,
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
            let mut doubted = false;
            loop {
                let attempt = async {
                    match timeout(FINDING, find()).await {
                        Ok(Ok(Some(resource))) => {
                            let answers = Answers::default();
                            let scope = scope(answers.client(&client), &resource);
                            return follow_until_refused(scope, &resource, &answers, doubted, &on, &set)
                                .await;
                        }
                        Ok(Ok(None)) => set(State::Unserved),
                        Ok(Err(why)) => set(State::Unreadable(why)),
                        Err(_) => set(State::Unreadable(format!(
                            "the API server did not say within {} s how it is served",
                            FINDING.as_secs()
                        ))),
                    }
                    Ended::Unread
                };
                match AssertUnwindSafe(attempt).catch_unwind().await {
                    Ok(Ended::Unread) => {}
                    Ok(Ended::Refused) => {
                        backoff.reset();
                        doubted = true;
                    }
                    Ok(Ended::Unproven) => {
                        backoff.reset();
                        doubted = false;
                    }
                    // The store of this attempt goes with it.
                    Err(_panic) => {
                        watch_panicked();
                        set(State::Unreadable(PANICKED.to_owned()));
                        doubted = true;
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

/// How following a kind has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It was not readable.
    Unread,
    /// It was readable, and is not any more.
    Refused,
    /// It is readable, but may have missed changes.
    Unproven,
}

/// Follows `resource` until the API server refuses that, or shows nothing of it. A kind that is `doubted` is readable once it was listed
/// and a watch of it is answered: lists alone were answered before.
async fn follow_until_refused<K>(
    (api, config): (Api<K>, watcher::Config),
    resource: &ApiResource,
    answers: &Answers,
    doubted: bool,
    on: &(impl Fn(&Seen<'_, K>) + Send + Sync),
    set: &(impl Fn(State<K>) + Send + Sync),
) -> Ended
where
    K: Followed + Resource<DynamicType = ApiResource>,
{
    let backoff = Backoff::new(MIN_DELAY, MAX_DELAY);
    let (filled, refused) = (Notify::new(), Notify::new());
    let (readable, listed, failed) = <(AtomicBool, AtomicBool, AtomicBool)>::default();
    let (store, run) = follow_at(backoff, api, config, resource.clone(), |seen| {
        on(&seen);
        answers.note(&seen);
        match &seen {
            Seen::Synced => {
                readable.fetch_or(!doubted, Ordering::Relaxed);
                listed.store(true, Ordering::Relaxed);
                filled.notify_one();
            }
            Seen::Failed(error) => {
                failed.store(true, Ordering::Relaxed);
                let status = status(error);
                // An error of any other sort is no reason yet: what was listed is what was there a moment ago, and it is tried again.
                if !readable.load(Ordering::Relaxed) || status.is_some() {
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
        if !listed.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
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
            if doubted {
                answers.watched().await;
            }
            readable.store(true, Ordering::Relaxed);
            set(State::Readable {
                resource: resource.clone(),
                store: store.clone(),
            });
        }
    };
    let unproven = tokio::select! {
        biased;
        () = run => false,
        // Before what would say that it is readable.
        () = refused.notified() => false,
        () = answers.only_errors(CURRENT_FOR) => {
            set(State::Unreadable(broken("watched", resource)));
            false
        }
        () = answers.unproven(UNPROVEN) => true,
        () = late => false,
        () = publish => false,
    };
    match (readable.load(Ordering::Relaxed), unproven) {
        (false, _) => Ended::Unread,
        (true, false) => Ended::Refused,
        (true, true) => Ended::Unproven,
    }
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
        None if matches!(error, Error::InitialListFailed(_)) => broken("listed", resource),
        None => broken("watched", resource),
    }
}

/// What is said of a kind that the API server does not refuse.
fn broken(cannot_be: &str, ApiResource { group, plural, .. }: &ApiResource) -> String {
    format!("{plural} in group {group} cannot be {cannot_be}; the log of Sluice says why")
}
