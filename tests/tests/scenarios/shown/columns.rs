//! Each phase of an upgrade, as `kubectl get clusterbootstraps -w` prints it.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::requests::apply::apply_all;
use sluice_tests::scenario::{Cluster, Columns, Objects, Row, Scenario, Scene, TIMEOUT, Table, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::Refusal;

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

/// The PackageInstall follows its App, and its condition is judged first.
const DEPLOYS: &str = "antrea 2.0.0: PackageInstall reconciling";

/// Keeps kapp-controller from writing PackageInstalls and Apps.
const REFUSAL: Refusal<'_> = Refusal {
    name: "no-writes-of-kapp-controller",
    operation: "*",
    users: ":kapp-controller-sa",
    resources: &[
        ("kappctrl.k14s.io", "apps"),
        ("kappctrl.k14s.io", "apps/status"),
        ("packaging.carvel.dev", "packageinstalls"),
        ("packaging.carvel.dev", "packageinstalls/status"),
    ],
};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "columns",
        "kubectl shows each phase of an upgrade, how many packages are proven, and the pending one, with a text of its own for each step of kapp-controller; messages of packages are limited and escaped",
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
            row["READY"] == "1/3" && row["WAITING FOR"].starts_with("metrics 2.0.0: App failed: ")
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
            row["READY"] == "2/3" && row["WAITING FOR"] == DEPLOYS
        })
        .await?;
    ensure!(held["PHASE"] == "UpgradingPackages", "{held:?}");
    ensure!(held["SINCE"].ends_with('s'), "no age: {held:?}");
    each_step_has_its_text(&cluster, &columns, &scene.package("antrea", "2.0.0")).await?;
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

/// Shows what kapp-controller has not done yet for antrea, one step after the other. kapp-controller itself writes nothing meanwhile.
async fn each_step_has_its_text(cluster: &Cluster, columns: &Columns, antrea: &TestPackage) -> Result<()> {
    let workload = cluster.workload()?;
    apply_all(&workload.api.admin_client(), &REFUSAL.objects()).await?;
    let shown = Shown {
        objects: Objects::of(workload.api.admin_client()),
        columns,
    };
    let path = |api: &str| {
        let (group, plural) = api.split_once(' ').unwrap_or_default();
        format!(
            "/apis/{group}/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/{plural}/{}-antrea",
            cluster.name()
        )
    };
    let (install, app) = (
        path("packaging.carvel.dev packageinstalls"),
        path("kappctrl.k14s.io apps"),
    );
    let status = format!("{install}/status");

    let found = shown.objects.get(&install).await?.context("no PackageInstall")?;
    let generation = &found["metadata"]["generation"];
    shown
        .after(
            &status,
            &json!({"status": {"observedGeneration": 0}}),
            "PackageInstall not observed",
        )
        .await?;
    shown
        .after(
            &status,
            &json!({"status": {"observedGeneration": generation, "version": "1.0.0"}}),
            "version not selected yet",
        )
        .await?;

    let succeeded = json!([{"type": "ReconcileSucceeded", "status": "True"}]);
    shown
        .objects
        .merge(
            &status,
            &json!({"status": {"version": "2.0.0", "conditions": succeeded}}),
        )
        .await?;
    let at = |version: &str| json!({"annotations": {"packaging.carvel.dev/package-version": version}});
    shown
        .after(&app, &json!({"metadata": at("1.0.0")}), "App has another version")
        .await?;
    let secret = cluster.values_secret(antrea).await?;
    let found = shown.objects.get(&app).await?.context("no App")?;
    let template = &found["spec"]["template"];
    let of_another: Value = serde_json::from_str(&template.to_string().replace(&secret, "another"))?;
    ensure!(
        of_another != *template,
        "the App does not use {secret}: {template}"
    );
    shown
        .after(
            &app,
            &json!({"metadata": at("2.0.0"), "spec": {"template": of_another}}),
            "App has other values",
        )
        .await?;
    shown
        .after(
            &app,
            &json!({"spec": {"template": template}}),
            "App change not observed yet",
        )
        .await?;
    shown
        .objects
        .merge(&app, &json!({"metadata": {"finalizers": null}}))
        .await?;
    shown.objects.delete(&app).await?;
    shown.after(&install, &json!({}), "App not created yet").await?;

    shown.objects.delete(&REFUSAL.binding()).await?;
    let restarted = workload.kubelet.restart_kapp_controller().await?;
    ensure!(restarted, "no kapp-controller runs");
    columns
        .shows("that antrea is deployed again", TIMEOUT, |row| {
            row["WAITING FOR"] == DEPLOYS
        })
        .await?;
    Ok(())
}

/// The line of a Cluster after a change of its workload cluster.
struct Shown<'a> {
    objects: Objects,
    columns: &'a Columns,
}

impl Shown<'_> {
    /// Merges `change` into the object at `path` until the line shows `text` for antrea: the refusal takes effect shortly after its
    /// creation, and until then kapp-controller may revert the change.
    async fn after(&self, path: &str, change: &Value, text: &str) -> Result<()> {
        let wanted = format!("antrea 2.0.0: {text}");
        wait::until(format!("the line to show {wanted:?}"), TIMEOUT, || async {
            self.objects.merge(path, change).await?;
            match self.columns.rows().pop() {
                Some(row) if row["WAITING FOR"] == wanted => Ok(()),
                row => wait::not_yet(format!("{row:?}")),
            }
        })
        .await?;
        Ok(())
    }
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
