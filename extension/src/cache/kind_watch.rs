//! Watches of kinds that are known only once an object names them.
//!
//! Each watch has a task of its own, so that an unreadable kind affects only the objects that name it.

use std::{panic::AssertUnwindSafe, pin::pin};

use futures::{FutureExt, Stream, StreamExt as _, channel::mpsc, future};
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicResourceScope},
    runtime::watcher,
};
use sluice_core::{
    cache::{Cached, FINDING, FollowedStore, KindHealth, KindState, LISTING, NamedKind, Sign, Verdict},
    decode::Item,
};
use tokio::{
    sync::watch,
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
        middleware::{Transport, middleware},
        requests::{is_watch, streams_list},
    },
    telemetry::metrics::watch_panicked,
};

/// State of the watch of a kind.
pub type State<K> = KindState<Store<K>>;

/// Watch of one kind. Dropping it ends the watch.
#[derive(Debug)]
pub struct KindWatch<K: Cached + 'static> {
    state: watch::Receiver<State<K>>,
    _task: AbortOnDropHandle<()>,
}

impl<K> KindWatch<K>
where
    K: Followed + Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    /// Watches the kind `named` as `contract` finds it, for as long as the returned value lives. Calls `on` for each event and `changed`
    /// after each change of the state. Without `retries` the first attempt is the only one, unless it makes the kind readable.
    pub fn open(
        contract: Contract,
        named: NamedKind,
        retries: bool,
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
        let task = async move {
            let (mut delays, mut needs_watch, mut retries) = (KindHealth::delays(), false, retries);
            loop {
                let attempt = async {
                    match timeout(FINDING, contract.find(&named)).await {
                        Ok(Ok(Some(resource))) => {
                            let client = contract.client.clone();
                            let health = KindHealth::new(resource.clone(), needs_watch, now());
                            let restarts = rollbacks.restarts();
                            return follow_kind(client, &named, (resource, health), restarts, &on, &set)
                                .await;
                        }
                        Ok(Ok(None)) => set(State::Unserved),
                        Ok(Err(why)) => set(State::Unreadable(why)),
                        Err(_) => set(State::not_found_in_time()),
                    }
                    false
                };
                let was_readable = match AssertUnwindSafe(attempt).catch_unwind().await {
                    Ok(was_readable) => was_readable,
                    Err(_panic) => {
                        // The store of this attempt is dropped with it.
                        watch_panicked();
                        set(State::panicked());
                        needs_watch = true;
                        false
                    }
                };
                if was_readable {
                    (needs_watch, retries) = (true, true);
                    delays.reset();
                }
                if !retries {
                    return future::pending().await;
                }
                sleep(delays.failed(now())).await;
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

/// Returns a transport that reports each accepted watch to `accepted`.
pub(crate) fn reporting_watches(
    inner: impl Into<Transport>,
    accepted: mpsc::UnboundedSender<()>,
) -> Transport {
    middleware(inner, move |inner, request| {
        let accepted = accepted.clone();
        async move {
            let watches = is_watch(&request) && !streams_list(&request);
            let answer = inner.send(request).await?;
            if watches && answer.status().is_success() {
                // Without a receiver the watch has ended.
                let _sent = accepted.unbounded_send(());
            }
            Ok(answer)
        }
    })
}

/// Polls the watch `run` of a kind until the kind is lost or `run` ends. `accepted` has its [accepted watches](reporting_watches), `seen` the
/// signs of its events. Calls `tell` each time the kind becomes readable, or unreadable with a reason. Returns whether it was readable.
pub(crate) async fn until_lost(
    mut health: KindHealth,
    mut accepted: impl Stream<Item = ()> + Unpin,
    mut seen: mpsc::UnboundedReceiver<Sign>,
    run: impl Future<Output = ()>,
    tell: impl Fn(Result<(), String>),
) -> bool {
    let mut run = pin!(run);
    loop {
        let wake_at = health.wake_at();
        let verdict = tokio::select! {
            biased;
            Some(()) = accepted.next() => {
                health.watching(now());
                None
            }
            Some(sign) = seen.next() => health.saw(sign, now()),
            () = &mut run => return health.was_readable(),
            () = later(wake_at) => health.wake(now()),
        };
        match verdict {
            Some(Verdict::Readable) => tell(Ok(())),
            Some(Verdict::Unreadable(why)) => tell(Err(why)),
            Some(Verdict::Lost(why)) => {
                tell(Err(why));
                return health.was_readable();
            }
            None => {}
        }
    }
}

/// Follows a kind until it is lost. Returns whether it was readable.
async fn follow_kind<K>(
    client: Client,
    named: &NamedKind,
    (resource, health): (ApiResource, KindHealth),
    restarts: Restarts,
    on: &(impl Fn(&Seen<'_, K>) + Send + Sync),
    set: &(impl Fn(State<K>) + Send + Sync),
) -> bool
where
    K: Followed + Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    let (signs, seen) = mpsc::unbounded();
    let (accepts, accepted) = mpsc::unbounded();
    let client = reporting_watches(streaming(client), accepts).into_client();
    let (api, config) = scope(client, named, &resource);
    let (store, run) = follow(api, config, FollowedStore::of_named_kind(), restarts, |event| {
        on(event);
        // The receiver lives as long as this future.
        let _sent = signs.unbounded_send(event.sign());
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
    until_lost(health, accepted, seen, run, tell).await
}
