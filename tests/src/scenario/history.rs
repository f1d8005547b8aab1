//! Every write of one ClusterBootstrap, with its record by revision.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::cluster::Cluster;
use crate::observer::Revision;
use crate::requests::edit;
use crate::wait;

/// How long a watch may lag behind.
const LAG: Duration = Duration::from_secs(20);

/// One write.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) revision: Revision,
    /// When it was seen here.
    pub(crate) seen: Instant,
    /// `status.upgrade` as written; null without, and after a deletion.
    pub(crate) record: Value,
}

/// All writes since a revision, in order.
#[derive(Debug, Clone, Default)]
pub struct Records(pub(crate) Vec<Write>);

/// Watches the ClusterBootstrap of a Cluster until it is dropped.
pub struct History {
    cluster: Cluster,
    writes: Arc<Mutex<Vec<Write>>>,
    task: AbortHandle,
}

impl Cluster {
    /// Notes every write of the ClusterBootstrap from now on.
    pub async fn history(&self) -> Result<History> {
        let kind = GroupVersionKind::gvk("run.tanzu.vmware.com", "v1alpha3", "ClusterBootstrap");
        let api: Api<DynamicObject> = Api::namespaced_with(
            self.scene().client(),
            self.scene().namespace(),
            &ApiResource::from_gvk(&kind),
        );
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name()));
        let writes: Arc<Mutex<Vec<Write>>> = Arc::default();
        let noted = writes.clone();
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, only));
            while let Some(event) = events.next().await {
                let write = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => write(&object, false),
                    Ok(Event::Delete(object)) => write(&object, true),
                    Ok(Event::Init | Event::InitDone) => None,
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        None
                    }
                };
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                // A watch that begins again tells the latest write once more.
                let latest = noted.last().map_or(0, |latest| latest.revision);
                noted.extend(write.filter(|write| write.revision > latest));
            }
        });
        let history = History {
            cluster: self.clone(),
            writes,
            task: task.abort_handle(),
        };
        history.records().await?;
        Ok(history)
    }
}

impl History {
    /// Everything that was written until now.
    pub async fn records(&self) -> Result<Records> {
        let path = self.cluster.bootstrap_path();
        let found = edit::get(&self.cluster.scene().client(), &path).await?;
        let wanted = found
            .as_ref()
            .map(edit::revision)
            .transpose()?
            .unwrap_or_default();
        let what = format!("the watch of {path} to reach revision {wanted}");
        let writes = wait::until(what, LAG, || async {
            let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match writes.last().map_or(0, |latest| latest.revision) {
                seen if seen >= wanted => Ok(writes),
                seen => wait::not_yet(format!("revision {seen}")),
            }
        })
        .await?;
        Ok(Records(writes))
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn write(object: &DynamicObject, deleted: bool) -> Option<Write> {
    let revision = object.metadata.resource_version.as_ref()?.parse().ok()?;
    let record = if deleted {
        Value::Null
    } else {
        object.data["status"]["upgrade"].clone()
    };
    Some(Write {
        revision,
        seen: Instant::now(),
        record,
    })
}

impl Records {
    /// The write that opened a gate last, of those before `before`: the one before it did not have it open. None if the gate was
    /// closed then.
    #[must_use]
    pub fn opened(&self, hook: &str, version: &str, before: Revision) -> Option<Revision> {
        let earlier = self.0.iter().rev().skip_while(|write| write.revision >= before);
        let open = earlier.take_while(|write| is_open(&write.record, hook, version));
        open.last().map(|write| write.revision)
    }

    /// The last write before a revision.
    #[must_use]
    pub fn latest(&self, before: Revision) -> Option<Revision> {
        let earlier = self.0.iter().rev().map(|write| write.revision);
        earlier.into_iter().find(|revision| *revision < before)
    }

    /// The records that nothing was written after for so long, in order, and the last one.
    pub fn lasting(&self, time: Duration) -> impl Iterator<Item = &Value> {
        let followers = self.0.iter().skip(1).map(Some).chain([None]);
        let lasted = move |(write, follower): (&Write, Option<&Write>)| {
            follower.is_none_or(|follower| follower.seen - write.seen >= time)
        };
        let pairs = self.0.iter().zip(followers);
        pairs
            .filter(move |(write, follower)| lasted((*write, *follower)))
            .map(|(write, _)| &write.record)
    }

    /// Whether a write between two revisions opens a gate.
    #[must_use]
    pub fn leaves_open(&self, hook: &str, version: &str, (after, before): (Revision, Revision)) -> bool {
        let between = |write: &&Write| write.revision > after && write.revision < before;
        let mut writes = self.0.iter().filter(between);
        writes.any(|write| is_open(&write.record, hook, version))
    }

    /// The first write whose record has seen a generation of the ClusterBootstrap.
    pub fn saw(&self, generation: i64) -> Result<Revision> {
        let seen = |write: &&Write| write.record["observedBootstrapGeneration"].as_i64() >= Some(generation);
        let write = self.0.iter().find(seen);
        write
            .map(|write| write.revision)
            .with_context(|| format!("no record has seen generation {generation} of the ClusterBootstrap"))
    }
}

fn is_open(record: &Value, hook: &str, version: &str) -> bool {
    let mut gates = record["gates"].as_array().into_iter().flatten();
    gates.any(|gate| gate["hook"] == hook && gate["version"] == version && gate["open"] == true)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    const HOOK: &str = "BeforeControlPlaneUpgrade";

    /// Records with that gate for v1.36.3 open or closed, at these revisions.
    pub(crate) fn records(writes: &[(Revision, bool)]) -> Records {
        gates(HOOK, writes)
    }

    /// The same with the gate of another hook.
    pub(crate) fn gates(hook: &str, writes: &[(Revision, bool)]) -> Records {
        let write = |(revision, open): &(Revision, bool)| Write {
            revision: *revision,
            seen: Instant::now(),
            record: json!({
                "observedBootstrapGeneration": revision,
                "gates": [{"hook": hook, "version": "v1.36.3", "open": open}],
            }),
        };
        Records(writes.iter().map(write).collect())
    }

    #[test]
    fn a_gate_was_opened_by_the_first_of_the_last_open_records() {
        let all = records(&[(1, true), (2, false), (4, true), (6, true), (8, false)]);
        assert_eq!(all.opened(HOOK, "v1.36.3", 8), Some(4));
        assert_eq!(all.opened(HOOK, "v1.36.3", 5), Some(4));
        assert_eq!(all.opened(HOOK, "v1.36.3", 4), None);
        assert_eq!(all.opened(HOOK, "v1.36.3", 9), None);
        assert_eq!(all.opened(HOOK, "v1.35.4", 8), None);
        assert_eq!(all.opened("BeforeClusterUpgrade", "v1.36.3", 8), None);
    }

    #[test]
    fn a_record_that_leaves_a_gate_open_is_found_between_its_bounds_only() {
        let all = records(&[(4, true), (6, true), (8, false)]);
        assert!(all.leaves_open(HOOK, "v1.36.3", (4, 7)));
        assert!(!all.leaves_open(HOOK, "v1.36.3", (6, 9)));
        assert!(!all.leaves_open(HOOK, "v1.36.3", (4, 6)));
    }

    #[test]
    fn a_record_lasts_until_the_next_one() {
        let mut all = records(&[(1, true), (2, false), (3, true)]);
        all.0[1].seen = all.0[0].seen + Duration::from_secs(1);
        all.0[2].seen = all.0[1].seen + Duration::from_secs(3);
        let lasting = |seconds| all.lasting(Duration::from_secs(seconds)).count();
        assert_eq!([1, 2, 4].map(lasting), [3, 2, 1]);
    }

    #[test]
    fn the_first_record_that_saw_a_generation_counts() {
        assert_eq!(records(&[(4, true), (6, true)]).saw(5).unwrap(), 6);
        assert!(records(&[(4, true)]).saw(5).is_err());
    }
}
