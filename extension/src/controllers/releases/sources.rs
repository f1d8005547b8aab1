//! Inputs of the evaluation of releases, beside the stores of every replica.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use futures::future::{BoxFuture, FutureExt as _, join};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Resource, ResourceExt as _, runtime::watcher};
use sluice_core::{
    cache::FollowedStore,
    decode::Item,
    releases::{self, Compatibility, ReleaseEvent},
};
use sluice_crds::labels::{label, name};

use super::Context;
use crate::{
    cache::{
        store::Store,
        streamed::streaming,
        watch::{Followed, Seen, follow as follow_store, reporting},
    },
    lock::lock,
};

/// Stores that only the leader needs.
pub(super) struct Sources {
    system_namespace: String,
    bom: Store<ConfigMap>,
    additional: Store<ConfigMap>,
    /// Whether a list or watch of ConfigMaps was refused or timed out.
    unread: Arc<AtomicBool>,
    /// Cached compatibility with the versions of its sources; it is computed again only after a change.
    read: Mutex<Option<(Read, Compatibility)>>,
}

/// Objects by UID and resource version, and the management version, that a compatibility was read from.
type Read = (Vec<(Option<String>, Option<String>)>, Option<String>);

/// Returns the stores and the future that updates them. Where their kinds are missing, the stores stay unfilled without a report.
pub(super) fn follow(context: &Context) -> (Sources, BoxFuture<'static, ()>) {
    let client = streaming(context.client.clone()).into_client();
    let config_maps = || Api::namespaced(client.clone(), &context.system_namespace);
    let all = || watcher::Config::default().streaming_lists();
    let by_name = all().fields(&format!("metadata.name={}", name::BOM_METADATA));
    let by_label = all().labels(label::ADDITIONAL_COMPATIBLE_TKRS);
    let unread = Arc::<AtomicBool>::default();
    let (bom, bom_following) = followed(context, config_maps(), by_name, &unread);
    let (additional, additional_following) = followed(context, config_maps(), by_label, &unread);
    let following = join(bom_following, additional_following).map(drop);
    let sources = Sources {
        system_namespace: context.system_namespace.clone(),
        unread,
        read: Mutex::default(),
        bom,
        additional,
    };
    (sources, following.boxed())
}

fn followed<K>(
    context: &Context,
    api: Api<Item<K>>,
    config: watcher::Config,
    unread: &Arc<AtomicBool>,
) -> (Store<K>, BoxFuture<'static, ()>)
where
    K: Followed + Resource<DynamicType = ()>,
{
    let (touched, changes) = (context.changes.clone(), context.changes.clone());
    let report = reporting(K::kind(&()), "Failed to watch objects", move |_, _| {
        touched.send(ReleaseEvent::All);
    });
    let unread = Arc::clone(unread);
    let on = move |seen: &Seen<'_, K>| {
        report(seen);
        match seen {
            // An empty list is a result, too.
            Seen::Synced(_) => changes.send(ReleaseEvent::All),
            Seen::Failed(_) if !unread.swap(true, Ordering::Relaxed) => changes.send(ReleaseEvent::All),
            _ => {}
        }
    };
    let restarts = context.rollbacks.restarts();
    let (store, following) = follow_store(api, config, FollowedStore::of_named_kind(), restarts, on);
    (store, following.boxed())
}

impl Sources {
    /// Returns the compatibility of releases; `None` before all sources are read.
    pub(super) fn compatibility(&self, management_version: Option<String>) -> Option<Compatibility> {
        if !self.bom.is_filled() || !self.additional.is_filled() {
            let unread = self.unread.load(Ordering::Relaxed);
            return unread.then(|| Compatibility::unreadable(&self.system_namespace));
        }
        let own = |config_map: Arc<ConfigMap>| ConfigMap::clone(&config_map);
        let sources = releases::Sources {
            bom: self.bom.state().into_iter().map(own).next(),
            additional: self.additional.state().into_iter().map(own).collect(),
            management_version,
        };
        let config_maps = sources.bom.iter().chain(&sources.additional);
        let from: Read = (
            config_maps
                .map(|found| (found.uid(), found.resource_version()))
                .collect(),
            sources.management_version.clone(),
        );
        let mut read = lock(&self.read);
        if let Some((before, compatibility)) = &*read
            && *before == from
        {
            return Some(compatibility.clone());
        }
        let compatibility = Compatibility::of(&sources);
        *read = Some((from, compatibility.clone()));
        Some(compatibility)
    }
}
