//! Processes die in the middle.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use sluice_tests::objects::Class;
use sluice_tests::observer::Event;
use sluice_tests::provider::SwapDelay;
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{MidHold, held, is_held, released, releases};

/// Long enough for Cluster API to wait for many seconds before it tries again.
const OUTAGE: Duration = Duration::from_secs(30);

/// Time to end in good order: the lease is given back then, so the next leader need not wait for its end.
const GRACE: Duration = Duration::from_secs(20);

/// How long a release may take after the outage.
const RECOVERY: Duration = Duration::from_secs(5);

pub(crate) fn killed() -> Scenario {
    Scenario::new(
        "killed",
        "the extension killed in mid-hold and in mid-rollout, Cluster API killed in mid-hold: no early release, and the upgrade goes on",
        |scene| Box::pin(run_killed(scene)),
    )
    .class(Class {
        swap_delay: SwapDelay {
            after_milliseconds: 4000,
            ..SwapDelay::default()
        },
        ..Class::default()
    })
    .own_stack()
    .each_time()
}

async fn run_killed(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    let extension = scene.world().extension()?;
    extension.restart().await?;
    is_held(&cluster, &new, before).await?;
    scene.world().stack().cluster_api().restart().await?;
    is_held(&cluster, &new, before).await?;
    cluster.delay("antrea", Delay::NONE);
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    extension.restart().await?;
    cluster
        .milestone("the workers to be written", TIMEOUT, before, |event| {
            matches!(event, Event::WorkersWritten { .. })
        })
        .await?;
    cluster.is_settled(TIMEOUT).await
}

pub(crate) fn outage() -> Scenario {
    Scenario::new(
        "outage",
        "30 s without the extension in mid-hold: released within 5 s of its recovery, although Cluster API would wait longer",
        |scene| Box::pin(run_outage(scene)),
    )
    .alone()
}

async fn run_outage(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let extension = scene.world().extension()?;
    extension.terminate(GRACE).await?;
    cluster.says("failed to call extension handler", TIMEOUT).await?;
    cluster.delay("antrea", Delay::NONE);
    // The outage itself is under test: there is no event to wait for.
    tokio::time::sleep(OUTAGE).await;
    cluster.control_plane_is_untouched(before).await?;
    extension.restart().await?;
    let ready = Timestamp::now();
    let written = released(&cluster, &new, before).await?;
    let after = written.seen.duration_since(ready);
    ensure!(
        after.unsigned_abs() <= RECOVERY,
        "released {after:#} after the extension was ready"
    );
    Ok(())
}
