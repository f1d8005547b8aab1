//! The target moves while packages are on their way to it.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::{Release, TKR};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT};

use crate::common::{held, is_held, released, releases};

/// Cluster API's way to move a version back, at one's own risk.
pub(crate) const UNSAFE: &str = "unsafe.topology.cluster.x-k8s.io/disable-update-version-check";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "back-and-forth",
        "a target that changes back and forth, a second bump while held, a label that is missing for a while: never lost, never early",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    tokio::try_join!(
        moved_back(&scene, &old, &new),
        second_bump(&scene, &old, &new),
        label_removed(&scene, &old, &new),
    )?;
    Ok(())
}

async fn moved_back(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("back").create_settled(old).await?;
    let before = held(&cluster, new).await?;
    let mut back = sluice_tests::objects::upgrade(old.kubernetes(), Some(&old.name()));
    back["metadata"]["annotations"] = json!({UNSAFE: ""});
    cluster.patch(&back).await?;
    cluster.is_settled(TIMEOUT).await?;
    outcome(&cluster, "Cancelled").await?;
    // Packages that were proven the first time are not deployed again.
    held(&cluster, new).await?;
    released(&cluster, new, before).await?;
    outcome(&cluster, "Completed").await
}

async fn second_bump(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("second").create_settled(old).await?;
    let before = held(&cluster, new).await?;
    let further = json!({"spec": {"topology": {"version": "v1.37.0"}}});
    match cluster.try_patch(&further).await {
        Ok(()) => bail!("Cluster API took a second bump while the first was held"),
        Err(error) => ensure!(
            format!("{error:#}").contains("version cannot be changed"),
            "refused otherwise than known: {error:#}"
        ),
    }
    is_held(&cluster, new, before).await?;
    released(&cluster, new, before).await?;
    Ok(())
}

async fn label_removed(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("label").create_settled(old).await?;
    let before = held(&cluster, new).await?;
    let label = |value: Value| json!({"metadata": {"labels": {TKR: value}}});
    cluster.patch(&label(Value::Null)).await?;
    cluster.says("TKRLabelRemoved", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    cluster.patch(&label(json!(new.name()))).await?;
    is_held(&cluster, new, before).await?;
    released(&cluster, new, before).await?;
    Ok(())
}

async fn outcome(cluster: &Cluster, wanted: &str) -> Result<()> {
    let what = format!("the record of {} to close as {wanted}", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["outcome"] == wanted {
                Ok(())
            } else {
                sluice_tests::wait::not_yet(record)
            }
        })
        .await
}
