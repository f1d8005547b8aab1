//! Versions without an open gate: one that a user writes, and those of a Cluster API without hooks.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::is_completed;
use crate::not_in_force::gate_is;

const METRIC: &str = "sluice_ungated_versions_total";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "ungated",
        "a version that is written by hand, and versions that Cluster API writes without a hook call, are counted and reported",
        |scene| Box::pin(run(scene)),
    )
    .without_sluice()
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[0], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[1], "2.0.0", Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").at(&old).workers(1).create().await?;
    cluster.packages_proven(&old, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    is_completed(&cluster).await?;
    let before = scene.world().extension()?.metric(METRIC).await?;

    // Before anything goes wrong it is said that Cluster API does not ask about this namespace.
    moves(&scene, "sluice_unselected_clusters", 1.0).await?;
    // And antrea is not ready.
    cluster.upgrade(&new).await?;
    cluster
        .has_event("VersionUngated", "control plane", TIMEOUT)
        .await?;
    cluster.has_event("VersionUngated", "workers", TIMEOUT).await?;
    moves(&scene, METRIC, before + 2.0).await?;
    let what = "condition GateInForce to name the version".to_owned();
    let probe = |bootstrap: &Value| gate_is(bootstrap, "False", "VersionUngated");
    cluster.bootstrap_until(what, TIMEOUT, probe).await?;
    cluster.delay("antrea", Delay::NONE);
    cluster.is_settled(TIMEOUT).await?;
    is_completed(&cluster).await?;
    let what = "condition GateInForce to name the namespace, once the upgrade is over".to_owned();
    let probe = |bootstrap: &Value| gate_is(bootstrap, "False", "NamespaceNotSelected");
    cluster.bootstrap_until(what, TIMEOUT, probe).await?;

    // While the Cluster is not paused Cluster API puts it back at once.
    cluster.patch(&json!({"spec": {"paused": true}})).await?;
    let before = scene.world().extension()?.metric(METRIC).await?;
    let by_hand = json!({"spec": {"version": VERSIONS[2]}});
    scene
        .objects()
        .merge(&control_plane(&cluster).await?, &by_hand)
        .await?;
    cluster.has_event("VersionUngated", VERSIONS[2], TIMEOUT).await?;
    moves(&scene, METRIC, before + 1.0).await?;
    cluster.patch(&json!({"spec": {"paused": false}})).await?;
    Ok(())
}

async fn moves(scene: &Scene, metric: &str, to: f64) -> Result<()> {
    let extension = scene.world().extension()?;
    wait::until(format!("{metric} to be {to} at least"), TIMEOUT, || async {
        match extension.metric(metric).await? {
            counted if counted >= to => Ok(()),
            counted => wait::not_yet(counted),
        }
    })
    .await?;
    Ok(())
}

/// Where the control plane object of a Cluster is.
async fn control_plane(cluster: &Cluster) -> Result<String> {
    let object = cluster.object().await?;
    let name = object["spec"]["controlPlaneRef"]["name"].as_str();
    let name = name.context("a Cluster without control plane")?;
    let namespace = cluster.scene().namespace();
    Ok(format!(
        "/apis/harness.test/v1beta1/namespaces/{namespace}/harnesscontrolplanes/{name}"
    ))
}
