//! Many Clusters at once, one of them with a package that never gets ready.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sluice_tests::kubelet::Delay;
use sluice_tests::scenario::{Cluster, PATIENCE, Scenario, Scene, VERSIONS};

use crate::common::release;

const CLUSTERS: usize = 20;

/// How many are created at once.
const AT_ONCE: usize = 4;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "twenty",
        "twenty Clusters upgraded at once, one of them stuck: the other nineteen pass it by",
        |scene| Box::pin(run(scene)),
    )
    .alone()
    .long()
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "2.0.0", Delay::seconds(1))?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let clusters: Vec<Cluster> = stream::iter(0..CLUSTERS)
        .map(|index| {
            let name = format!("c{index:02}");
            let (scene, old) = (&scene, &old);
            async move { scene.cluster(&name).create_settled(old).await }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let (stuck, others) = clusters.split_first().context("no Cluster was created")?;
    stuck.delay("antrea", Delay::Never);

    let before = scene.world().observer().catch_up().await?;
    try_join_all(clusters.iter().map(|cluster| cluster.upgrade(&new))).await?;
    for cluster in others {
        let written = cluster
            .control_plane_written(new.kubernetes(), before, PATIENCE * 3)
            .await?;
        let proven = cluster.packages_proven(&new, before, PATIENCE).await?;
        ensure!(proven.revision < written.revision);
    }
    stuck.says("antrea 2.0.0", PATIENCE).await?;
    stuck.control_plane_is_untouched(before).await?;
    stuck.delay("antrea", Delay::NONE);
    for cluster in &clusters {
        cluster.is_settled(PATIENCE * 3).await?;
    }
    Ok(())
}
