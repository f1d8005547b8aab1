//! Workers alone change; workers wait for a control plane that takes its time.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::observer::Event;
use sluice_tests::provider::CONTROL_PLANE;
use sluice_tests::scenario::verdict::{in_order, lasted, none_between};
use sluice_tests::scenario::{PATIENCE, Scenario, Scene, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{release, releases};

/// How many times longer than a healthy one the new control plane takes.
const LONGER: u32 = 5;

/// How long Cluster API may take to ask, if it asks at all while the control plane is not healthy.
const ASKED: Duration = Duration::from_secs(90);

pub(crate) fn only() -> Scenario {
    Scenario::new(
        "only-workers",
        "a change of a worker pool changes no PackageInstall and rolls no control plane",
        |scene| Box::pin(run_only(scene)),
    )
}

async fn run_only(scene: Scene) -> Result<()> {
    let (old, _) = releases(&scene).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let installs = cluster.installs().await?;
    let pool =
        json!({"class": "default", "name": "md", "replicas": 2, "metadata": {"labels": {"pool": "grown"}}});
    let before = cluster
        .patch(&json!({"spec": {"topology": {"workers": {"machineDeployments": [pool]}}}}))
        .await?;
    let what = "both workers to be available".to_owned();
    cluster
        .until(what, PATIENCE, |cluster| {
            let workers = &cluster["status"]["workers"];
            if workers["availableReplicas"] == 2 && workers["upToDateReplicas"] == 2 {
                Ok(())
            } else {
                sluice_tests::wait::not_yet(workers)
            }
        })
        .await?;
    cluster.is_settled(PATIENCE).await?;
    cluster.control_plane_is_untouched(before).await?;
    ensure!(
        cluster.installs().await? == installs,
        "packages changed with the workers"
    );
    Ok(())
}

pub(crate) fn slow_control_plane() -> Scenario {
    Scenario::new(
        "control-plane-unhealthy",
        "a new control plane stays unhealthy five times as long as a healthy one needs until workers follow: no worker of the new version appears",
        |scene| Box::pin(run_slow(scene)),
    )
    .long()
}

async fn run_slow(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[0], "1.0.0", Delay::NONE)?;
    let middle = release(&scene, VERSIONS[1], "2.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "3.0.0", Delay::NONE)?;
    for release in [&old, &middle, &new] {
        scene.publish(release).await?;
    }
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let before = cluster.upgrade(&middle).await?;
    let written = cluster
        .control_plane_written(middle.kubernetes(), before, PATIENCE)
        .await?;
    let workers = cluster
        .milestone("the workers to be written", PATIENCE, before, is_roll)
        .await?;
    let healthy = workers.seen.duration_since(written.seen).unsigned_abs();
    cluster.is_settled(PATIENCE).await?;

    cluster.delay(CONTROL_PLANE, Delay::Never);
    let before = cluster.upgrade(&new).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, PATIENCE)
        .await?;
    cluster
        .says("AfterControlPlaneUpgrade", ASKED)
        .await
        .or_else(|error| {
            // Cluster API itself waits for the control plane before it asks; then its own words are the reason.
            if format!("{error:#}").contains("HarnessControlPlane") {
                Ok(String::new())
            } else {
                Err(error)
            }
        })?;
    // The time itself is what is tested: nothing that could be waited for happens in it.
    tokio::time::sleep(healthy * LONGER).await;
    cluster.delay(CONTROL_PLANE, Delay::NONE);
    let runs = cluster
        .milestone(
            "the new control plane to be healthy",
            PATIENCE,
            before,
            |event| matches!(event, Event::ControlPlaneRuns { version } if version == new.kubernetes()),
        )
        .await?;
    lasted(
        healthy,
        runs.seen.duration_since(written.seen).unsigned_abs(),
        LONGER,
    )?;
    none_between(&cluster.milestones(), (before, runs.revision), is_roll)?;
    let workers = cluster
        .milestone("the workers to be written", PATIENCE, before, is_roll)
        .await?;
    in_order(&[
        ("the write of the control plane", written.revision),
        ("the new control plane", runs.revision),
        ("the write of the workers", workers.revision),
    ])?;
    cluster.is_settled(PATIENCE).await
}

fn is_roll(event: &Event) -> bool {
    matches!(event, Event::WorkersWritten { .. })
}
