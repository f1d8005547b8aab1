//! Workers alone change.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};

use crate::common::releases;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "only-workers",
        "a change of a worker pool changes no PackageInstall and rolls no control plane",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
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
        .until(what, TIMEOUT, |cluster| {
            let workers = &cluster["status"]["workers"];
            if workers["availableReplicas"] == 2 && workers["upToDateReplicas"] == 2 {
                Ok(())
            } else {
                sluice_tests::wait::not_yet(workers)
            }
        })
        .await?;
    cluster.is_settled(TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    ensure!(
        cluster.installs().await? == installs,
        "packages changed with the workers"
    );
    Ok(())
}
