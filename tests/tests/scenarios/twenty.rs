//! Many Clusters at once, one of them with a package that never gets ready.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use sluice_tests::objects::Release;
use sluice_tests::scenario::verdict::{in_order, kept_pace};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use crate::common::release;

/// Beside the one that gets stuck.
const OTHERS: usize = 19;

/// How many are created at once.
const AT_ONCE: usize = 4;

/// How much longer the median of the nineteen may take beside one that is stuck. Twenty API servers fill the machine, so that
/// the same work took 1.6 times as long in one run; reconciles that wait for the stuck one would make it a multiple.
const SLOWER: f64 = 2.0;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "twenty",
        "twenty Clusters upgraded at once, one of them stuck: the other nineteen take at most twice as long as they took alone",
        |scene| Box::pin(run(scene)),
    )
    .alone()
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[0], "1.0.0", Delay::NONE)?;
    let middle = release(&scene, VERSIONS[1], "2.0.0", Delay::seconds(1))?;
    let new = release(&scene, VERSIONS[2], "3.0.0", Delay::seconds(1))?;
    for release in [&old, &middle, &new] {
        scene.publish(release).await?;
    }
    let others: Vec<Cluster> = stream::iter(0..OTHERS)
        .map(|index| {
            let name = format!("c{index:02}");
            let (scene, old) = (&scene, &old);
            async move { scene.cluster(&name).create_settled(old).await }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;

    let alone = upgrade(others.iter(), &others, &middle).await?;
    let stuck = scene.cluster("stuck").create_settled(&middle).await?;
    for cluster in &others {
        cluster.is_settled(TIMEOUT * 3).await?;
    }

    stuck.delay("antrea", Delay::Never);
    let before = scene.world().observer().catch_up().await?;
    let beside = upgrade(others.iter().chain([&stuck]), &others, &new).await?;
    stuck.says("antrea 3.0.0", TIMEOUT).await?;
    stuck.control_plane_is_untouched(before).await?;
    kept_pace(alone, beside, SLOWER)?;
    stuck.delay("antrea", Delay::NONE);
    for cluster in others.iter().chain([&stuck]) {
        cluster.is_settled(TIMEOUT * 3).await?;
    }
    Ok(())
}

/// Upgrades `all` at once; returns the median of how long it took until a control plane of `judged` was written, each in its
/// order.
async fn upgrade<'a>(
    all: impl Iterator<Item = &'a Cluster>,
    judged: &[Cluster],
    release: &Release,
) -> Result<Duration> {
    let began = Timestamp::now();
    let before = try_join_all(all.map(|cluster| cluster.upgrade(release))).await?;
    let before = before.into_iter().min().context("no Cluster")?;
    let mut taken = Vec::with_capacity(judged.len());
    for cluster in judged {
        let written = cluster
            .control_plane_written(release.kubernetes(), before, TIMEOUT * 3)
            .await?;
        let proven = cluster.packages_proven(release, before, TIMEOUT).await?;
        in_order(&[
            ("the upgrade", before),
            ("the last proof", proven.revision),
            ("the write of the control plane", written.revision),
        ])?;
        taken.push(written.seen.duration_since(began).unsigned_abs());
    }
    taken.sort_unstable();
    taken
        .get(taken.len() / 2)
        .copied()
        .context("no Cluster is judged")
}
