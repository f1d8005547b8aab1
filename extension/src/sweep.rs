//! Wakes the Clusters that rest on something which many share: each once, and not all at the same time.

use std::{collections::BTreeSet, time::Duration};

use futures::{Stream, StreamExt as _};
use sluice_core::concern::{Shared, Sweep};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::info;

use crate::{stores::Stores, triggers::Triggers};

/// What changes within this time is looked through once.
const TOGETHER: Duration = Duration::from_millis(200);

/// So many Clusters at rest are woken at once.
const BATCH: usize = 100;

/// The time between two batches.
const BETWEEN: Duration = Duration::from_millis(50);

/// Wakes whatever is concerned by `changes` for as long as it is polled.
pub async fn run(stores: Stores, mut changes: impl Stream<Item = Shared> + Unpin, triggers: Triggers) {
    let mut sweep = Sweep::default();
    loop {
        tokio::select! {
            Some(first) = changes.next() => {
                let shared = together(first, &mut changes).await;
                stores.clusters.for_each(|cluster| {
                    let meta = &cluster.metadata;
                    let name = meta.name.as_deref().unwrap_or_default();
                    let bootstrap = stores.bootstraps.get(meta.namespace.as_deref(), name);
                    sweep.add(&shared, &cluster, bootstrap.as_deref());
                });
                info!(changes = shared.len(), clusters = sweep.left(), "Looking again at Clusters that rest on what has changed");
            }
            () = sleep(BETWEEN), if sweep.left() > 0 => {
                for cluster in sweep.next(BATCH) {
                    triggers.wake(cluster);
                }
            }
        }
    }
}

/// All that changes together with `first`.
async fn together(first: Shared, changes: &mut (impl Stream<Item = Shared> + Unpin)) -> BTreeSet<Shared> {
    let (mut shared, until) = (BTreeSet::from([first]), Instant::now() + TOGETHER);
    while let Ok(Some(next)) = timeout_at(until, changes.next()).await {
        shared.insert(next);
    }
    shared
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use sluice_crds::labels::label;

    use super::*;
    use crate::{freshness::tests::Frozen, news::News};

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

    #[tokio::test(start_paused = true)]
    async fn clusters_are_woken_once_for_all_that_changes_together() {
        let news = News::default();
        let (stores, following) = Stores::open(&Frozen::new().client(items), "tkg-system", &news);
        tokio::spawn(following);
        stores.synced().await;
        let mut woken = Box::pin(news.triggers.listen());
        let changes = news.sweeps.listen();
        tokio::spawn(run(stores, changes, news.triggers.clone()));
        for number in 0..750 {
            news.sweeps.send(Shared::Package(format!("package-{number}")));
        }
        sleep(Duration::from_secs(10)).await;
        let mut names: Vec<String> = std::iter::from_fn(|| woken.next().now_or_never().flatten())
            .map(|trigger| trigger.cluster.name().to_owned())
            .collect();
        names.sort_unstable();
        let expected: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
        assert_eq!(names, expected);
    }
}
