//! The ClusterBootstrap is edited or taken away in mid-hold.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sluice_tests::observer::Event;
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Identity, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{MidHold, additional, held, is_held, metrics, released, releases, revision};

pub(crate) fn edited() -> Scenario {
    Scenario::new(
        "bootstrap-edited",
        "another package version and policy in mid-hold and in the second before the release: it waits for the current spec",
        |scene| Box::pin(run_edited(scene)),
    )
}

async fn run_edited(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let patched = metrics(&scene, "2.0.1");
    // Slower than antrea: a release that does not wait for it is too early.
    let last = scene.slow_package("metrics", "2.0.2", Delay::seconds(8));
    scene.apply(&[patched.package(), last.package()]).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;

    let refer = async |name: String| additional(&cluster, |package| package["refName"] = json!(name)).await;
    cluster.patch_bootstrap(&refer(patched.name()).await?).await?;
    proven(&cluster, "2.0.1").await?;
    let policy =
        json!({"spec": {"upgradePolicy": {"packages": [{"package": "metrics", "readiness": "Applied"}]}}});
    cluster.patch_bootstrap(&policy).await?;
    cluster.control_plane_is_untouched(before).await?;

    // antrea gets ready at the same time as the version changes: the release needs the new version, fully reconciled.
    let history = cluster.history().await?;
    let mut patch = refer(last.name()).await?;
    patch["spec"]["upgradePolicy"] = Value::Null;
    cluster.delay("antrea", Delay::NONE);
    let edited = cluster.patch_bootstrap(&patch).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?
        .revision;
    let seen = proven(&cluster, "2.0.2").await?;
    let records = history.records().await?;
    let opened = records
        .opened("BeforeControlPlaneUpgrade", new.kubernetes(), written)
        .context("no record let the control plane go")?;
    let (edit, generation) = (revision(&edited)?, Identity::of(&edited).generation);
    in_order(&[
        ("the edit", edit),
        ("the proof of metrics 2.0.2", seen),
        ("the record that releases the control plane", opened),
        ("the write of the control plane", written),
    ])?;
    in_order(&[
        ("the edit", edit),
        ("the record that saw it", records.saw(generation)?),
        ("the write of the control plane", written),
    ])?;
    cluster.is_settled(TIMEOUT).await
}

async fn proven(cluster: &sluice_tests::scenario::Cluster, wanted: &str) -> Result<i64> {
    let what = format!("metrics {wanted} to be proven");
    let milestone = cluster
        .milestone(&what, TIMEOUT, 0, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == wanted)
        })
        .await?;
    Ok(milestone.revision)
}

pub(crate) fn deleted() -> Scenario {
    Scenario::new(
        "bootstrap-deleted",
        "the ClusterBootstrap is deleted by force in mid-hold: Sluice creates it again, and nothing is released meanwhile",
        |scene| Box::pin(run_deleted(scene)),
    )
}

async fn run_deleted(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    cluster.force_bootstrap_away().await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}
