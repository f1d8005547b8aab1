//! Clusters that are deleted after the addons-manager is gone, and in the middle of it.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT};
use sluice_tests::wait;

use super::{REGISTRATION, left, registration};
use crate::common::releases;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "takeover-delete",
        "Clusters of the addons-manager with Machines that its hook holds: the one in deletion ends, a Machine is replaced, and the other Cluster is deleted as well",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let (old, _) = releases(&scene).await?;
    let (going, staying) =
        tokio::try_join!(created(&scene, "going", &old), created(&scene, "staying", &old))?;
    let extension = scene.world().extension()?;
    extension.kill().await?;
    left::by_the_addons_manager(&going, &old).await?;
    left::by_the_addons_manager(&staying, &old).await?;
    // As it was before Sluice: no hook is called, and Cluster API goes on until the Machines.
    let objects = scene.objects();
    let registration = registration(&scene).await?;
    objects.delete(REGISTRATION).await?;
    going.begin_to_delete(&json!({})).await?;
    waits_for_the_hook(&going).await?;

    extension.restart().await?;
    objects.restore(REGISTRATION, &registration).await?;
    going.is_gone().await?;
    left::nothing_is_left(&staying, TIMEOUT).await?;
    writes_nothing_else(&staying).await?;
    replaced(&staying).await?;
    staying.delete().await?;
    scene.in_order().await
}

async fn created(scene: &Scene, name: &str, release: &Release) -> Result<Cluster> {
    let cluster = scene.cluster(name).workers(1).create_settled(release).await?;
    ensure!(
        !left::machines(&cluster).await?.is_empty(),
        "{name} has no Machines"
    );
    Ok(cluster)
}

/// Waits until Cluster API reports that a Machine waits for the hook of the addons-manager.
async fn waits_for_the_hook(cluster: &Cluster) -> Result<()> {
    let what = format!(
        "a Machine of {} to wait for its pre-terminate hook",
        cluster.name()
    );
    wait::until(what, TIMEOUT, || async {
        let machines = left::machines(cluster).await?;
        let conditions = machines
            .iter()
            .filter_map(|machine| machine["status"]["conditions"].as_array());
        let mut deleting = conditions
            .flatten()
            .filter(|condition| condition["type"] == "Deleting");
        match deleting.find(|condition| condition["reason"] == "WaitingForPreTerminateHook") {
            Some(_) => Ok(()),
            None => wait::not_yet(format!("{} Machines wait for something else", machines.len())),
        }
    })
    .await?;
    Ok(())
}

/// The role allows patches of Machines, and the policy rejects all patches that Sluice does not need.
async fn writes_nothing_else(cluster: &Cluster) -> Result<()> {
    const SLUICE: &str = "system:serviceaccount:sluice-system:sluice";
    const OTHER: &str = "harness.test/of-a-user";
    let machines = left::machines(cluster).await?;
    let machine = machines.first().context("a Cluster without Machines")?;
    let name = machine["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/{name}",
        cluster.scene().namespace()
    );
    let of_a_user = json!({"metadata": {"annotations": {OTHER: "stays"}}});
    cluster.scene().objects().merge(&path, &of_a_user).await?;
    for (change, says) in [
        (json!({"spec": {"minReadySeconds": 1}}), "must not write the spec"),
        (
            json!({"metadata": {"labels": {"a": "b"}}}),
            "must not write labels",
        ),
        (
            json!({"metadata": {"finalizers": null}}),
            "must not write labels, finalizers",
        ),
        (
            json!({"metadata": {"annotations": {"a": "b"}}}),
            "may only remove the addons-manager annotation",
        ),
        (
            json!({"metadata": {"annotations": {OTHER: null}}}),
            "may only remove the addons-manager annotation",
        ),
        (
            json!({"metadata": {"annotations": {left::HOOK: "another"}}}),
            "may only remove the addons-manager annotation",
        ),
    ] {
        let request = http::Request::patch(format!("{path}?dryRun=All"))
            .header("content-type", "application/merge-patch+json")
            .header("impersonate-user", SLUICE)
            .body(change.to_string().into_bytes())?;
        match cluster.scene().client().request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.message.contains(says) => {}
            other => bail!("{change} was answered {other:?}, not that Sluice {says}"),
        }
    }
    Ok(())
}

/// A rollout ends: a Machine that is deleted goes, and another one comes.
async fn replaced(cluster: &Cluster) -> Result<()> {
    let machines = left::machines(cluster).await?;
    let machine = machines.first().map_or("", |machine| {
        machine["metadata"]["name"].as_str().unwrap_or_default()
    });
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/{machine}",
        cluster.scene().namespace()
    );
    let objects = cluster.scene().objects();
    objects.delete(&path).await?;
    wait::until(format!("Machine {machine} to be gone"), TIMEOUT, || async {
        match objects.get(&path).await? {
            None => Ok(()),
            Some(found) => wait::not_yet(&found["status"]["conditions"]),
        }
    })
    .await?;
    Ok(())
}
