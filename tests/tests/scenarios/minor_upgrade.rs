//! One minor up: packages, control plane, packages again, workers.

use anyhow::{Result, ensure};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{HOOKS, hooks_were_released, proven_before_workers, proven_before_written};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "minor-upgrade",
        "the control plane waits for the slowest package, workers for new proof on the new control plane; the Cluster shows the pending packages",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let release = |kubernetes, version, antrea, metrics| -> Result<_> {
        Ok(scene
            .release(kubernetes, version, antrea)?
            .additional(scene.slow_package("metrics", version, metrics))
            .additional(scene.package("secretgen", version)))
    };
    let old = release(VERSIONS[1], "1.0.0", Delay::NONE, Delay::NONE)?;
    let new = release(VERSIONS[2], "2.0.0", Delay::seconds(5), Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("up").at(&old).workers(1).create().await?;
    cluster.packages_proven(&old, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;

    let before = cluster.upgrade(&new).await?;
    cluster.says("antrea", TIMEOUT).await?;
    cluster.says("metrics", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    cluster.delay("metrics", Delay::NONE);
    proven_before_written(&cluster, &new, before).await?;
    proven_before_workers(&cluster, &new, before).await?;
    cluster.is_settled(TIMEOUT).await?;
    ensure!(cluster.workload()?.api.version() == VERSIONS[2]);
    hooks_were_released(&cluster, HOOKS)
}
