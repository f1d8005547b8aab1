//! kapp-controller is a package too, and the one that gives the proof of all others.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use sluice_tests::kubelet::Delay;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{PATIENCE, Scenario, Scene};

use crate::common::{held, is_held, released, releases};

/// How long each of some leaders is there: less than it takes one to see for itself that an App does not move.
const TERM: Duration = Duration::from_secs(40);
const LEADERS: usize = 5;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "kapp-controller-changes",
        "a new kapp-controller is proven, its process restarted, before any other package of the hop is touched",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    cluster.delay("kapp-controller", Delay::Never);
    let before = cluster.upgrade(&new).await?;
    let message = cluster.says("kapp-controller 2.0.0", PATIENCE).await?;
    let working = |event: &Event| matches!(event, Event::PackageWorking { ref_name, version } if ref_name.starts_with("kapp-controller.") && version == "2.0.0");
    cluster
        .milestone("kapp-controller to be worked on", PATIENCE, before, working)
        .await?;
    let others = |event: &Event| matches!(event, Event::PackageWorking { ref_name, version } if !ref_name.starts_with("kapp-controller.") && version == "2.0.0");
    scene.world().observer().catch_up().await?;
    let touched = cluster
        .milestones()
        .into_iter()
        .find(|milestone| others(&milestone.event));
    ensure!(
        touched.is_none(),
        "while the Cluster says {message:?}: {touched:?}"
    );
    cluster.delay("kapp-controller", Delay::NONE);
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}

pub(crate) fn restarted() -> Scenario {
    Scenario::new(
        "kapp-controller-restarts",
        "the process of kapp-controller ends while it waits for a package: it is asked again long before its sync period is over, although leaders follow each other quickly",
        |scene| Box::pin(run_restarted(scene)),
    )
    .alone()
    .long()
}

async fn run_restarted(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    let restarted = cluster.workload()?.kubelet.restart_kapp_controller().await?;
    ensure!(restarted, "no kapp-controller runs");
    cluster.delay("antrea", Delay::NONE);
    // No leader sees for itself that an App has not moved for a minute and a half.
    for _ in 0..LEADERS {
        let written = cluster
            .control_plane_written(new.kubernetes(), before, TERM)
            .await;
        if written.is_ok() {
            return cluster.is_settled(PATIENCE).await;
        }
        scene.world().extension()?.restart().await?;
    }
    bail!("{LEADERS} leaders of {TERM:?} each did not ask kapp-controller again")
}

pub(crate) fn installer_restarted() -> Scenario {
    Scenario::new(
        "management-kapp-controller-restarts",
        "the management cluster's kapp-controller ends while it installs the one of a cluster: it is asked again long before its sync period is over",
        |scene| Box::pin(run_installer_restarted(scene)),
    )
    .alone()
    .long()
}

async fn run_installer_restarted(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    cluster.delay("kapp-controller", Delay::Never);
    cluster.delay("antrea", Delay::NONE);
    let before = cluster.upgrade(&new).await?;
    let working = |event: &Event| matches!(event, Event::PackageWorking { ref_name, version } if ref_name.starts_with("kapp-controller.") && version == "2.0.0");
    cluster
        .milestone("kapp-controller to be worked on", PATIENCE, before, working)
        .await?;
    cluster.says("kapp-controller 2.0.0", PATIENCE).await?;
    scene.world().stack().kapp_controller().restart().await?;
    cluster.delay("kapp-controller", Delay::NONE);
    cluster
        .control_plane_written(new.kubernetes(), before, 3 * PATIENCE)
        .await?;
    cluster.is_settled(PATIENCE).await
}
