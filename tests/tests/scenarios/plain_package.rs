//! A package without a step that takes values.

use anyhow::{Result, ensure};
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, Work};
use sluice_tests::stack::kubelet::Delay;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "no-template-step",
        "a package whose App does not depend on values is deployed again on the new control plane before workers roll",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene
        .release(VERSIONS[1], "1.0.0", Delay::NONE)?
        .additional(plain(&scene, "1.0.0"));
    let new = scene
        .release(VERSIONS[2], "2.0.0", Delay::NONE)?
        .additional(plain(&scene, "2.0.0"));
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let first = sync_period(&cluster, &plain(&scene, "1.0.0")).await?;

    let before = cluster.upgrade(&new).await?;
    let runs = cluster
        .milestone(
            "the new control plane to run",
            TIMEOUT,
            before,
            |event| matches!(event, Event::ControlPlaneRuns { version } if version == new.kubernetes()),
        )
        .await?;
    let workers = cluster
        .milestone("the workers to be written", TIMEOUT, before, |event| {
            matches!(event, Event::WorkersWritten { .. })
        })
        .await?;
    // A proof may come again without a run, when only the PackageInstall changes.
    let deployed = cluster.milestones().into_iter().find(|milestone| {
        milestone.revision > runs.revision
            && matches!(&milestone.event, Event::PackageWorking { ref_name, version }
                if ref_name.starts_with("plain.") && version == "2.0.0")
    });
    ensure!(
        deployed
            .as_ref()
            .is_some_and(|deployed| deployed.revision < workers.revision),
        "workers were written at revision {}, plain was deployed on the control plane of {} only at {deployed:?}",
        workers.revision,
        runs.revision
    );
    cluster.is_settled(TIMEOUT).await?;
    let last = sync_period(&cluster, &plain(&scene, "2.0.0")).await?;
    ensure!(first != last, "the sync period is {last} as before");
    Ok(())
}

fn plain(scene: &Scene, version: &str) -> TestPackage {
    scene.package("plain", version).plain()
}

/// The sync period of the App, which has to be spelled as in the PackageInstall.
async fn sync_period(cluster: &Cluster, package: &TestPackage) -> Result<String> {
    let install = cluster.work(package, Work::PackageInstall).await?;
    let app = cluster.work(package, Work::App).await?;
    let (wanted, found) = (&install["spec"]["syncPeriod"], &app["spec"]["syncPeriod"]);
    ensure!(
        wanted == found && found.is_string(),
        "the PackageInstall says {wanted}, the App {found}"
    );
    Ok(found.to_string())
}
