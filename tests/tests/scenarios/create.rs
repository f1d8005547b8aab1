//! Creation: Sluice installs packages only after the workload API server exists.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use sluice_tests::objects::Values;
use sluice_tests::observer::{Event, Milestone};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "create",
        "a new Cluster gets its ClusterBootstrap first and its packages once the control plane is initialized",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let metrics = scene.package("metrics", "1.0.0");
    let release = scene
        .release(VERSIONS[1], "1.0.0", Delay::seconds(1))?
        .cpi(scene.package("vsphere-cpi", "1.0.0"))
        .csi(scene.package("vsphere-csi", "1.0.0"))
        .additional(metrics.clone())
        .values(
            "antrea",
            Values::Inline(json!({"antrea": {"config": {"defaultMTU": "1400"}}})),
        )
        .values("metrics", Values::Secret(json!({"replicas": 2})));
    scene.publish(&release).await?;

    let cluster = scene.cluster("new").at(&release).workers(1).create().await?;
    let last = cluster.packages_proven(&release, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;

    let bootstrapped = first(&cluster, "ClusterBootstrap", |event| {
        *event == Event::Bootstrapped
    })?;
    let created = first(&cluster, "control plane", |event| {
        matches!(event, Event::ControlPlaneCreated { .. })
    })?;
    let runs = first(&cluster, "running control plane", |event| {
        matches!(event, Event::ControlPlaneRuns { .. })
    })?;
    let working = first(&cluster, "working package", |event| {
        matches!(event, Event::PackageWorking { .. })
    })?;
    ensure!(
        bootstrapped.revision < created.revision,
        "the control plane was created at revision {}, its ClusterBootstrap only at {}",
        created.revision,
        bootstrapped.revision
    );
    ensure!(
        created.revision < runs.revision
            && runs.revision < working.revision
            && working.revision < last.revision,
        "control plane at revision {}, first package at {}, last at {}",
        runs.revision,
        working.revision,
        last.revision
    );

    let antrea = scene.package("antrea", "1.0.0");
    let echoed = cluster.echoed(&antrea).await?;
    ensure!(
        echoed["values"].to_string().contains("1400"),
        "antrea was given {echoed}"
    );
    let echoed = cluster.echoed(&metrics).await?;
    ensure!(
        echoed["values"].to_string().contains("replicas"),
        "metrics was given {echoed}"
    );

    cluster
        .bootstrap_until(
            "the ClusterBootstrap to report".to_owned(),
            TIMEOUT,
            |bootstrap| {
                let status = &bootstrap["status"];
                let kinds: Vec<&str> = status["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|condition| condition["status"] == "True")
                    .filter_map(|condition| condition["type"].as_str())
                    .collect();
                if status["resolvedTKR"] == release.name()
                    && kinds.contains(&"Antrea-ReconcileSucceeded")
                    && kinds.contains(&"Kapp-Controller-ReconcileSucceeded")
                    && kinds.contains(&"Metrics-ReconcileSucceeded")
                {
                    Ok(())
                } else {
                    wait::not_yet(format!("resolvedTKR {} and {kinds:?}", status["resolvedTKR"]))
                }
            },
        )
        .await
}

fn first(cluster: &Cluster, what: &str, wanted: impl Fn(&Event) -> bool) -> Result<Milestone> {
    cluster
        .milestones()
        .into_iter()
        .find(|milestone| wanted(&milestone.event))
        .with_context(|| format!("the observer saw no {what}"))
}
