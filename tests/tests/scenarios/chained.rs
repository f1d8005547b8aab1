//! Two minors in one bump, each with packages of its own.

use anyhow::{Result, ensure};
use sluice_tests::kubelet::Delay;
use sluice_tests::objects::Class;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{PATIENCE, Scenario, Scene, VERSIONS};

use crate::common::release;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "chained",
        "two minors in one bump: each hop waits for the packages made for it, and the workers for both",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        kubernetes_versions: VERSIONS.map(str::to_owned).to_vec(),
        ..Class::default()
    })
    // The release of the step between is found by its Kubernetes version: no other of that version may exist.
    .alone()
    .long()
}

async fn run(scene: Scene) -> Result<()> {
    let releases = [
        release(&scene, VERSIONS[0], "1.0.0", Delay::NONE)?,
        release(&scene, VERSIONS[1], "2.0.0", Delay::seconds(3))?,
        release(&scene, VERSIONS[2], "3.0.0", Delay::seconds(3))?,
    ];
    for release in &releases {
        scene.publish(release).await?;
    }
    let cluster = scene
        .cluster("chain")
        .workers(1)
        .create_settled(&releases[0])
        .await?;

    let before = cluster.upgrade(&releases[2]).await?;
    cluster.says("antrea 2.0.0", PATIENCE).await?;
    let mut since = before;
    for release in &releases[1..] {
        let proven = cluster.packages_proven(release, since, PATIENCE).await?;
        let written = cluster
            .control_plane_written(release.kubernetes(), before, PATIENCE)
            .await?;
        ensure!(
            proven.revision < written.revision,
            "{} was written at revision {}, its packages had proof only at {}",
            release.kubernetes(),
            written.revision,
            proven.revision
        );
        since = written.revision;
    }
    let workers = cluster
        .milestone(
            "the workers to be written",
            PATIENCE,
            before,
            |event| matches!(event, Event::WorkersWritten { version, .. } if version == VERSIONS[2]),
        )
        .await?;
    ensure!(since < workers.revision);
    cluster.is_settled(PATIENCE).await
}
