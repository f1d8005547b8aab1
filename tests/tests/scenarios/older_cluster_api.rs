//! The life of a Cluster under an older Cluster API.

use anyhow::{Result, ensure};
use sluice_tests::components::ClusterApiRelease;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{PATIENCE, Scenario, Scene};

use crate::common::{held, hooks_were_released_in_order, released, releases};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "older-cluster-api",
        "under Cluster API 1.13 a Cluster is created, held and released in an upgrade with workers, and deleted",
        |scene| Box::pin(run(scene)),
    )
    .cluster_api(ClusterApiRelease::Before)
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    let control_plane = released(&cluster, &new, before).await?;

    let version = new.kubernetes();
    let runs = cluster
        .milestone(
            "the control plane to run the new version",
            PATIENCE,
            before,
            |event| matches!(event, Event::ControlPlaneRuns { version: runs } if runs == version),
        )
        .await?;
    let again = cluster.packages_proven(&new, runs.revision, PATIENCE).await?;
    let workers = cluster
        .milestone(
            "the new version to be written to the workers",
            PATIENCE,
            before,
            |event| matches!(event, Event::WorkersWritten { version: written, .. } if written == version),
        )
        .await?;
    ensure!(
        control_plane.revision < runs.revision && again.revision < workers.revision,
        "control plane written at revision {}, it ran at {}, proof came again at {}, workers were written at {}",
        control_plane.revision,
        runs.revision,
        again.revision,
        workers.revision
    );
    hooks_were_released_in_order(&cluster)?;

    cluster.delete().await?;
    let asked = cluster.hook_answers()?;
    let last = asked.iter().map(|answer| answer.hook.as_str()).next_back();
    ensure!(last == Some("BeforeClusterDelete"), "the last hook was {last:?}");
    Ok(())
}
