//! Without a replica no Cluster is resolved. Sluice holds unresolved Clusters afterwards.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{RESOLVE, cluster};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};

use super::{admit, apply_until_accepted, class, image, is_of, machines_are_of, release};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "resolver-down",
        "without any replica a pool is scaled and a new version is refused; an unresolved Cluster whose class requests a resolution is held until it is resolved",
        |scene| Box::pin(run(scene)),
    )
    .class(class(Some("")))
    // Ends what all share.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let only = release(&scene, VERSIONS[1], 1, &["ubuntu"])?;
    scene.publish(&only).await?;
    let manifest = cluster(scene.namespace(), "one", "v1.35", None, 1);
    // Created while its class requested no resolution.
    class_asks(&scene, &manifest, &Value::Null).await?;
    let old = scene.cluster("old").unmanaged(VERSIONS[0]).create().await?;
    old.is_settled(TIMEOUT).await?;
    class_asks(&scene, &manifest, &json!("")).await?;
    let webhooks = admit(&scene).await?;
    let extension = scene.world().extension()?;
    // The class asks.
    apply_until_accepted(&scene, &manifest).await?;
    let one = scene.cluster("one").existing();
    one.packages_proven(&only, 0, TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;

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
    let bumped = old.upgrade_unmanaged(VERSIONS[1]).await?;
    extension.restart().await?;

    old.says("TKRNotResolved", TIMEOUT).await?;
    old.control_plane_is_untouched(bumped).await?;

    missed.says("TKRNotResolved", TIMEOUT).await?;
    missed.control_plane_is_untouched(0).await?;
    missed
        .patch(&json!({"metadata": {"annotations": {RESOLVE: ""}}}))
        .await?;
    is_of(&missed.object().await?, &only, &image(&only, "ubuntu"))?;
    missed.packages_proven(&only, 0, TIMEOUT).await?;
    missed.is_settled(TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;
    old.control_plane_is_untouched(bumped).await?;
    unregister(&scene.client(), &webhooks).await
}

/// Has the ClusterClass of the Cluster ask for releases of this selector, or for none.
async fn class_asks(scene: &Scene, cluster: &Value, selector: &Value) -> Result<()> {
    let class = cluster["spec"]["topology"]["classRef"]["name"].as_str();
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusterclasses/{}",
        scene.namespace(),
        class.context("the Cluster names no class")?
    );
    let annotated = json!({"metadata": {"annotations": {RESOLVE: selector}}});
    scene.objects().merge(&path, &annotated).await?;
    Ok(())
}
