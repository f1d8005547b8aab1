//! kapp-controller shows success at the new version before it has begun with it. Eight packages at once make this window wide.

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sluice_tests::kubelet::Delay;
use sluice_tests::objects::Release;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{PATIENCE, Scenario, Scene, VERSIONS};

/// Each is upgraded twice.
const CLUSTERS: usize = 10;

/// How many at once: enough to keep two cores busy.
const AT_ONCE: usize = 3;

const ADDITIONAL: [&str; 6] = ["metrics", "secretgen", "pinniped", "contour", "harbor", "fluent"];

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "false-ready",
        "eight packages bumped at once, 20 upgrades: no release while an App still works on the new version",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let releases = [
        release(&scene, VERSIONS[0], "1.0.0")?,
        release(&scene, VERSIONS[1], "2.0.0")?,
        release(&scene, VERSIONS[2], "3.0.0")?,
    ];
    for release in &releases {
        scene.publish(release).await?;
    }
    let runs: Vec<Run> = stream::iter(0..CLUSTERS)
        .map(|index| upgrade_twice(&scene, index, &releases))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;

    let upgrades: usize = runs.iter().map(|run| run.upgrades).sum();
    let false_successes: usize = runs.iter().map(|run| run.false_successes).sum();
    ensure!(upgrades == 2 * CLUSTERS, "only {upgrades} upgrades");
    // Otherwise the scenario would prove nothing.
    ensure!(
        false_successes >= upgrades,
        "kapp-controller showed only {false_successes} false successes in {upgrades} upgrades of 8 packages"
    );
    Ok(())
}

fn release(scene: &Scene, kubernetes: &str, version: &str) -> Result<Release> {
    let release = scene.release(kubernetes, version, Delay::seconds(1))?;
    Ok(ADDITIONAL.iter().fold(release, |release, name| {
        release.additional(scene.package(name, version))
    }))
}

struct Run {
    upgrades: usize,
    false_successes: usize,
}

async fn upgrade_twice(scene: &Scene, index: usize, releases: &[Release; 3]) -> Result<Run> {
    let cluster = scene
        .cluster(&format!("c{index}"))
        .at(&releases[0])
        .create()
        .await?;
    cluster.packages_proven(&releases[0], 0, PATIENCE * 2).await?;
    cluster.is_settled(PATIENCE).await?;
    let mut upgrades = 0;
    for release in &releases[1..] {
        if upgrades > 0 {
            cluster.is_settled(PATIENCE * 2).await?;
        }
        let before = cluster.upgrade(release).await?;
        let written = cluster
            .control_plane_written(release.kubernetes(), before, PATIENCE * 2)
            .await?;
        // The observer judges too; here the same from the outside: every App had finished by then.
        let proven = cluster.packages_proven(release, before, PATIENCE).await?;
        ensure!(
            proven.revision < written.revision,
            "upgrade of {} to {}: written at revision {}, last proof at {}",
            cluster.name(),
            release.kubernetes(),
            written.revision,
            proven.revision
        );
        upgrades += 1;
    }
    let false_successes = cluster
        .milestones()
        .iter()
        .filter(|milestone| matches!(milestone.event, Event::FalseSuccess { .. }))
        .count();
    cluster.delete().await?;
    Ok(Run {
        upgrades,
        false_successes,
    })
}
