//! Keeps one kind in memory and tells who is interested when an object changed.

use std::{fmt::Debug, hash::Hash, time::Duration};

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        reflector::{Store, store::Writer},
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;

/// A watch that is silent for this long is taken for dead; kube's own default would be five minutes.
const WATCH_TIMEOUT_SECONDS: u32 = 30;

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
/// `on` is called after the store was changed, so whoever it wakes reads at least that state.
pub fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    dyntype: K::DynamicType,
    mut on: impl FnMut(Seen<'_, K>) + Send,
) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let mut writer = Writer::new(dyntype);
    let store = writer.as_reader();
    let reader = store.clone();
    // Workload API servers restart in the middle of every upgrade: look again soon, and never later than this.
    let backoff = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(2))
        .with_jitter()
        .without_max_times();
    let run = async move {
        let mut events = watcher(api, config.timeout(WATCH_TIMEOUT_SECONDS))
            .backoff(ExponentialBackoff::from(backoff))
            .boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let event = event.modify(|object| object.meta_mut().managed_fields = None);
                    writer.apply_watcher_event(&event);
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
                Err(error) => on(Seen::Failed(&error)),
            }
        }
    };
    (store, run)
}
