//! The observer itself: without hooks Cluster API rolls at once, and the observer must report it.

use anyhow::{Result, ensure};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "observer-catches",
        "the observer reports an upgrade without a hold as too early: control plane, the hook after it, and workers",
        |scene| Box::pin(run(scene)),
    )
    .without_sluice()
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[2], "2.0.0", Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("free").at(&old).workers(1).create().await?;
    cluster.is_available(TIMEOUT).await?;

    let before = cluster.upgrade(&new).await?;
    cluster
        .control_plane_written(VERSIONS[2], before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await?;
    scene.world().observer().catch_up().await?;

    let violations = scene.world().observer().violations(scene.namespace());
    let writes: Vec<&str> = violations
        .iter()
        .map(|violation| violation.write.as_str())
        .collect();
    ensure!(
        writes
            == [
                "the control plane was written to v1.36.3",
                "AfterControlPlaneUpgrade was passed at v1.36.3",
                "a MachineDeployment was written to v1.36.3"
            ],
        "the observer saw {violations:#?}"
    );
    ensure!(
        violations
            .iter()
            .all(|violation| violation.missing.iter().any(|missing| missing.contains("antrea"))),
        "the observer does not name the package: {violations:#?}"
    );
    Ok(())
}
