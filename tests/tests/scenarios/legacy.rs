//! Leftovers of the addons-manager: its pause, and releases with the legacy mark.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{held, is_held, record_says, released, releases};

const TKR: &str = "run.tanzu.vmware.com/tkr";
const LEGACY_TKR: &str = "run.tanzu.vmware.com/legacy-tkr";
const PAUSED_FOR: &str = "tkg.tanzu.vmware.com/paused";

pub(crate) fn paused() -> Scenario {
    Scenario::new(
        "legacy-pause",
        "a Cluster that the addons-manager paused for an upgrade is taken over: the pause goes once the packages are proven, or the Cluster is deleted; another pause stays",
        |scene| Box::pin(run_paused(scene)),
    )
}

async fn run_paused(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    tokio::try_join!(
        taken_over(&scene, &old, &new),
        deleted(&scene, &old, &new),
        kept(&scene, &old)
    )?;
    Ok(())
}

async fn taken_over(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("stuck").create_settled(old).await?;
    let before = cluster.patch(&bump(new)).await?;
    record_says(&cluster, "metrics", "Ready").await?;
    record_says(&cluster, "antrea", "Reconciling").await?;
    ensure!(
        cluster.object().await?["spec"]["paused"] == true,
        "the pause went before the packages were proven"
    );
    cluster.control_plane_is_untouched(before).await?;
    cluster.delay("antrea", Delay::NONE);
    let what = format!("the addons-manager's pause of {} to be gone", cluster.name());
    cluster
        .until(what, TIMEOUT, |object| {
            let (paused, annotation) = (
                &object["spec"]["paused"],
                &object["metadata"]["annotations"][PAUSED_FOR],
            );
            if *paused != true && annotation.is_null() {
                Ok(())
            } else {
                wait::not_yet(format!("paused {paused}, annotation {annotation}"))
            }
        })
        .await?;
    cluster.has_event("LegacyPauseRemoved", "", TIMEOUT).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    let proven = cluster.packages_proven(new, before, TIMEOUT).await?;
    in_order(&[
        ("the last proof", proven.revision),
        ("the write of the control plane", written.revision),
    ])?;
    cluster.is_settled(TIMEOUT).await
}

/// The upgrade of a Cluster that goes away while it is paused waits for nothing.
async fn deleted(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("deleted").create_settled(old).await?;
    cluster.patch(&bump(new)).await?;
    record_says(&cluster, "antrea", "Reconciling").await?;
    cluster.delete().await
}

/// Label, version, pause and annotation in one write, as the addons-manager's webhook made it.
fn bump(new: &Release) -> Value {
    json!({
        "metadata": {"labels": {TKR: new.name()}, "annotations": {PAUSED_FOR: new.name()}},
        "spec": {"paused": true, "topology": {"version": new.kubernetes()}},
    })
}

/// A user pauses a Cluster that still carries an annotation of an earlier upgrade.
async fn kept(scene: &Scene, old: &Release) -> Result<()> {
    let cluster = scene.cluster("users").create_settled(old).await?;
    let pause = json!({
        "metadata": {"annotations": {PAUSED_FOR: "v1.20.0---earlier.1"}},
        "spec": {"paused": true},
    });
    cluster.patch(&pause).await?;
    is_seen(&cluster).await?;
    // A reconcile removes only the leftovers that the record of the previous reconcile permits.
    let edit =
        json!({"spec": {"topology": {"controlPlane": {"metadata": {"labels": {"harness.test/edit": "1"}}}}}});
    cluster.patch(&edit).await?;
    is_seen(&cluster).await?;
    ensure!(
        cluster.object().await?["spec"]["paused"] == true,
        "the pause of a user was removed"
    );
    cluster.patch(&json!({"spec": {"paused": null}})).await?;
    Ok(())
}

/// Waits until the record has seen the Cluster as it is.
async fn is_seen(cluster: &Cluster) -> Result<()> {
    let generation = cluster.object().await?["metadata"]["generation"].clone();
    let what = format!(
        "the record of {} to have seen generation {generation}",
        cluster.name()
    );
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let observed = &bootstrap["status"]["upgrade"]["observedClusterGeneration"];
            if *observed == generation {
                Ok(())
            } else {
                wait::not_yet(observed)
            }
        })
        .await
}

pub(crate) fn labelled() -> Scenario {
    Scenario::new(
        "legacy-label",
        "the label of a release marked legacy does not pass the gate; without label and ClusterBootstrap Sluice no longer manages the Cluster",
        |scene| Box::pin(run_labelled(scene)),
    )
}

async fn run_labelled(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let legacy = legacy(&scene, &new);
    scene.apply(std::slice::from_ref(&legacy)).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    label(&cluster, legacy["metadata"]["name"].clone()).await?;
    cluster.says("TKRLegacy", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;

    label(&cluster, json!(new.name())).await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;

    leaves(&scene, &old, &new).await
}

/// The way out of Sluice.
async fn leaves(scene: &Scene, old: &Release, new: &Release) -> Result<()> {
    let cluster = scene.cluster("leaves").create_settled(old).await?;
    label(&cluster, Value::Null).await?;
    cluster.force_bootstrap_away().await?;
    cluster.has_event("Unmanaged", "", TIMEOUT).await?;
    let before = cluster.upgrade_unmanaged(new.kubernetes()).await?;
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await
}

/// A release of the same Kubernetes version that is marked legacy.
fn legacy(scene: &Scene, of: &Release) -> Value {
    let build = format!("{}.legacy", scene.namespace());
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3",
        "kind": "TanzuKubernetesRelease",
        "metadata": {"name": format!("{}---{build}", of.kubernetes()), "labels": {LEGACY_TKR: ""}},
        "spec": {
            "version": format!("{}+{build}", of.kubernetes()),
            "kubernetes": {"version": of.kubernetes()},
            "bootstrapPackages": [],
        },
    })
}

async fn label(cluster: &Cluster, release: Value) -> Result<()> {
    cluster
        .patch(&json!({"metadata": {"labels": {TKR: release}}}))
        .await?;
    Ok(())
}
