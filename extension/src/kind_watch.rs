//! Watches of kinds that are only known once an object names them.
//!
//! Each has a task of its own, so that a kind that cannot be read is the matter of the objects that name it.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use kube::{
    Api, Client, Resource,
    core::ApiResource,
    runtime::{reflector::Store, watcher},
};
use sluice_core::walls::{
    Attempts, Ended, Failure, FollowedKind, FollowedStore, KindState, LISTING, Next, Sign, WatchAnswer,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    clock::{later, now},
    freshness::noting,
    metrics::watch_panicked,
    watch::{Followed, Seen, follow},
};

/// How long the API server may take to say how a kind is served.
const FINDING: Duration = Duration::from_secs(10);

/// How far the watch of a kind is.
pub type State<K> = KindState<Store<K>>;

/// The watch of one kind. Dropping it ends it.
#[derive(Debug)]
pub struct KindWatch<K>
where
    K: Resource<DynamicType = ApiResource> + 'static,
{
    state: watch::Receiver<State<K>>,
    _task: AbortOnDropHandle<()>,
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
            if sender.send_if_modified(|state| state.becomes(next)) {
                changed();
            }
        };
        let task = async move {
            let mut attempts = Attempts::default();
            loop {
                let attempt = async {
                    match timeout(FINDING, find()).await {
                        Ok(Ok(Some(resource))) => {
                            let kind = watch::Sender::new(attempts.begin(now()));
                            let scope = scope(noting_answers(&client, &kind), &resource);
                            return follow_kind(scope, &resource, &kind, &on, &set).await;
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
                let ended = AssertUnwindSafe(attempt).catch_unwind().await;
                let ended = ended.unwrap_or_else(|_panic| {
                    // The store of this attempt goes with it.
                    watch_panicked();
                    set(State::panicked());
                    Ended::Panicked
                });
                sleep(attempts.ended(ended, now())).await;
            }
        };
        Self {
            state,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }

    /// How far the watch is.
    #[must_use]
    pub fn state(&self) -> State<K> {
        // Without its task the store would be as it was for ever.
        if self.state.has_changed().is_err() {
            return State::panicked();
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
        self.state().settled()
    }
}

/// The client that a kind is to be followed with.
fn noting_answers(client: &Client, kind: &watch::Sender<FollowedKind>) -> Client {
    let kind = kind.clone();
    noting(client.clone(), move |answer| {
        kind.send_modify(|kind| match answer {
            WatchAnswer::Begun => kind.watch_answered(now()),
            WatchAnswer::Ended { asked } => kind.watch_ended(asked, now()),
        });
    })
}

/// Follows what is in `scope` until the API server refuses that, or shows nothing of it.
async fn follow_kind<K>(
    (api, config): (Api<K>, watcher::Config),
    resource: &ApiResource,
    kind: &watch::Sender<FollowedKind>,
    on: &(impl Fn(&Seen<'_, K>) + Send + Sync),
    set: &(impl Fn(State<K>) + Send + Sync),
) -> Ended
where
    K: Followed + Resource<DynamicType = ApiResource>,
{
    let followed = Arc::new(Mutex::new(FollowedStore::of_named_kind()));
    let unreadable = |failure: Failure| set(State::Unreadable(failure.why(resource)));
    let (store, run) = follow(api, config, resource.clone(), followed, |seen| {
        on(seen);
        let sign = seen.sign();
        kind.send_modify(|kind| kind.saw(sign, now()));
        if let Sign::Failed(failure) = sign
            && kind.borrow().tells(failure)
        {
            unreadable(failure);
        }
    });
    let (mut run, mut answers) = (pin!(run), kind.subscribe());
    loop {
        answers.mark_unchanged();
        let mut next = Next::Wait(None);
        kind.send_if_modified(|kind| {
            next = kind.next(now());
            false
        });
        let until = match next {
            Next::Wait(until) => until,
            Next::Readable => {
                let (resource, store) = (resource.clone(), store.clone());
                set(State::Readable { resource, store });
                continue;
            }
            Next::Late => {
                let why = format!("nothing was listed within {} s", LISTING.as_secs());
                set(State::Unreadable(why));
                continue;
            }
            Next::Broken(ended) => {
                unreadable(Failure::WATCH);
                return ended;
            }
            Next::End(ended) => return ended,
        };
        tokio::select! {
            biased;
            () = &mut run => return kind.borrow().ended(),
            _changed = answers.changed() => {}
            () = later(until) => {}
        }
    }
}
