//! A Cluster is moved as `clusterctl move` does it.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{Release, Values};
use sluice_tests::scenario::verdict::{differs, same_objects};
use sluice_tests::scenario::{Cluster, Identity, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{held, is_held, record_says, release, released};
use crate::plan;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "moved",
        "UIDs and status are lost as in a move, at rest and in mid-hold, and a ClusterBootstrap comes before the Secrets that it names: the webhooks take it, all PackageInstalls and Apps stay the very same objects, no early release",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let webhooks = format!("sluice-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit(&webhooks, &[scene.namespace()]).await?;
    let of_upgrades = plan::admit(&scene).await?;
    let values = |release: Release| release.values("metrics", Values::Secret(json!({"replicas": 1})));
    let old = values(release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?);
    let new = values(release(&scene, VERSIONS[2], "2.0.0", Delay::Never)?);
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let installs = cluster.installs().await?;
    relocate(&cluster).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;

    let before = held(&cluster, &new).await?;
    relocate(&cluster).await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    same_objects(&installs, &cluster.installs().await?)?;
    scene.objects().delete(&of_upgrades).await?;
    unregister(&scene.client(), &webhooks).await
}

/// Moves the Cluster and returns once its record is written again, for the Cluster that it is now.
async fn relocate(cluster: &Cluster) -> Result<()> {
    let installs = cluster.installs().await?;
    let named = cluster.bootstrap().await?.to_string();
    ensure!(
        named.contains(r#""secretRef":"one-metrics-package""#),
        "no Secret is named by {named}"
    );
    let (was, had) = (
        identity(cluster).await?,
        Identity::of(&cluster.bootstrap().await?),
    );
    let warnings = cluster.relocate().await?.join(" ");
    ensure!(
        warnings.contains("one-metrics-package") && warnings.contains("not found"),
        "the Secret that the ClusterBootstrap names was there before it, or the webhook was not asked: {warnings:?}"
    );
    let is = identity(cluster).await?;
    differs("the UID of the Cluster", &was.uid, &is.uid)?;
    let what = format!("the record to be one of the Cluster with UID {}", is.uid);
    let record = cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["clusterUID"] == is.uid {
                Ok(Identity::of(bootstrap))
            } else {
                sluice_tests::wait::not_yet(record)
            }
        })
        .await?;
    differs("the UID of the ClusterBootstrap", &had.uid, &record.uid)?;
    record_says(cluster, "metrics", "Ready").await?;
    let after = cluster.installs().await?;
    same_objects(&installs, &after)?;
    ensure!(
        after == installs,
        "PackageInstalls and Apps were {installs:?} and are {after:?}"
    );
    Ok(())
}

async fn identity(cluster: &Cluster) -> Result<Identity> {
    Ok(Identity::of(&cluster.object().await?))
}
