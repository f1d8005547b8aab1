//! Clusters that Sluice does not manage, alone and among managed ones.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use sluice_tests::observer::{Milestone, Revision};
use sluice_tests::scenario::{Cluster, HookAnswer, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "unmanaged",
        "a Cluster without a release is held only until it is seen; of ten Clusters upgraded at once the five managed ones wait, the others do not",
        |scene| Box::pin(run(scene)),
    )
    .alone()
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[2], "2.0.0", Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;

    let mut managed = Vec::new();
    let mut free = Vec::new();
    for index in 0..5 {
        managed.push(
            scene
                .cluster(&format!("managed{index}"))
                .at(&old)
                .create()
                .await?,
        );
        let cluster = scene.cluster(&format!("free{index}")).unmanaged(VERSIONS[1]);
        free.push(cluster.create().await?);
    }
    for cluster in managed.iter().chain(&free) {
        cluster.is_available(TIMEOUT * 2).await?;
        cluster.is_settled(TIMEOUT).await?;
    }
    for cluster in &managed {
        cluster.packages_proven(&old, 0, TIMEOUT * 2).await?;
    }

    let before = scene.world().observer().catch_up().await?;
    let upgrades = managed.iter().map(|cluster| cluster.upgrade(&new));
    let upgrades_free = free.iter().map(|cluster| cluster.upgrade_unmanaged(VERSIONS[2]));
    tokio::try_join!(try_join_all(upgrades), try_join_all(upgrades_free))?;

    for cluster in &free {
        written(cluster, before).await?;
        cluster.is_settled(TIMEOUT * 2).await?;
        held_only_until_seen(cluster)?;
    }
    for cluster in &managed {
        cluster.says("antrea", TIMEOUT).await?;
        cluster.control_plane_is_untouched(before).await?;
        cluster.delay("antrea", Delay::NONE);
    }
    for cluster in &managed {
        written(cluster, before).await?;
        cluster.is_settled(TIMEOUT * 2).await?;
    }
    Ok(())
}

async fn written(cluster: &Cluster, since: Revision) -> Result<Milestone> {
    cluster
        .control_plane_written(VERSIONS[2], since, TIMEOUT * 2)
        .await
}

/// Until a replica has seen a Cluster, its class may ask for a release (docs/decisions/0034-holds-for-unresolved-clusters.md).
fn held_only_until_seen(cluster: &Cluster) -> Result<()> {
    let answers = cluster.hook_answers()?;
    answers
        .iter()
        .find(|answer| answer.hook == "BeforeControlPlaneUpgrade")
        .with_context(|| format!("no hook was called for {}: {answers:?}", cluster.name()))?;
    let before_seen = |answer: &HookAnswer| {
        let asked = ["BeforeClusterCreate", "BeforeClusterUpgrade"];
        answer.reason == "ClusterNotObserved" && asked.contains(&answer.hook.as_str())
    };
    let held = answers
        .iter()
        .find(|answer| answer.is_held() && !before_seen(answer));
    ensure!(held.is_none(), "a call for {} was held: {held:?}", cluster.name());
    Ok(())
}
