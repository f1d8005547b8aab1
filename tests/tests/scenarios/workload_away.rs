//! The workload API server is unreachable, or replaced.

use anyhow::Result;
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::kubelet::Delay;

use crate::common::{MidHold, held, is_held, record_says, released, releases};

pub(crate) fn silent() -> Scenario {
    Scenario::new(
        "workload-silent",
        "the workload API server is stopped in mid-hold: held for that reason, and the upgrade goes on when it is back",
        |scene| Box::pin(run_silent(scene)),
    )
}

async fn run_silent(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let workload = cluster.workload()?;
    workload.api.kill().await?;
    cluster.says("WorkloadUnreachable", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    workload.api.restart().await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}

pub(crate) fn frozen() -> Scenario {
    Scenario::new(
        "workload-frozen",
        "the workload API server stops answering with its connections open: its Cluster is held for that reason, another one is upgraded meanwhile, and it goes on when the server does",
        |scene| Box::pin(run_frozen(scene)),
    )
}

async fn run_frozen(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let frozen = scene.cluster("frozen").create_settled(&old).await?;
    let other = scene.cluster("other").create_settled(&old).await?;
    let before = held(&frozen, &new).await?;
    let api = &frozen.workload()?.api;
    api.freeze().await?;
    frozen.says("WorkloadUnreachable", TIMEOUT).await?;
    let since = held(&other, &new).await?;
    released(&other, &new, since).await?;
    frozen.control_plane_is_untouched(before).await?;
    api.thaw().await?;
    is_held(&frozen, &new, before).await?;
    released(&frozen, &new, before).await?;
    Ok(())
}

pub(crate) fn swapped() -> Scenario {
    Scenario::new(
        "kubeconfig-swapped",
        "the kubeconfig leads to another API server in mid-hold: no proof is taken over to it",
        |scene| Box::pin(run_swapped(scene)),
    )
}

async fn run_swapped(scene: Scene) -> Result<()> {
    let MidHold {
        cluster,
        old,
        new,
        before,
    } = MidHold::of(&scene).await?;
    let prefix = format!("spare/{}", scene.namespace());
    let spare = ApiServer::start(scene.world().stack().core(), &prefix, old.kubernetes()).await?;
    let own = cluster.swap_kubeconfig(&spare.admin_kubeconfig()).await?;
    record_says(&cluster, "metrics", "Pending").await?;
    // By now every package is proven where the kubeconfig led before.
    cluster.delay("antrea", Delay::NONE);
    cluster.packages_proven(&new, before, TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    // A run that started on the other server would continue there for as long as kapp waits.
    spare.kill().await?;
    cluster.swap_kubeconfig(&own).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}
