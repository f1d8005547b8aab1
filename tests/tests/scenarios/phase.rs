//! A package that its user wants only once the control plane has moved.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::observer::Event;
use sluice_tests::scenario::verdict::{in_order, none_between};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "phase-after-control-plane",
        "a package of phase AfterControlPlane does not hold the control plane, and holds the workers until it has proof there",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let release = |kubernetes, version, delay| -> Result<_> {
        Ok(scene
            .release(kubernetes, version, Delay::NONE)?
            .additional(scene.slow_package("metrics", version, delay)))
    };
    let old = release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(VERSIONS[2], "2.0.0", Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let policy = json!({"packages": [{"package": "metrics", "phase": "AfterControlPlane"}]});
    cluster
        .patch_bootstrap(&json!({"spec": {"upgradePolicy": policy}}))
        .await?;

    let before = cluster.upgrade(&new).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    let runs = cluster
        .milestone(
            "the control plane to run the new version",
            TIMEOUT,
            before,
            |event| matches!(event, Event::ControlPlaneRuns { version } if version == new.kubernetes()),
        )
        .await?;
    let message = cluster.says("metrics 2.0.0", TIMEOUT).await?;
    ensure!(
        message.contains("AfterControlPlaneUpgrade"),
        "the Cluster says {message:?}"
    );
    let is_proven = |event: &Event| matches!(event, Event::PackageProven { ref_name, version } if ref_name.starts_with("metrics.") && version == "2.0.0");
    let now = scene.world().observer().catch_up().await?;
    let milestones = cluster.milestones();
    none_between(&milestones, (before, now), is_proven)?;
    none_between(&milestones, (before, now), is_roll)?;

    cluster.delay("metrics", Delay::NONE);
    let proven = cluster
        .milestone("metrics 2.0.0 to be proven", TIMEOUT, before, is_proven)
        .await?;
    let workers = cluster
        .milestone("the workers to be written", TIMEOUT, before, is_roll)
        .await?;
    in_order(&[
        ("the upgrade", before),
        ("the write of the control plane", written.revision),
        ("the new control plane", runs.revision),
        ("the proof of metrics", proven.revision),
        ("the write of the workers", workers.revision),
    ])?;
    cluster.is_settled(TIMEOUT).await
}

fn is_roll(event: &Event) -> bool {
    matches!(event, Event::WorkersWritten { .. })
}
