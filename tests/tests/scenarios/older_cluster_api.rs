//! The life of a Cluster under older releases of Cluster API.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::components::ClusterApiRelease;
use sluice_tests::scenario::{Scenario, Scene};

use crate::common::{
    EXTENSION_CONFIG, HOOKS, held, hooks_were_released, proven_before_workers, released, releases,
};

pub(crate) fn v1_13() -> Scenario {
    Scenario::new(
        "cluster-api-1-13",
        "under Cluster API 1.13 a Cluster is created, held and released in an upgrade with workers, and deleted",
        |scene| Box::pin(run(scene, HOOKS)),
    )
    .cluster_api(ClusterApiRelease::V1_13)
}

pub(crate) fn v1_12() -> Scenario {
    Scenario::new(
        "cluster-api-1-12",
        "under Cluster API 1.12 a Cluster is created, held and released in an upgrade with workers, and deleted",
        |scene| Box::pin(run(scene, HOOKS)),
    )
    .cluster_api(ClusterApiRelease::V1_12)
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
const WITHOUT_STEPS: &[&str] = &[
    "BeforeClusterCreate",
    "AfterControlPlaneInitialized",
    "BeforeClusterUpgrade",
    "AfterControlPlaneUpgrade",
    "AfterClusterUpgrade",
];

async fn run_v1_11(scene: Scene) -> Result<()> {
    let extension = scene.world().extension()?;
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
    // docs/install.md describes the remedy.
    let undiscovered = extension.discovered_is("sluice", "False", "catalog").await;
    serve_at(&with_profile).await?;
    undiscovered?;
    extension.discovered_is("sluice", "True", "").await?;
    run(scene, WITHOUT_STEPS).await
}

async fn run(scene: Scene, hooks: &[&str]) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    let control_plane = released(&cluster, &new, before).await?;

    let runs = proven_before_workers(&cluster, &new, before).await?;
    ensure!(
        control_plane.revision < runs.revision,
        "the control plane was written at revision {}, and ran at {}",
        control_plane.revision,
        runs.revision
    );
    hooks_were_released(&cluster, hooks)?;

    cluster.delete().await?;
    let asked = cluster.hook_answers()?;
    let last = asked.iter().map(|answer| answer.hook.as_str()).next_back();
    ensure!(last == Some("BeforeClusterDelete"), "the last hook was {last:?}");
    Ok(())
}
