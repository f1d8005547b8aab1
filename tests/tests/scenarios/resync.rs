//! kapp-controller works on every package again but its own while the release is open.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, are_expected};
use sluice_tests::stack::kubelet::Delay;

use crate::common::MidHold;

/// The hold of another owner. It keeps the release window open for the duration of the check.
pub(crate) const ANOTHER: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io/audit";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "resync",
        "all packages but kapp-controller are reconciled again in the release window: gates do not flap, nothing is written on either side",
        |scene| Box::pin(run(scene)),
    )
    // A Cluster names releases that others publish.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let annotation = |value: Value| json!({"metadata": {"annotations": {ANOTHER: value}}});
    cluster.patch(&annotation(json!("wait"))).await?;
    // Cluster API notes it on the Cluster, and would do so in the window otherwise.
    cluster.says(ANOTHER, TIMEOUT).await?;
    cluster.delay("antrea", Delay::NONE);
    let open = is_open(&cluster, new.kubernetes()).await?;

    let all = new
        .packages()
        .filter(|package| package.short() != "kapp-controller");
    let (writes, installs) = (cluster.writes().await?, cluster.installs().await?);
    let mut touched = BTreeMap::new();
    for package in all {
        let (secret, times) = cluster.resync(package).await?;
        touched.insert(format!("/{secret}"), times);
    }
    let written = cluster.writes().await?.since(&writes);
    are_expected(&written, |key| expected(key, &touched))?;
    ensure!(
        cluster.installs().await? == installs,
        "PackageInstalls or Apps changed with a resync"
    );
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
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await
}

/// How often an object may be written: none is any number. What kapp-controller and kapp report in a resync is theirs; whether
/// Sluice wrote a PackageInstall shows in its generation. An Event is telling, a Lease is no object of a Cluster. The Secrets with
/// values are touched by the scenario itself.
fn expected(key: &str, touched: &BTreeMap<String, i64>) -> Option<i64> {
    let reported = [
        "/packaging.carvel.dev/packageinstalls/",
        "/kappctrl.k14s.io/apps/",
        "/configmaps/",
    ];
    let workload = key.starts_with("/wl/");
    if key.contains("/events/") || key.contains("/leases/") {
        return None;
    }
    if workload && reported.iter().any(|kind| key.contains(kind)) {
        return None;
    }
    let own = touched
        .iter()
        .find(|(secret, _)| workload && key.ends_with(*secret));
    Some(own.map_or(0, |(_, times)| *times))
}

/// Waits until the gate is open and the record at rest.
pub(crate) async fn is_open(cluster: &Cluster, version: &str) -> Result<Value> {
    let what = "BeforeClusterUpgrade to be open".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
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
