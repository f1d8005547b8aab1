//! Each phase of an upgrade, as `kubectl get clusterbootstraps -w` prints it.

use anyhow::{Context as _, Result, ensure};
use sluice_tests::scenario::{Columns, Row, Scenario, Scene, TIMEOUT, Table, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

const NAMES: [&str; 6] = ["NAME", "PHASE", "READY", "WAITING FOR", "SINCE", "AGE"];

/// Characters of a line of a common terminal, of the name of a Cluster, and of an age such as `23h59m`.
const LINE: usize = 120;
const NAME: &str = "production-payments1";
const AGE: usize = 6;

/// In this order, whatever is between them.
const PHASES: [&str; 5] = [
    "UpgradingPackages",
    "UpgradingControlPlane",
    "ProvingPackages",
    "UpgradingWorkers",
    "Completed",
];

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "columns",
        "kubectl shows each phase of an upgrade, how many packages are proven, and the pending one; messages of packages are limited and escaped",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let hostile = format!("\u{1b}[2Jmetrics fails: {}", "x".repeat(65_536));
    let metrics = scene.package("metrics", "2.0.0");
    let release = |kubernetes, version, antrea, metrics| -> Result<_> {
        Ok(scene.release(kubernetes, version, antrea)?.additional(metrics))
    };
    let old = release(
        VERSIONS[1],
        "1.0.0",
        Delay::NONE,
        scene.package("metrics", "1.0.0"),
    )?;
    let new = release(
        VERSIONS[2],
        "2.0.0",
        Delay::Never,
        metrics.clone().broken(hostile),
    )?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster(NAME).at(&old).workers(1).create().await?;
    cluster.packages_proven(&old, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;

    let path = format!(
        "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{}/clusterbootstraps",
        scene.namespace()
    );
    let printed = Table::get(&scene.client(), &path).await?.columns;
    ensure!(printed == NAMES, "kubectl prints the columns {printed:?}");
    let columns = cluster.columns().await?;
    at_rest(&columns).await?;
    let before = cluster.upgrade(&new).await?;
    let failed = columns
        .shows("that metrics has failed", TIMEOUT, |row| {
            row["READY"] == "1/3" && row["WAITING FOR"].starts_with("metrics 2.0.0: failed: ")
        })
        .await?;
    is_plain(&failed["WAITING FOR"], 46)?;
    // The column ends before the hostile part of the message.
    let bootstrap = cluster.bootstrap().await?;
    let conditions = bootstrap["status"]["conditions"].as_array();
    let mut conditions = conditions.context("no conditions")?.iter();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    let said = ready.and_then(|ready| ready["message"].as_str());
    let said = said.context("no message of condition Ready")?;
    is_plain(said, 512)?;
    ensure!(said.contains("[2J"), "it says something else: {said:?}");
    scene.apply(&[metrics.package()]).await?;
    let held = columns
        .shows("that only antrea is waited for", TIMEOUT, |row| {
            row["READY"] == "2/3" && row["WAITING FOR"] == "antrea 2.0.0: being deployed"
        })
        .await?;
    ensure!(held["PHASE"] == "UpgradingPackages", "{held:?}");
    ensure!(held["SINCE"].ends_with('s'), "no age: {held:?}");
    cluster.control_plane_is_untouched(before).await?;

    cluster.delay("antrea", Delay::NONE);
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await?;
    at_rest(&columns).await?;
    let proves = |row: &&Row| row["PHASE"] == "ProvingPackages" && row["READY"] != "3/3";
    let rows = columns.rows();
    let proves = rows
        .iter()
        .find(proves)
        .context("no line shows that packages are proven again")?;
    ensure!(proves["WAITING FOR"].contains(" 2.0.0: "), "{proves:?}");
    fits(&rows)?;

    let mut phases = columns.column("PHASE").into_iter();
    for wanted in PHASES {
        ensure!(
            phases.any(|phase| phase == wanted),
            "{wanted} is not among {:?}, or not in its order",
            columns.column("PHASE")
        );
    }
    Ok(())
}

async fn at_rest(columns: &Columns) -> Result<()> {
    let settled =
        |row: &Row| row["PHASE"] == "Completed" && row["READY"] == "3/3" && row["WAITING FOR"].is_empty();
    columns.shows("no pending package", TIMEOUT, settled).await?;
    Ok(())
}

/// The default columns of all lines, aligned as kubectl does, fit into a terminal.
fn fits(rows: &[Row]) -> Result<()> {
    let widths = NAMES.map(|name| {
        let cells = rows.iter().map(|row| row[name].chars().count());
        let age = if ["SINCE", "AGE"].contains(&name) { AGE } else { 0 };
        cells.max().unwrap_or_default().max(name.len()).max(age)
    });
    let line = widths.iter().sum::<usize>() + 3 * (NAMES.len() - 1);
    ensure!(line <= LINE, "{line} characters: {widths:?}");
    Ok(())
}

/// The message of a package is one short line without control characters.
fn is_plain(text: &str, longest: usize) -> Result<()> {
    ensure!(
        !text.chars().any(char::is_control),
        "control characters in {text:?}"
    );
    ensure!(
        text.chars().count() <= longest,
        "{} characters",
        text.chars().count()
    );
    Ok(())
}
