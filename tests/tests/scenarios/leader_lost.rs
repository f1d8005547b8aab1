//! The leader dies, or is stopped, in the middle of a hold.

use anyhow::{Result, ensure};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{MidHold, is_held};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "leader-lost",
        "the leader is killed in mid-hold, the next one is stopped while the last package gets ready: nothing is early, and the other replica releases",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let extension = scene.world().extension()?;
    extension.take_over().await?;
    is_held(&cluster, &new, before).await?;

    let stopped = extension.leader().await?;
    stopped.freeze().await?;
    cluster.delay("antrea", Delay::NONE);
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await;
    // Other scenarios need it, however this one goes on.
    let ended = extension.thaw(stopped).await?;
    written?;
    ensure!(
        ended.is_some_and(|status| !status.success()),
        "a leader that lost its lease ended with {ended:?}"
    );
    cluster.is_settled(TIMEOUT).await
}
