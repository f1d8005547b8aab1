//! A chart that CAAPH delivers holds an upgrade until it is deployed and its Pods run.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_tests::objects::{Chart, Check, Gate, HelmChartProxy};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Columns, Requests, Row, Scenario, Scene, TIMEOUT, VERSIONS, WatchLog};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::gates_only::{all_verbs_are_used, is_over, nothing_is_forbidden, opens};

/// Version of the chart and tag of its image, before and after.
const CHARTS: [(&str, &str); 2] = [("1.17.4", "v1.17.4"), ("1.18.2", "v1.18.2")];

/// Name of the chart, its release and its DaemonSet.
const CNI: &str = "cni";

/// Minor versions of the upgrade, as rows spell them.
const MINORS: [&str; 2] = ["1.34", "1.35"];

/// Time between the change of the version and that of the chart.
const LATER: Duration = Duration::from_secs(5);

/// Most writes of the record for one hop, and one for the edit of the Cluster.
const WRITES: usize = 6 + 1;

/// Interval of the writes of a long hold, whose message follows its checks.
const PROGRESS: i64 = 15;

/// Group, version and kind of the record.
const RECORD: (&str, &str, &str) = ("lifecycle.sluice.dev", "v1alpha1", "ClusterUpgrade");

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "gate-caaph",
        "a gate holds a hop until CAAPH has deployed the chart of the row and its DaemonSet runs, also while values of another Cluster are broken; control plane, then workers",
        |scene| Box::pin(run(scene)),
    )
    .gates_only()
    .audited()
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let new = VERSIONS[1];
    let before = scene.cni(&CHARTS).await?;
    scene.deliver(&before).await?;
    let one = create(&scene, "prod-1", &before).await?;
    let two = create(&scene, "prod-2", &before).await?;
    scene.gate(&gate()).await?;
    scene.gate_is_in_force(CNI).await?;
    let log = scene.watch(&[RECORD]).await?;
    let columns = one.upgrade_columns().await?;

    one.delay(CNI, Delay::Never);
    let began = Timestamp::now();
    let since = one.upgrade_unmanaged(new).await?;
    one.held_by("cni/chart", "NotAtVersion", TIMEOUT).await?;
    one.says("ChecksNotReady: cni/chart", TIMEOUT).await?;
    tokio::time::sleep(LATER).await;
    one.control_plane_is_untouched(since).await?;

    let after = before.version(CHARTS[1].0);
    let broken = after.clone().values(&Chart::broken_for(two.name()));
    scene.deliver(&broken).await?;
    proxy_fails(&scene).await?;
    // CAAPH takes the Clusters in any order, and stops at the first one that fails.
    one.delivered(&after, TIMEOUT).await?;
    one.held_by("cni/agent", "NotRolledOut", TIMEOUT).await?;
    one.says("ChecksNotReady: cni/agent", TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;

    // The same values as before for this Cluster.
    let mended = after.clone().values(&Chart::broken_for("none"));
    scene.deliver(&mended).await?;
    two.delivered(&after, TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;

    one.delay(CNI, Delay::NONE);
    one.control_plane_written(new, since, TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;
    is_over(&one).await?;
    scene.world().observer().catch_up().await?;
    order_is_right(&one, &log, since).await?;
    let is_free = |row: &Row| row.get("HELD BY").is_some_and(String::is_empty);
    columns.shows("no hold", TIMEOUT, is_free).await?;
    columns_are_right(&columns)?;
    answers_are_right(&one)?;
    writes_are_few(&one, &mut one.requests()?, began)?;
    nothing_is_forbidden(&scene)?;
    all_verbs_are_used(&scene, "sluice-gates-caaph").await
}

/// A Cluster at the old version, with the chart.
async fn create(scene: &Scene, name: &str, proxy: &HelmChartProxy) -> Result<Cluster> {
    let cluster = scene.cluster(name).unmanaged(VERSIONS[0]).labelled(CNI, "demo");
    let cluster = cluster.workers(1).create().await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    cluster.delivered(proxy, TIMEOUT).await?;
    cluster.rolled_out(CNI, CHARTS[0].1, TIMEOUT).await?;
    Ok(cluster)
}

/// Chart and DaemonSet of each minor version.
fn gate() -> Gate {
    let agent = Check::workload("agent", ("apps/v1", "DaemonSet"), Chart::NAMESPACE, CNI);
    let gate = Gate::new(CNI)
        .selects(&json!({CNI: "demo"}))
        .check(Check::proxy("chart", CNI).version_key("chart"))
        .check(agent.container(Chart::CONTAINER).version_key("image"));
    let rows = MINORS.iter().zip(CHARTS);
    rows.fold(gate, |gate, (minor, (chart, image))| {
        gate.row(minor, &[("chart", chart), ("image", image)])
    })
}

/// Waits until the HelmChartProxy says that it cannot render the values of a Cluster.
async fn proxy_fails(scene: &Scene) -> Result<()> {
    let path = scene.proxy_path(CNI);
    wait::until("HelmChartProxy cni to fail", TIMEOUT, || async {
        let proxy = scene.objects().get(&path).await?.unwrap_or_default();
        let conditions = proxy["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let fails = |condition: &Value| {
            condition["type"] == "HelmReleaseProxySpecsUpToDate"
                && condition["status"] == "False"
                && condition["reason"] == "ValueParsingFailed"
        };
        if conditions.any(fails) {
            Ok(())
        } else {
            wait::not_yet(&proxy["status"])
        }
    })
    .await?;
    Ok(())
}

/// Both checks, the record that opens a gate, and the write that it allows, by resourceVersion: first the control plane, then the workers.
async fn order_is_right(cluster: &Cluster, log: &WatchLog, since: Revision) -> Result<()> {
    let new = VERSIONS[1];
    let first = |what: &str, wanted: &dyn Fn(&Event) -> bool| {
        let milestones = cluster.milestones();
        let mut later = milestones.iter().filter(|milestone| milestone.revision > since);
        let found = later.find(|milestone| wanted(&milestone.event));
        found
            .map(|milestone| milestone.revision)
            .with_context(|| format!("{what} was not seen"))
    };
    let proven = |name: &str| {
        first(
            name,
            &|event| matches!(event, Event::CheckProven { check, minor, .. } if check == name && minor == MINORS[1]),
        )
    };
    let writes = log.writes().await?;
    let written = first(
        "the control plane",
        &|event| matches!(event, Event::ControlPlaneWritten { version } if version == new),
    )?;
    let runs = first(
        "a control plane that runs",
        &|event| matches!(event, Event::ControlPlaneRuns { version } if version == new),
    )?;
    let workers = first(
        "the workers",
        &|event| matches!(event, Event::WorkersWritten { version, .. } if version == new),
    )?;
    in_order(&[
        ("the version of the topology", since),
        ("the proof of the chart", proven("chart")?),
        ("the proof of the DaemonSet", proven("agent")?),
        (
            "the record that opens BeforeControlPlaneUpgrade",
            opens(&writes, cluster, "BeforeControlPlaneUpgrade", since)?,
        ),
        ("the version of the control plane", written),
        ("the control plane that runs it", runs),
        (
            "the record that opens BeforeWorkersUpgrade",
            opens(&writes, cluster, "BeforeWorkersUpgrade", since)?,
        ),
        ("the version of the workers", workers),
    ])
}

/// What `kubectl get clusterupgrades -w` has printed, in this order, whatever was between.
fn columns_are_right(columns: &Columns) -> Result<()> {
    let wanted: [(&str, &[&str]); 5] = [
        ("NAME", &["prod-1"]),
        ("HELD BY", &["cni/chart", ""]),
        ("REASON", &["NotAtVersion"]),
        ("HOP", &[VERSIONS[1]]),
        ("CHECKS", &["0/2", "2/2"]),
    ];
    for (name, wanted) in wanted {
        let shown = columns.column(name);
        let mut later = shown.iter();
        for value in wanted {
            ensure!(
                later.any(|shown| shown == value),
                "column {name} shows {shown:?}, and not {wanted:?} in this order"
            );
        }
    }
    let rows = columns.rows();
    let mut held = rows
        .iter()
        .filter(|row| row.get("HELD BY").is_some_and(|check| !check.is_empty()));
    let is_told = |cell: Option<&String>| cell.is_some_and(|cell| !cell.is_empty());
    ensure!(
        held.all(|row| is_told(row.get("SINCE")) && is_told(row.get("MESSAGE"))),
        "a line without SINCE or MESSAGE: {rows:?}"
    );
    Ok(())
}

fn answers_are_right(cluster: &Cluster) -> Result<()> {
    let answers = cluster.hook_answers()?;
    let held = answers
        .iter()
        .any(|answer| answer.hook == "BeforeClusterUpgrade" && answer.reason == "ChecksNotReady");
    ensure!(
        held,
        "BeforeClusterUpgrade was not held with ChecksNotReady: {answers:?}"
    );
    Ok(())
}

/// Sluice has written the record, a few times, and the status of the gate; nothing else, and nothing to the workload cluster.
fn writes_are_few(cluster: &Cluster, requests: &mut Requests, began: Timestamp) -> Result<()> {
    let writes = requests.writes_and_reports(began)?;
    let of_gates = |write: &&String| write.contains("/apis/lifecycle.sluice.dev/");
    let others: Vec<&String> = writes.iter().filter(|write| !of_gates(write)).collect();
    ensure!(others.is_empty(), "Sluice has written {others:?}");
    let record = format!("/clusterupgrades/{}", cluster.name());
    let of_record: Vec<&String> = writes.iter().filter(|write| write.contains(&record)).collect();
    // On a machine that is busy, a hold takes longer.
    let progress = Timestamp::now().duration_since(began).as_secs() / PROGRESS;
    let allowed = WRITES + usize::try_from(progress)?;
    ensure!(
        of_record.len() <= allowed,
        "{} writes of the record, {allowed} are allowed: {of_record:?}",
        of_record.len()
    );
    Ok(())
}
