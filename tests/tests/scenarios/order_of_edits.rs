//! Label and version of an upgrade arrive in any order.

use anyhow::Result;
use serde_json::json;
use sluice_tests::objects::{self, Release, TKR};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};

use crate::common::{held, is_held, metrics, released, releases};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "order-of-edits",
        "the version before its label holds, the label before its version changes nothing, the same manifest again neither",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    // With a second release of the new Kubernetes version nothing but the label can tell which one is meant.
    let twin = Release::new(
        new.kubernetes(),
        format!("{}.2", scene.namespace()),
        scene.kapp_controller("2.0.0")?,
        scene.package("antrea", "2.0.1"),
    )
    .additional(metrics(&scene, "2.0.0"));
    scene.publish(&twin).await?;
    tokio::try_join!(version_first(&scene, &old, &new), label_first(&scene, &old, &new))?;
    Ok(())
}

async fn version_first(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("version").create_settled(old).await?;
    let version = json!({"spec": {"topology": {"version": new.kubernetes()}}});
    let before = cluster.patch(&version).await?;
    cluster.says("NoTKRForHop", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    let label = json!({"metadata": {"labels": {TKR: new.name()}}});
    cluster.patch(&label).await?;
    is_held(&cluster, new, before).await?;
    released(&cluster, new, before).await?;
    Ok(())
}

async fn label_first(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("label").create_settled(old).await?;
    let installs = cluster.installs().await?;
    let label = json!({"metadata": {"labels": {TKR: new.name()}}});
    let before = cluster.patch(&label).await?;
    let what = "the record to have seen the label".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["label"] == new.name() {
                Ok(())
            } else {
                sluice_tests::wait::not_yet(record)
            }
        })
        .await?;
    anyhow::ensure!(
        cluster.installs().await? == installs,
        "a label alone changed packages"
    );
    let before_version = held(&cluster, new).await?;
    let manifest = objects::cluster(
        scene.namespace(),
        cluster.name(),
        new.kubernetes(),
        Some(&new.name()),
        0,
    );
    scene.apply(&[manifest]).await?;
    is_held(&cluster, new, before).await?;
    released(&cluster, new, before_version).await?;
    Ok(())
}
