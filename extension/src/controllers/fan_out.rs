//! Requeues the dependents of a shared object: each Cluster once, in batches.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use sluice_core::reconcile::shared_dependency::{Classes, FanOutQueue, SharedDependency};
use tokio::{
    task::yield_now,
    time::{Instant, timeout_at},
};
use tracing::info;

use crate::{
    cache::stores::Stores,
    clock::{later, now},
    lock::lock,
    queue::requeues::{ClusterRef, Requeues},
};

/// Time window in which changes are merged.
const TOGETHER: Duration = Duration::from_millis(200);

/// Clusters that are looked up before the task yields.
const BATCH: usize = 100;

/// Requeues the dependents of `changes` for as long as it is polled.
pub async fn run(
    stores: Stores,
    classes: Arc<Mutex<Classes>>,
    mut changes: impl Stream<Item = SharedDependency> + Unpin,
    triggers: Requeues,
) {
    let mut fan_out = FanOutQueue::new(now());
    loop {
        tokio::select! {
            biased;
            () = later(fan_out.next_at()) => {
                for cluster in fan_out.next(now()) {
                    triggers.enqueue(cluster);
                }
            }
            Some(first) = changes.next() => {
                let shared = together(first, &mut changes).await;
                let concerned = lock(&classes).dependents_of(&shared);
                let concerned = concerned.unwrap_or_else(|| stores.clusters.names());
                collect_dependents(&stores, concerned, &shared, &mut fan_out).await;
                info!(changes = shared.len(), clusters = fan_out.left(), "Requeueing Clusters after a change of shared objects");
            }
        }
    }
}

/// Adds the Clusters that depend on `shared` to `fan_out`. Yields in between, so that readers and writers of the stores make progress.
async fn collect_dependents(
    stores: &Stores,
    clusters: Vec<ClusterRef>,
    shared: &BTreeSet<SharedDependency>,
    fan_out: &mut FanOutQueue,
) {
    for (count, named) in clusters.into_iter().enumerate() {
        let (namespace, name) = (Some(named.namespace()), named.name());
        if let Some(cluster) = stores.clusters.get(namespace, name) {
            fan_out.add(shared, &cluster, || stores.bootstraps.get(namespace, name));
        }
        if count % BATCH == BATCH - 1 {
            yield_now().await;
        }
    }
}

/// Returns `first` and all changes within [`TOGETHER`].
async fn together(
    first: SharedDependency,
    changes: &mut (impl Stream<Item = SharedDependency> + Unpin),
) -> BTreeSet<SharedDependency> {
    let (mut shared, until) = (BTreeSet::from([first]), Instant::now() + TOGETHER);
    while let Ok(Some(next)) = timeout_at(until, changes.next()).await {
        shared.insert(next);
    }
    shared
}

#[cfg(test)]
mod tests {
    use std::iter;

    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use sluice_crds::labels::label;
    use tokio::time::sleep;

    use super::*;
    use crate::{
        cache::{event_handlers::EventHandlers, frozen::Frozen},
        queue::{requeues::Requeue, work_queue::Feed},
    };

    fn cluster(name: &str, labels: &Value) -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "team-a", "uid": name, "resourceVersion": "1", "labels": labels},
            "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}},
        })
    }

    /// Clusters of one release, and one without.
    fn items(path: &str) -> Vec<Value> {
        if !path.ends_with("/clusters") {
            return Vec::new();
        }
        let ours = (0..10).map(|number| cluster(&format!("c{number}"), &json!({label::TKR: "release"})));
        ours.chain([cluster("unmanaged", &json!({}))]).collect()
    }

    /// Clusters of one release whose upgrade is completed.
    fn settled(path: &str) -> Vec<Value> {
        let names = (0..450).map(|number| format!("c{number}"));
        match path.rsplit('/').next() {
            Some("clusters") => names.map(|name| cluster(&name, &json!({label::TKR: "release"}))).collect(),
            Some("clusterbootstraps") => names
                .map(|name| {
                    let record = json!({
                        "schema": 1, "clusterUID": name, "observedClusterGeneration": 1, "observedBootstrapGeneration": 1,
                        "label": "release", "to": "v1.35.4", "outcome": "Completed",
                    });
                    json!({
                        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
                        "metadata": {"name": name, "namespace": "team-a", "uid": format!("{name}-bootstrap"), "resourceVersion": "1"},
                        "spec": {"cni": {"refName": "package"}},
                        "status": {"resolvedTKR": "release", "upgrade": record},
                    })
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Starts the fan-out over the Clusters of `items`. Returns the sender of changes and the receiver of requeues.
    async fn running(
        items: fn(&str) -> Vec<Value>,
    ) -> (Feed<SharedDependency>, impl Stream<Item = Requeue> + Unpin) {
        let event_handlers = EventHandlers::default();
        let (stores, following) = Stores::open(&Frozen::new().client(items), "tkg-system", &event_handlers);
        tokio::spawn(following);
        stores.synced().await;
        let (requeues, changes) = (event_handlers.triggers.listen(), event_handlers.fan_outs.listen());
        let classes = Arc::clone(&event_handlers.classes);
        tokio::spawn(run(stores, classes, changes, event_handlers.triggers.clone()));
        (event_handlers.fan_outs, requeues)
    }

    /// Returns the names of requeued Clusters, in order.
    fn names(mut requeues: impl Stream<Item = Requeue> + Unpin) -> Vec<String> {
        let requeues = iter::from_fn(|| requeues.next().now_or_never().flatten());
        let mut names: Vec<_> = requeues
            .map(|trigger| trigger.cluster.name().to_owned())
            .collect();
        names.sort_unstable();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn simultaneous_changes_requeue_a_cluster_once() {
        let (fan_outs, requeues) = running(items).await;
        for number in 0..750 {
            fan_outs.send(SharedDependency::Package(format!("package-{number}")));
        }
        sleep(Duration::from_secs(10)).await;
        let expected: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
        assert_eq!(names(requeues), expected);
    }

    /// The time before the change adds nothing to the rate.
    #[tokio::test(start_paused = true)]
    async fn settled_clusters_are_requeued_in_batches_after_a_quiet_time() {
        let (fan_outs, mut requeues) = running(settled).await;
        let mut count = || iter::from_fn(|| requeues.next().now_or_never().flatten()).count();
        sleep(Duration::from_mins(10)).await;
        count();
        fan_outs.send(SharedDependency::Release("new".to_owned()));
        sleep(TOGETHER + Duration::from_millis(10)).await;
        assert_eq!(count(), 100);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(count(), 350);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_class_requeues_its_clusters() {
        let (fan_outs, requeues) = running(items).await;
        fan_outs.send(SharedDependency::Class("team-a".to_owned(), "class".to_owned()));
        fan_outs.send(SharedDependency::Class("team-b".to_owned(), "class".to_owned()));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(names(requeues).len(), 10);
    }

    /// For example, changes of a class that no Cluster uses.
    #[tokio::test(start_paused = true)]
    async fn endless_changes_do_not_delay_requeues() {
        let (fan_outs, requeues) = running(items).await;
        fan_outs.send(SharedDependency::Release("new".to_owned()));
        for number in 0..500 {
            fan_outs.send(SharedDependency::Class(
                "team-b".to_owned(),
                format!("class-{number}"),
            ));
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(names(requeues).len(), 10);
    }
}
