//! No replica answers, and what was not resolved meanwhile is held.

use anyhow::{Result, bail, ensure};
use serde_json::json;
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{RESOLVE, cluster};
use sluice_tests::scenario::{PATIENCE, Scenario, Scene, VERSIONS};
use sluice_tests::wait;

use super::{admit, class, image, is_of, machines_are_of, release};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "resolver-down",
        "without any replica a pool is scaled and a new version is refused; a Cluster whose class asks and that was not resolved is held until it is",
        |scene| Box::pin(run(scene)),
    )
    .class(class(Some("")))
    // Ends what all share.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let only = release(&scene, VERSIONS[1], 1, &["ubuntu"])?;
    scene.publish(&only).await?;
    let webhooks = admit(&scene).await?;
    let extension = scene.world().extension()?;
    let manifest = cluster(scene.namespace(), "one", "v1.35", None, 1);
    // The class asks.
    wait::until("Cluster one to be accepted", PATIENCE, || async {
        scene
            .apply(std::slice::from_ref(&manifest))
            .await
            .map_err(Into::into)
    })
    .await?;
    let one = scene.cluster("one").existing();
    one.packages_proven(&only, 0, PATIENCE).await?;
    one.is_settled(PATIENCE).await?;

    extension.kill().await?;
    let pool = |replicas: u32| {
        json!({"spec": {"topology": {"workers": {"machineDeployments": [
            {"class": "default", "name": "md", "replicas": replicas},
        ]}}}})
    };
    one.try_patch(&pool(2)).await?;
    machines_are_of(&one, "md", &image(&only, "ubuntu"), 2).await?;
    let unanswered = "failed calling webhook";
    let version = json!({"spec": {"topology": {"version": VERSIONS[2]}}});
    match one.try_patch(&version).await {
        Err(error) => ensure!(
            format!("{error:#}").contains(unanswered),
            "refused with {error:#}"
        ),
        Ok(()) => bail!("the version of a Cluster that was resolved is changed without an answer"),
    }
    let mut asks = manifest.clone();
    asks["metadata"]["name"] = json!("asks");
    asks["metadata"]["annotations"] = json!({RESOLVE: ""});
    match scene.apply(&[asks]).await {
        Err(error) => ensure!(
            format!("{error:#}").contains(unanswered),
            "refused with {error:#}"
        ),
        Ok(()) => bail!("a Cluster that asks for a resolution is created without an answer"),
    }
    // Conditions cannot see what its class asks for.
    let missed = scene.cluster("missed").unmanaged(VERSIONS[1]).create().await?;
    extension.restart().await?;

    missed.says("TKRNotResolved", PATIENCE).await?;
    missed.control_plane_is_untouched(0).await?;
    missed
        .patch(&json!({"metadata": {"annotations": {RESOLVE: ""}}}))
        .await?;
    is_of(&missed.object().await?, &only, &image(&only, "ubuntu"))?;
    missed.packages_proven(&only, 0, PATIENCE).await?;
    missed.is_settled(PATIENCE).await?;
    one.is_settled(PATIENCE).await?;
    unregister(&scene.client(), &webhooks).await
}
