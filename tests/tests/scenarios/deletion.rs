//! Clusters are deleted at any time and in any way.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::objects::Release;
use sluice_tests::scenario::{Scenario, Scene};

use crate::common::{held, released, releases};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "deletion",
        "deletion in mid-hold, with its dependents first, of a paused Cluster and of one created again under its name: always finishes",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    tokio::try_join!(again(&scene, &old, &new), paused(&scene, &old, &new))?;
    Ok(())
}

/// Deleted in mid-hold, created again under its name, upgraded, deleted after the upgrade.
async fn again(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let first = scene.cluster("again").create_settled(old).await?;
    held(&first, new).await?;
    first.delete().await?;
    let second = scene.cluster("again").create_settled(old).await?;
    let before = held(&second, new).await?;
    released(&second, new, before).await?;
    second.delete().await
}

/// Nothing of a paused Cluster is uninstalled: a move deletes it so, and its workload lives on.
async fn paused(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("paused").create_settled(old).await?;
    let installs = cluster.installs().await?;
    let pause = |value: bool| json!({"spec": {"paused": value}});
    cluster.patch(&pause(true)).await?;
    cluster.begin_to_delete(&json!({})).await?;
    // By the time that another one is deleted, Sluice has reconciled the paused one.
    foreground(scene, old, new).await?;
    ensure!(
        cluster.installs().await? == installs,
        "packages of a paused Cluster were touched"
    );
    cluster.patch(&pause(false)).await?;
    cluster.is_gone().await
}

async fn foreground(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("foreground").create_settled(old).await?;
    held(&cluster, new).await?;
    cluster
        .delete_with(&json!({"propagationPolicy": "Foreground"}))
        .await
}

pub(crate) fn of_namespace() -> Scenario {
    Scenario::new(
        "namespace-deletion",
        "a namespace is deleted with a held Cluster in it, while no replica leads for a short time: both deletions finish",
        |scene| Box::pin(run_namespace(scene)),
    )
    .own_stack()
}

async fn run_namespace(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    held(&cluster, &new).await?;
    let extension = scene.world().extension()?;
    extension.kill().await?;
    scene.delete_namespace().await?;
    extension.restart().await?;
    scene.namespace_is_gone().await
}
