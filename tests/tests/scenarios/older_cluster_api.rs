//! The life of a Cluster under older releases of Cluster API.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::components::ClusterApiRelease;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{PATIENCE, Scenario, Scene};

use crate::common::{EXTENSION_CONFIG, HOOKS, discovered_is, held, hooks_were_released, released, releases};

pub(crate) fn v1_13() -> Scenario {
    Scenario::new(
        "cluster-api-1-13",
        "under Cluster API 1.13 a Cluster is created, held and released in an upgrade with workers, and deleted",
        |scene| Box::pin(run(scene, &HOOKS)),
    )
    .cluster_api(ClusterApiRelease::V1_13)
}

pub(crate) fn v1_12() -> Scenario {
    Scenario::new(
        "cluster-api-1-12",
        "under Cluster API 1.12 a Cluster is created, held and released in an upgrade with workers, and deleted",
        |scene| Box::pin(run(scene, &HOOKS)),
    )
    .cluster_api(ClusterApiRelease::V1_12)
    // Between two that run in turn.
    .nightly()
}

pub(crate) fn v1_11() -> Scenario {
    Scenario::new(
        "cluster-api-1-11",
        "under Cluster API 1.11, and the hooks that it knows, a Cluster is created, held and released in an upgrade with workers, and deleted",
        |scene| Box::pin(run_v1_11(scene)),
    )
    .cluster_api(ClusterApiRelease::V1_11)
}

/// The hooks of 1.11.
const WITHOUT_STEPS: [&str; 5] = [
    "BeforeClusterCreate",
    "AfterControlPlaneInitialized",
    "BeforeClusterUpgrade",
    "AfterControlPlaneUpgrade",
    "AfterClusterUpgrade",
];

async fn run_v1_11(scene: Scene) -> Result<()> {
    let config = scene.objects().get(EXTENSION_CONFIG).await?.unwrap_or_default();
    let with_profile = config["spec"]["clientConfig"]["url"].clone();
    let without = with_profile
        .as_str()
        .and_then(|url| url.strip_suffix(ClusterApiRelease::V1_11.hooks()));
    let serve_at = async |url: &Value| {
        let patch = json!({"spec": {"clientConfig": {"url": url}}});
        scene.objects().merge(EXTENSION_CONFIG, &patch).await
    };
    serve_at(&json!(without)).await?;
    // docs/install.md says what to do.
    let undiscovered = discovered_is(&scene, "False", "catalog").await;
    serve_at(&with_profile).await?;
    undiscovered?;
    discovered_is(&scene, "True", "").await?;
    run(scene, &WITHOUT_STEPS).await
}

async fn run(scene: Scene, hooks: &[&str]) -> Result<()> {
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
    hooks_were_released(&cluster, hooks)?;

    cluster.delete().await?;
    let asked = cluster.hook_answers()?;
    let last = asked.iter().map(|answer| answer.hook.as_str()).next_back();
    ensure!(last == Some("BeforeClusterDelete"), "the last hook was {last:?}");
    Ok(())
}
