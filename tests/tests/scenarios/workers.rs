//! Workers alone change; workers wait for a control plane that takes its time.

use anyhow::{Result, bail, ensure};
use serde_json::json;
use sluice_tests::kubelet::Delay;
use sluice_tests::objects::Class;
use sluice_tests::observer::Event;
use sluice_tests::provider::SwapDelay;
use sluice_tests::scenario::{PATIENCE, Scenario, Scene};

use crate::common::{release, releases};

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
        "while the new control plane does not get healthy no worker of the new version appears",
        |scene| Box::pin(run_slow(scene)),
    )
    .class(Class {
        swap_delay: SwapDelay {
            after_milliseconds: 20_000,
            ..SwapDelay::default()
        },
        ..Class::default()
    })
    .long()
}

async fn run_slow(scene: Scene) -> Result<()> {
    let (old, _) = releases(&scene).await?;
    let new = release(&scene, sluice_tests::scenario::VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let before = cluster.upgrade(&new).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, PATIENCE)
        .await?;
    cluster
        .says("AfterControlPlaneUpgrade", PATIENCE)
        .await
        .or_else(|error| {
            // Cluster API itself waits for the control plane before it asks; then its own words are the reason.
            if format!("{error:#}").contains("HarnessControlPlane") {
                Ok(String::new())
            } else {
                Err(error)
            }
        })?;
    let runs = cluster
        .milestone(
            "the new control plane to be healthy",
            PATIENCE,
            before,
            |event| matches!(event, Event::ControlPlaneRuns { version } if version == new.kubernetes()),
        )
        .await?;
    let early = cluster.milestones().into_iter().find(|milestone| {
        milestone.revision > written.revision
            && milestone.revision < runs.revision
            && matches!(milestone.event, Event::WorkersWritten { .. })
    });
    if let Some(early) = early {
        bail!(
            "{early:?} before the control plane was healthy at revision {}",
            runs.revision
        );
    }
    cluster.is_settled(PATIENCE).await
}
