//! Wakes the Clusters that rest on something which many share: each once, and not all at the same time.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt as _};
use sluice_core::reconcile::shared_dependency::{Classes, SharedDependency, Sweep};
use tokio::{
    task::yield_now,
    time::{Instant, interval, timeout_at},
};
use tracing::info;

use crate::{
    cache::stores::Stores,
    lock::lock,
    queue::requeues::{ClusterRef, Requeues},
};

/// What changes within this time is looked through once.
const TOGETHER: Duration = Duration::from_millis(200);

/// So many Clusters at rest are woken at once.
const BATCH: usize = 100;

/// The time between two batches.
const BETWEEN: Duration = Duration::from_millis(50);

/// Wakes whatever is concerned by `changes` for as long as it is polled.
pub async fn run(
    stores: Stores,
    classes: Arc<Mutex<Classes>>,
    mut changes: impl Stream<Item = SharedDependency> + Unpin,
    triggers: Requeues,
) {
    let (mut sweep, mut batches) = (Sweep::default(), interval(BETWEEN));
    loop {
        tokio::select! {
            biased;
            _ = batches.tick(), if sweep.left() > 0 => {
                for cluster in sweep.next(BATCH) {
                    triggers.wake(cluster);
                }
            }
            Some(first) = changes.next() => {
                let shared = together(first, &mut changes).await;
                let concerned = lock(&classes).dependents_of(&shared);
                let concerned = concerned.unwrap_or_else(|| stores.clusters.names());
                requeue_dependents(&stores, concerned, &shared, &mut sweep).await;
                info!(changes = shared.len(), clusters = sweep.left(), "Looking again at Clusters that rest on what has changed");
            }
        }
    }
}

/// Finds those of the Clusters that are concerned. Others have their turn meanwhile, readers and writers of the stores among them.
async fn requeue_dependents(
    stores: &Stores,
    clusters: Vec<ClusterRef>,
    shared: &BTreeSet<SharedDependency>,
    sweep: &mut Sweep,
) {
    for (count, named) in clusters.into_iter().enumerate() {
        let (namespace, name) = (Some(named.namespace()), named.name());
        if let Some(cluster) = stores.clusters.peek(namespace, name) {
            sweep.add(shared, &cluster, || stores.bootstraps.peek(namespace, name));
        }
        if count % BATCH == BATCH - 1 {
            yield_now().await;
        }
    }
}

/// All that changes together with `first`.
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
        cache::{event_handlers::EventHandlers, freshness::tests::Frozen},
        queue::{requeues::Requeue, work_queue::Feed},
    };

    /// Clusters of one release, and one of none.
    fn items(path: &str) -> Vec<Value> {
        let cluster = |name: String, labels: Value| {
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": name, "namespace": "team-a", "uid": name, "resourceVersion": "1", "labels": labels},
                "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}},
            })
        };
        if !path.ends_with("/clusters") {
            return Vec::new();
        }
        let ours = (0..10).map(|number| cluster(format!("c{number}"), json!({label::TKR: "release"})));
        ours.chain([cluster("unmanaged".to_owned(), json!({}))]).collect()
    }

    /// What is sent runs through the Clusters of `items`; what is woken is received.
    async fn running() -> (Feed<SharedDependency>, impl Stream<Item = Requeue> + Unpin) {
        let news = EventHandlers::default();
        let (stores, following) = Stores::open(&Frozen::new().client(items), "tkg-system", &news);
        tokio::spawn(following);
        stores.synced().await;
        let (woken, changes) = (news.triggers.listen(), news.sweeps.listen());
        let classes = Arc::clone(&news.classes);
        tokio::spawn(run(stores, classes, changes, news.triggers.clone()));
        (news.sweeps, woken)
    }

    /// The names of those that were woken, in order.
    fn names(mut woken: impl Stream<Item = Requeue> + Unpin) -> Vec<String> {
        let woken = iter::from_fn(|| woken.next().now_or_never().flatten());
        let mut names: Vec<_> = woken.map(|trigger| trigger.cluster.name().to_owned()).collect();
        names.sort_unstable();
        names
    }

    #[tokio::test(start_paused = true)]
    async fn clusters_are_woken_once_for_all_that_changes_together() {
        let (sweeps, woken) = running().await;
        for number in 0..750 {
            sweeps.send(SharedDependency::Package(format!("package-{number}")));
        }
        sleep(Duration::from_secs(10)).await;
        let expected: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
        assert_eq!(names(woken), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_class_wakes_its_clusters() {
        let (sweeps, woken) = running().await;
        sweeps.send(SharedDependency::Class("team-a".to_owned(), "class".to_owned()));
        sweeps.send(SharedDependency::Class("team-b".to_owned(), "class".to_owned()));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(names(woken).len(), 10);
    }

    /// Of a class that no Cluster uses, for example.
    #[tokio::test(start_paused = true)]
    async fn changes_that_do_not_end_keep_no_cluster_from_being_woken() {
        let (sweeps, woken) = running().await;
        sweeps.send(SharedDependency::Release("new".to_owned()));
        for number in 0..500 {
            sweeps.send(SharedDependency::Class(
                "team-b".to_owned(),
                format!("class-{number}"),
            ));
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(names(woken).len(), 10);
    }
}
