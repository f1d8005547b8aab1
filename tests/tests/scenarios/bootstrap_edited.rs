//! The ClusterBootstrap is edited or taken away in mid-hold.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::kubelet::Delay;
use sluice_tests::objects::Release;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{PATIENCE, Scenario, Scene};

use crate::common::{additional, held, is_held, metrics, released, releases};

pub(crate) fn edited() -> Scenario {
    Scenario::new(
        "bootstrap-edited",
        "another package version and policy in mid-hold and in the second before the release: it waits for what is asked for now",
        |scene| Box::pin(run_edited(scene)),
    )
    .long()
}

async fn run_edited(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let patched = metrics(&scene, "2.0.1");
    let last = metrics(&scene, "2.0.2");
    scene.apply(&[patched.package(), last.package()]).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;

    let refer = async |name: String| {
        let patch = additional(&cluster, |package| package["refName"] = json!(name)).await?;
        cluster.patch_bootstrap(&patch).await
    };
    refer(patched.name()).await?;
    proven(&cluster, "2.0.1").await?;
    let policy =
        json!({"spec": {"upgradePolicy": {"packages": [{"package": "metrics", "readiness": "Applied"}]}}});
    cluster.patch_bootstrap(&policy).await?;
    cluster.control_plane_is_untouched(before).await?;

    // antrea gets ready and the version moves in the same moment: the release needs the new one.
    cluster.delay("antrea", Delay::NONE);
    refer(last.name()).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, PATIENCE)
        .await?;
    let seen = proven(&cluster, "2.0.2").await?;
    ensure!(
        seen < written.revision || edit_came_too_late(&cluster, written.revision).await?,
        "released at revision {} before metrics 2.0.2 was proven at {seen}",
        written.revision
    );
    cluster.is_settled(PATIENCE).await
}

/// Whether Cluster API had been released before the edit was written. Then the new version follows on the new control plane.
async fn edit_came_too_late(cluster: &sluice_tests::scenario::Cluster, written: i64) -> Result<bool> {
    let bootstrap = cluster.bootstrap().await?;
    let generation = bootstrap["metadata"]["generation"].as_i64().unwrap_or_default();
    let observed = bootstrap["status"]["upgrade"]["observedBootstrapGeneration"].as_i64();
    ensure!(
        observed == Some(generation),
        "written at {written}, record at {observed:?} of {generation}"
    );
    Ok(true)
}

async fn proven(cluster: &sluice_tests::scenario::Cluster, wanted: &str) -> Result<i64> {
    let what = format!("metrics {wanted} to be proven");
    let milestone = cluster
        .milestone(&what, PATIENCE, 0, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == wanted)
        })
        .await?;
    Ok(milestone.revision)
}

pub(crate) fn deleted() -> Scenario {
    Scenario::new(
        "bootstrap-deleted",
        "the ClusterBootstrap is forced away in mid-hold: it is made again, and nothing is released meanwhile",
        |scene| Box::pin(run_deleted(scene)),
    )
    .long()
}

async fn run_deleted(scene: Scene) -> Result<()> {
    let (old, new): (Release, Release) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    cluster.force_bootstrap_away().await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}
