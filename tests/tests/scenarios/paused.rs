//! A user wants the upgrade to stop.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{is_held, released, releases};

const START: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io/audit";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "paused-by-hand",
        "a paused Cluster or ClusterBootstrap, and a hook annotation of a user, stop all writes; Sluice removes none of them",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    tokio::try_join!(cluster_paused(&scene, &old, &new), start_held(&scene, &old, &new),)?;
    Ok(())
}

async fn cluster_paused(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("cluster").create_settled(old).await?;
    let installs = cluster.installs().await?;
    let pause = |value: bool| json!({"spec": {"paused": value}});
    cluster.patch(&pause(true)).await?;
    let before = cluster.upgrade(new).await?;
    record_gives(&cluster, "ClusterPaused").await?;
    ensure!(
        cluster.installs().await? == installs,
        "packages of a paused Cluster changed"
    );
    cluster.patch(&pause(false)).await?;
    is_held(&cluster, new, before).await?;
    cluster.patch(&pause(true)).await?;
    cluster.delay("antrea", Delay::NONE);
    record_gives(&cluster, "ClusterPaused").await?;
    cluster.packages_proven(new, before, TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    ensure!(
        cluster.object().await?["spec"]["paused"] == true,
        "the pause was removed"
    );
    cluster.patch(&pause(false)).await?;
    released(&cluster, new, before).await?;
    let unpaused = cluster
        .milestones()
        .iter()
        .filter(|milestone| matches!(milestone.event, Event::Paused { paused: false }))
        .count();
    ensure!(unpaused == 2, "unpaused {unpaused} times, by the test only twice");
    Ok(())
}

async fn start_held(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("start").create_settled(old).await?;
    let installs = cluster.installs().await?;
    let annotation = |value: Value| json!({"metadata": {"annotations": {START: value}}});
    cluster.patch(&annotation(json!("wait"))).await?;
    let before = cluster.upgrade(new).await?;
    record_gives(&cluster, "StartHeldByAnnotation").await?;
    ensure!(
        cluster.installs().await? == installs,
        "packages changed before the start"
    );
    cluster.patch(&annotation(Value::Null)).await?;
    is_held(&cluster, new, before).await?;
    let pause = |value: bool| json!({"spec": {"paused": value}});
    cluster.patch_bootstrap(&pause(true)).await?;
    cluster.says("BootstrapPaused", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    cluster.patch_bootstrap(&pause(false)).await?;
    released(&cluster, new, before).await?;
    Ok(())
}

async fn record_gives(cluster: &Cluster, reason: &str) -> Result<()> {
    let what = format!("a gate of {} to be closed for {reason}", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            let mut all = gates.as_array().into_iter().flatten();
            if all.any(|gate| gate["reason"] == reason) {
                Ok(())
            } else {
                sluice_tests::wait::not_yet(gates)
            }
        })
        .await
}
