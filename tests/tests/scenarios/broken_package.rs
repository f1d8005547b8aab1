//! A package that cannot be rendered at the new version holds its Cluster and no other.

use anyhow::{Result, ensure};
use sluice_tests::objects::Release;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

const COMPLAINT: &str = "metrics 2.0.0 needs a value that nobody gives";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "broken-package",
        "a package with a broken template holds its Cluster with a visible reason, no other Cluster; a corrected Package releases it",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let metrics = scene.package("metrics", "2.0.0");
    let old = scene
        .release(VERSIONS[1], "1.0.0", Delay::NONE)?
        .additional(scene.package("metrics", "1.0.0"));
    let new = scene
        .release(VERSIONS[2], "2.0.0", Delay::NONE)?
        .additional(metrics.clone().broken(COMPLAINT));
    let fine = Release::new(
        VERSIONS[2],
        format!("{}.2", scene.namespace()),
        scene.kapp_controller("2.0.0")?,
        scene.slow_package("antrea", "2.0.0", Delay::NONE),
    )
    .additional(scene.package("metrics", "2.0.1"));
    for release in [&old, &new, &fine] {
        scene.publish(release).await?;
    }
    let broken = scene.cluster("broken").at(&old).create().await?;
    let other = scene.cluster("other").at(&old).create().await?;
    for cluster in [&broken, &other] {
        cluster.packages_proven(&old, 0, TIMEOUT).await?;
        cluster.is_settled(TIMEOUT).await?;
    }

    let before = broken.upgrade(&new).await?;
    let before_other = other.upgrade(&fine).await?;
    other
        .control_plane_written(VERSIONS[2], before_other, TIMEOUT)
        .await?;
    other.is_settled(TIMEOUT).await?;

    let message = broken.says("metrics", TIMEOUT).await?;
    ensure!(message.contains("PackageFailed"), "the Cluster has {message:?}");
    bootstrap_tells(&broken).await?;
    broken.control_plane_is_untouched(before).await?;

    scene.apply(&[metrics.package()]).await?;
    broken.control_plane_written(VERSIONS[2], before, TIMEOUT).await?;
    broken.is_settled(TIMEOUT).await
}

/// The ClusterBootstrap names the package and quotes the error of ytt.
async fn bootstrap_tells(cluster: &Cluster) -> Result<()> {
    let what = "the ClusterBootstrap to say why metrics failed".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let packages = &bootstrap["status"]["upgrade"]["packages"];
            let failed = packages
                .as_array()
                .into_iter()
                .flatten()
                .find(|package| package["name"] == "metrics");
            match failed {
                Some(package) if package["state"] == "Failed" && package.to_string().contains(COMPLAINT) => {
                    Ok(())
                }
                _ => wait::not_yet(packages),
            }
        })
        .await
}
