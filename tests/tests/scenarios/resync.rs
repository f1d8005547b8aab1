//! kapp-controller works on every package again while the release is open.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::kubelet::Delay;
use sluice_tests::scenario::{Cluster, PATIENCE, Scenario, Scene};

use crate::common::{held, releases};

/// Somebody else's hold. It keeps the release window open for as long as the test looks at it.
const ANOTHER: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io/audit";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "resync",
        "all packages are worked on again in the release window: gates do not flap, nothing is written",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    let annotation = |value: Value| json!({"metadata": {"annotations": {ANOTHER: value}}});
    cluster.patch(&annotation(json!("wait"))).await?;
    cluster.delay("antrea", Delay::NONE);
    let open = is_open(&cluster, new.kubernetes()).await?;

    let all = new
        .packages()
        .filter(|package| package.short() != "kapp-controller");
    for package in all {
        cluster.resync(package).await?;
    }
    let after = cluster.bootstrap().await?;
    ensure!(
        after["metadata"]["resourceVersion"] == open["metadata"]["resourceVersion"],
        "a resync changed the ClusterBootstrap:\n{}\n{}",
        open["status"],
        after["status"]
    );
    cluster.control_plane_is_untouched(before).await?;
    cluster.patch(&annotation(Value::Null)).await?;
    cluster
        .control_plane_written(new.kubernetes(), before, PATIENCE)
        .await?;
    cluster.is_settled(PATIENCE).await
}

/// Waits until the gate is open and the record at rest.
async fn is_open(cluster: &Cluster, version: &str) -> Result<Value> {
    let what = "BeforeClusterUpgrade to be open".to_owned();
    cluster
        .bootstrap_until(what, PATIENCE, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            let open = |hook: &str| {
                let mut gates = record["gates"].as_array().into_iter().flatten();
                gates.any(|gate| gate["hook"] == hook && gate["version"] == version && gate["open"] == true)
            };
            if open("BeforeClusterUpgrade")
                && open("BeforeControlPlaneUpgrade")
                && !record["readyAt"].is_null()
            {
                Ok(bootstrap.clone())
            } else {
                sluice_tests::wait::not_yet(record)
            }
        })
        .await
}
