//! Another API server answers behind an unchanged kubeconfig.

use anyhow::Result;
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{MidHold, is_held, released};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "server-replaced",
        "an empty API server takes the place of the workload's in mid-hold, same address and credentials: everything is installed and proven there, then released",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let uid = cluster.replace_workload().await?;
    cluster.delay("antrea", Delay::Never);
    let what = format!("the record to speak about API server {uid}");
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let known = &bootstrap["status"]["upgrade"]["workloadUID"];
            if *known == *uid {
                Ok(())
            } else {
                wait::not_yet(known)
            }
        })
        .await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}
