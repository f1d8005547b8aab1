//! A Cluster is moved as `clusterctl move` does it.

use anyhow::{Result, ensure};
use sluice_tests::scenario::{Cluster, PATIENCE, Scenario, Scene};

use crate::common::{held, is_held, record_says, released, releases};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "moved",
        "UIDs and status are lost as in a move, at rest and in mid-hold: no PackageInstall changes, no early release",
        |scene| Box::pin(run(scene)),
    )
    .long()
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    relocate(&cluster).await?;
    cluster.is_available(PATIENCE).await?;
    cluster.is_settled(PATIENCE).await?;

    let before = held(&cluster, &new).await?;
    relocate(&cluster).await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}

/// Moves the Cluster and returns once its record is written anew.
async fn relocate(cluster: &Cluster) -> Result<()> {
    let installs = cluster.installs().await?;
    cluster.relocate().await?;
    record_says(cluster, "metrics", "Ready").await?;
    let after = cluster.installs().await?;
    ensure!(
        after == installs,
        "PackageInstalls were {installs:?} and are {after:?}"
    );
    Ok(())
}
