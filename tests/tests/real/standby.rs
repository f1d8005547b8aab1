//! A replica that stands by for long: it keeps no pending requeues.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sluice_tests::extension::{Extension, Replica, Settings};
use sluice_tests::objects::{self, TKR};
use sluice_tests::requests::apply;
use sluice_tests::scenario::{Objects, sluice_definitions};
use sluice_tests::stack::{Options, Stack};
use sluice_tests::wait;

/// Number of Clusters that each change of a release requeues.
const CLUSTERS: usize = 200;

/// An hour of a hundred requeues a second.
const CHANGES: usize = 3600 * 100 / CLUSTERS;

/// Memory that a process may keep for other work meanwhile. The names of the requeued Clusters would take five times as much.
const GROWTH: u64 = 16 << 20;

/// Of every Cluster.
const RELEASE: &str = "v1.36.3---standby";

/// Timeout for a replica to observe a write.
const SEEN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_of_events_is_not_kept_by_a_standby() -> Result<()> {
    let stack = Stack::start(Options::new("standby").crds(sluice_definitions()?)).await?;
    let extension = Extension::start(&stack, Settings::new("sluice")).await?;
    let standby = extension.standby().await?;
    apply::apply(&stack.client(), &release(RELEASE)).await?;
    let clusters: Vec<Value> = (0..CLUSTERS).map(cluster).collect();
    apply::apply_all(&stack.client(), &clusters).await?;

    // What grows once grows here.
    change(&stack, CHANGES / 10).await?;
    has_seen_all(&stack, standby, "first").await?;
    let before = standby.memory().await?;
    change(&stack, CHANGES).await?;
    has_seen_all(&stack, standby, "second").await?;
    let after = standby.memory().await?;

    let grown = after.saturating_sub(before);
    println!("{CHANGES} changes for {CLUSTERS} Clusters: {before} bytes before, {after} after");
    ensure!(grown < GROWTH, "{grown} bytes more after {CHANGES} changes");
    stack.check()?;
    stack.stop().await
}

/// Changes the release so often.
async fn change(stack: &Stack, times: usize) -> Result<()> {
    let objects = Objects::of(stack.client());
    let path = format!("/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases/{RELEASE}");
    stream::iter(0..times)
        .map(Ok)
        .try_for_each_concurrent(8, |number| {
            let (objects, path) = (&objects, &path);
            async move {
                let annotation = json!({"harness.test/change": number.to_string()});
                let change = json!({"metadata": {"annotations": annotation}});
                objects.merge(path, &change).await
            }
        })
        .await
}

/// Waits until a replica has seen a release that is made now, and so all that was changed before.
async fn has_seen_all(stack: &Stack, replica: &Replica, marker: &str) -> Result<()> {
    let marker = format!("{RELEASE}-{marker}");
    apply::apply(&stack.client(), &release(&marker)).await?;
    let mut asked = objects::cluster("default", "asked", "v1.36.3", Some(&marker), 0);
    asked["metadata"]["uid"] = json!("asked");
    asked["metadata"]["generation"] = json!(1);
    wait::until(format!("{marker} to be seen"), SEEN, || async {
        let reply = replica.ask("BeforeClusterCreate", &asked, &json!({})).await?;
        if reply.is_held("TemplateNotFound") {
            Ok(())
        } else {
            wait::not_yet(format!("{reply:?}"))
        }
    })
    .await?;
    Ok(())
}

fn release(name: &str) -> Value {
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3",
        "kind": "TanzuKubernetesRelease",
        "metadata": {"name": name},
        "spec": {"version": name.replace("---", "+"), "kubernetes": {"version": "v1.36.3"}, "bootstrapPackages": []},
    })
}

/// A Cluster that nothing reconciles.
fn cluster(number: usize) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {
            "name": format!("standby-{number}"),
            "namespace": "default",
            "labels": {TKR: RELEASE},
        },
        "spec": {
            "paused": true,
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "None", "name": "none"},
        },
    })
}
