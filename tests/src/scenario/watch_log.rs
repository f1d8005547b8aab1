//! Every write of the objects of some kinds in the namespace of a scenario.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::task::JoinSet;

use super::scene::Scene;
use crate::observer::Revision;
use crate::wait;

/// How long a watch may lag behind.
const LAG: Duration = Duration::from_secs(20);

/// One write of an object. Deletions are left out.
#[derive(Debug, Clone)]
pub struct Written {
    /// Position in the order of all writes.
    pub revision: Revision,
    /// When it was seen here.
    pub seen: Timestamp,
    /// `Machine`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// The object as written.
    pub object: Value,
}

/// Watches some kinds in the namespace of a scenario until it is dropped.
pub struct WatchLog {
    apis: Vec<Api<DynamicObject>>,
    writes: Arc<Mutex<Vec<Written>>>,
    // Aborts the watches when it is dropped.
    _watches: JoinSet<()>,
}

impl Scene {
    /// Notes every write of these kinds (group, version, kind) from now on, and the last one of each object that exists.
    pub async fn watch(&self, kinds: &[(&str, &str, &str)]) -> Result<WatchLog> {
        let writes: Arc<Mutex<Vec<Written>>> = Arc::default();
        let mut watches = JoinSet::new();
        let mut apis = Vec::new();
        for (group, version, kind) in kinds {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(self.client(), self.namespace(), &resource);
            watches.spawn(follow(api.clone(), (*kind).to_owned(), writes.clone()));
            apis.push(api);
        }
        let log = WatchLog {
            apis,
            writes,
            _watches: watches,
        };
        log.writes().await?;
        Ok(log)
    }
}

async fn follow(api: Api<DynamicObject>, kind: String, writes: Arc<Mutex<Vec<Written>>>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let mut writes = lock(&writes);
                // A watch that begins again reports the latest write of each object once more.
                let new = written(&kind, &object).filter(|new| !has(&writes, new.revision));
                writes.extend(new);
            }
            Ok(Event::Delete(_) | Event::Init | Event::InitDone) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn written(kind: &str, object: &DynamicObject) -> Option<Written> {
    Some(Written {
        revision: revision(object)?,
        seen: Timestamp::now(),
        kind: kind.to_owned(),
        name: object.name_any(),
        object: serde_json::to_value(object).ok()?,
    })
}

fn revision(object: &DynamicObject) -> Option<Revision> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

fn has(writes: &[Written], revision: Revision) -> bool {
    writes.iter().any(|write| write.revision == revision)
}

fn lock(writes: &Mutex<Vec<Written>>) -> MutexGuard<'_, Vec<Written>> {
    writes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchLog {
    /// Everything that was written until now, in order.
    pub async fn writes(&self) -> Result<Vec<Written>> {
        for api in &self.apis {
            let listed = api.list(&ListParams::default()).await?;
            let wanted: Vec<Revision> = listed.items.iter().filter_map(revision).collect();
            let what = format!("the watch of {} to be up to date", api.resource_url());
            wait::until(what, LAG, || async {
                let writes = lock(&self.writes);
                match wanted.iter().find(|wanted| !has(&writes, **wanted)) {
                    None => Ok(()),
                    Some(missing) => wait::not_yet(format!("nothing of revision {missing}")),
                }
            })
            .await?;
        }
        let mut writes = lock(&self.writes).clone();
        writes.sort_by_key(|write| write.revision);
        Ok(writes)
    }
}
