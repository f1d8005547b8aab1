//! kapp-controller shows success at the new version before it has begun with it. Many packages at once make this window wide.

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sluice_tests::objects::Release;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

/// All at once, each upgraded twice.
const CLUSTERS: usize = 5;

const ADDITIONAL: [&str; 14] = [
    "metrics",
    "secretgen",
    "pinniped",
    "contour",
    "harbor",
    "fluent",
    "prometheus",
    "grafana",
    "velero",
    "multus",
    "whereabouts",
    "gatekeeper",
    "cert-manager",
    "external-dns",
];

/// With kapp-controller and antrea.
const PACKAGES: usize = ADDITIONAL.len() + 2;

/// Packages that are moved to another version, in all clusters and upgrades together. The significance depends on this number:
/// each of them is one more chance to release too early.
const BUMPS: usize = 160;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "false-ready",
        "sixteen packages bumped at once in five clusters, twice: no release while an App still works on the new version",
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
        .buffer_unordered(CLUSTERS)
        .try_collect()
        .await?;

    let upgrades: usize = runs.iter().map(|run| run.upgrades).sum();
    let false_successes: usize = runs.iter().map(|run| run.false_successes).sum();
    ensure!(upgrades * PACKAGES == BUMPS, "only {upgrades} upgrades");
    // Otherwise the scenario would prove nothing.
    ensure!(
        false_successes >= BUMPS / 8,
        "kapp-controller showed only {false_successes} false successes in {upgrades} upgrades of {PACKAGES} packages"
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
    cluster.packages_proven(&releases[0], 0, TIMEOUT * 2).await?;
    cluster.is_settled(TIMEOUT).await?;
    let mut upgrades = 0;
    for release in &releases[1..] {
        if upgrades > 0 {
            cluster.is_settled(TIMEOUT * 2).await?;
        }
        let before = cluster.upgrade(release).await?;
        let written = cluster
            .control_plane_written(release.kubernetes(), before, TIMEOUT * 2)
            .await?;
        // The observer judges too; here the same from the outside: every App had finished by then.
        let proven = cluster.packages_proven(release, before, TIMEOUT).await?;
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
