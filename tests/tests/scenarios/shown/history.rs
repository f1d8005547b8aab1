//! `status.history`: two upgrades one after the other, at the times that the observer saw.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use sluice_tests::objects::Release;
use sluice_tests::observer::{Event, Milestone, Revision};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use crate::common::is_completed;

/// Delay of antrea, which is the longest wait of the upgrades; a new kapp-controller takes half of that.
const SLOW: u64 = 24;

/// Progress may wait so long for its write.
const COALESCE: i64 = 5;

/// How far a time may be from the one that the observer saw: a busy machine delays both. The times
/// of one upgrade are further apart than that.
const APART: i64 = 8;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "history",
        "the ClusterBootstrap shows the outcomes of the last upgrades, at the times of the observer, and the longest wait of each",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let release = |index: usize, version, antrea| scene.release(VERSIONS[index], version, antrea);
    let first = release(0, "1.0.0", Delay::NONE)?;
    let next = [
        release(1, "2.0.0", Delay::After(Duration::from_secs(SLOW)))?,
        release(2, "3.0.0", Delay::After(Duration::from_secs(SLOW)))?,
    ];
    scene.publish(&first).await?;
    let cluster = scene.cluster("one").create_settled(&first).await?;
    is_completed(&cluster).await?;
    let history = cluster.bootstrap().await?["status"]["history"].take();
    ensure!(history.is_null(), "a first installation is no upgrade: {history}");

    let extension = scene.world().extension()?;
    let releases = "sluice_gate_release_lag_seconds_count";
    let before = extension.metric(releases).await?;
    let mut began = Vec::new();
    for new in &next {
        scene.publish(new).await?;
        let since = cluster.upgrade(new).await?;
        cluster
            .control_plane_written(new.kubernetes(), since, TIMEOUT)
            .await?;
        cluster.is_settled(TIMEOUT).await?;
        is_completed(&cluster).await?;
        began.push(since);
    }
    let bootstrap = cluster.bootstrap().await?;
    let history = bootstrap["status"]["history"].as_array().context("no history")?;
    ensure!(history.len() == 2, "{history:#?}");
    ensure!(serde_json::to_string(history)?.len() <= 2 * 256, "{history:#?}");
    for (index, upgrade) in history.iter().rev().enumerate() {
        let (old, new) = (VERSIONS[index], &next[index]);
        ensure!(
            upgrade["from"] == old && upgrade["to"] == new.kubernetes(),
            "{upgrade}"
        );
        ensure!(upgrade["outcome"] == "Completed", "{upgrade}");
        times_are_right(&cluster, upgrade, new, began[index]).await?;
        longest_wait_is_right(upgrade, new)?;
    }
    let after = extension.metric(releases).await?;
    ensure!(after >= before + 2.0, "{releases} went from {before} to {after}");
    Ok(())
}

async fn times_are_right(cluster: &Cluster, upgrade: &Value, new: &Release, since: Revision) -> Result<()> {
    let seen = |what: &'static str, wanted: fn(&Event, &str) -> bool| async move {
        let version = new.kubernetes();
        cluster
            .milestone(what, TIMEOUT, since, |event| wanted(event, version))
            .await
            .map(|Milestone { seen, .. }| seen)
    };
    let labelled = seen("the label to be moved", |event, _| {
        matches!(event, Event::Labelled { .. })
    })
    .await?;
    let written = seen(
        "the control plane to be written",
        |event, wanted| matches!(event, Event::ControlPlaneWritten { version } if version == wanted),
    )
    .await?;
    let runs = seen(
        "the control plane to run",
        |event, wanted| matches!(event, Event::ControlPlaneRuns { version } if version == wanted),
    )
    .await?;
    let again = seen(
        "packages to be proven again",
        |event, wanted| matches!(event, Event::ProvenAgain { version } if version == wanted),
    )
    .await?;
    for (field, observed) in [
        ("began", labelled),
        ("released", written),
        ("ended", again.max(runs)),
    ] {
        let said = time(&upgrade[field])?;
        let apart = said.as_second() - observed.as_second();
        ensure!(
            apart.abs() <= APART,
            "{field} is {said}, the observer saw it at {observed}: {upgrade}"
        );
    }
    Ok(())
}

fn longest_wait_is_right(upgrade: &Value, new: &Release) -> Result<()> {
    // On a busy machine, the new kapp-controller can take longer than the delay of antrea.
    let mut slow = new
        .packages()
        .filter(|package| ["antrea", "kapp-controller"].contains(&package.short()))
        .map(|package| format!("{} {}", package.short(), package.version()));
    ensure!(
        slow.any(|wanted| upgrade["longestWait"] == wanted.as_str()),
        "{upgrade}"
    );
    let seconds = upgrade["longestWaitSeconds"]
        .as_i64()
        .context("no time of the longest wait")?;
    let held = time(&upgrade["released"])?
        .duration_since(time(&upgrade["began"])?)
        .as_secs();
    let least = i64::try_from(SLOW)? - COALESCE - 1;
    ensure!(
        (least..=held + 1).contains(&seconds),
        "held for {held} s: {upgrade}"
    );
    Ok(())
}

fn time(text: &Value) -> Result<Timestamp> {
    let text = text.as_str().with_context(|| format!("no time: {text}"))?;
    Ok(text.parse()?)
}
