//! Watches of kinds that are known only once an object names them.
//!
//! Each watch has a task of its own, so that an unreadable kind affects only the objects that name it.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex},
    time::Instant,
};

use futures::FutureExt;
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicResourceScope},
    runtime::watcher,
};
use sluice_core::{
    cache::{
        Attempts, Ended, FINDING, FollowedKind, FollowedStore, KindState, LISTING, NamedKind, Next, Sign,
    },
    decode::Item,
};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::{
        contract::Contract,
        rollbacks::{Restarts, Rollbacks},
        store::Store,
        streamed::streaming,
        watch::{Followed, Seen, follow},
    },
    clock::{later, now},
    kube_client::{
        middleware::middleware,
        requests::{is_watch, streams_list},
    },
    lock::lock,
    telemetry::metrics::watch_panicked,
};

/// State of the watch of a kind.
pub type State<K> = KindState<Store<K>>;

/// Watch of one kind. Dropping it ends the watch.
#[derive(Debug)]
pub struct KindWatch<K: Resource<DynamicType = ApiResource> + 'static> {
    state: watch::Receiver<State<K>>,
    _task: AbortOnDropHandle<()>,
}

impl<K> KindWatch<K>
where
    K: Followed + Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    /// Watches the kind `named` as `contract` finds it, for as long as the returned value lives, in `attempts`. Calls `on` for each event
    /// and `changed` after each change of the state.
    pub fn open(
        contract: Contract,
        named: NamedKind,
        attempts: Attempts,
        rollbacks: Rollbacks,
        on: impl Fn(&Seen<'_, K>) + Send + Sync + 'static,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (sender, state) = watch::channel(State::Reading);
        let set = move |next: State<K>| {
            if sender.send_if_modified(|state| state.becomes(next)) {
                changed();
            }
        };
        let mut attempts = attempts;
        let task = async move {
            loop {
                let attempt = async {
                    match timeout(FINDING, contract.find(&named)).await {
                        Ok(Ok(Some(resource))) => {
                            let followed = attempts.begin(&resource, now());
                            let client = contract.client.clone();
                            let restarts = rollbacks.restarts();
                            let kind = (resource, followed);
                            return follow_kind(client, &named, kind, restarts, &on, &set).await;
                        }
                        Ok(Ok(None)) => set(State::Unserved),
                        Ok(Err(why)) => set(State::Unreadable(why)),
                        Err(_) => set(State::not_found_in_time()),
                    }
                    Ended::NeverReadable
                };
                let ended = AssertUnwindSafe(attempt).catch_unwind().await;
                let ended = ended.unwrap_or_else(|_panic| {
                    // The store of this attempt is dropped with it.
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

    /// Returns the state of the watch.
    #[must_use]
    pub fn state(&self) -> State<K> {
        // Without its task the store receives no updates.
        if self.state.has_changed().is_err() {
            return State::panicked();
        }
        self.state.borrow().clone()
    }

    /// Completes when the kind is listed for the first time or cannot be read.
    pub fn read(&self) -> impl Future<Output = ()> + Send + use<K> {
        let mut state = self.state.clone();
        async move {
            let read = state.wait_for(|state| !matches!(state, State::Reading));
            let _either_way = read.await.is_ok();
        }
    }

    /// Returns the readable kind once that is known, within seconds. `None` if the API server does not serve the kind.
    ///
    /// # Errors
    /// One line that tells why the kind cannot be read, without any content of objects.
    pub async fn settled(&self) -> Result<Option<(ApiResource, Store<K>)>, String> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::Reading));
        // The state is read again, because the task may have ended.
        let _either_way = timeout(FINDING + LISTING, settled).await.is_ok();
        self.state().settled()
    }
}

/// Returns the API and configuration of the watch of a kind.
fn scope<K>(client: Client, named: &NamedKind, resource: &ApiResource) -> (Api<Item<K>>, watcher::Config)
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    let everything = watcher::Config::default().streaming_lists();
    let Some((namespace, name)) = &named.single else {
        return (Api::all_with(client, resource), everything);
    };
    let api = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    (api, everything.fields(&format!("metadata.name={name}")))
}

/// State of a followed kind by the responses of the API server, with a notification for its task. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Judge(Arc<Following>);

struct Following {
    kind: Mutex<FollowedKind>,
    changed: Notify,
}

impl Judge {
    pub(crate) fn new(kind: FollowedKind) -> Self {
        Self(Arc::new(Following {
            kind: Mutex::new(kind),
            changed: Notify::new(),
        }))
    }

    fn note<T>(&self, note: impl FnOnce(&mut FollowedKind, Instant) -> T) -> T {
        let noted = note(&mut lock(&self.0.kind), now());
        self.0.changed.notify_one();
        noted
    }

    /// Returns a `client` whose accepted watches are observed.
    pub(crate) fn noting(&self, client: Client) -> Client {
        let judge = self.clone();
        middleware(client, move |client, request| {
            let judge = judge.clone();
            async move {
                let watches = is_watch(&request) && !streams_list(&request);
                let answer = client.send(request).await?;
                if watches && answer.status().is_success() {
                    judge.note(FollowedKind::watching);
                }
                Ok(answer)
            }
        })
    }

    /// Observes a sign of the kind. Returns the reason that callers receive now, if any.
    pub(crate) fn saw(&self, sign: Sign) -> Option<String> {
        self.note(|kind, now| kind.saw(sign, now))
    }

    /// Polls the watch until the API server refuses it or shows no sign of the kind. Calls `tell` each time the kind becomes readable, or
    /// becomes unreadable with a reason.
    pub(crate) async fn until_ended(
        &self,
        follows: impl Future<Output = ()>,
        tell: impl Fn(Result<(), String>),
    ) -> Ended {
        let mut follows = pin!(follows);
        loop {
            let next = lock(&self.0.kind).next(now());
            match next {
                Next::Readable => tell(Ok(())),
                Next::Unreadable(why) => tell(Err(why)),
                Next::End(ended) => return ended,
                Next::Wait(until) => tokio::select! {
                    biased;
                    () = &mut follows => return lock(&self.0.kind).ended(),
                    () = self.0.changed.notified() => {}
                    () = later(until) => {}
                },
            }
        }
    }
}

/// Follows a kind as it is served, until the API server refuses it or shows no sign of it.
async fn follow_kind<K>(
    client: Client,
    named: &NamedKind,
    (resource, kind): (ApiResource, FollowedKind),
    restarts: Restarts,
    on: &(impl Fn(&Seen<'_, K>) + Send + Sync),
    set: &(impl Fn(State<K>) + Send + Sync),
) -> Ended
where
    K: Followed + Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    let judge = Judge::new(kind);
    let (api, config) = scope(judge.noting(streaming(client)), named, &resource);
    let followed = Arc::new(Mutex::new(FollowedStore::of_named_kind()));
    let (store, run) = follow(api, config, Arc::default(), followed, restarts, |seen| {
        on(seen);
        if let Some(why) = judge.saw(seen.sign()) {
            set(State::Unreadable(why));
        }
    });
    let tell = |told| {
        set(match told {
            Ok(()) => State::Readable {
                resource: resource.clone(),
                store: store.clone(),
            },
            Err(why) => State::Unreadable(why),
        });
    };
    judge.until_ended(run, tell).await
}
