//! kapp-controller is a package too, and the one that gives the proof of all others.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::objects::packages::{KAPP_CONTROLLER_NAMESPACE, TestPackage};
use sluice_tests::observer::Event;
use sluice_tests::scenario::verdict::{differs, in_order, none_between};
use sluice_tests::scenario::{Cluster, HookAnswer, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::{Delay, KAPP_CONTROLLER_START, RunningProcess};

use crate::common::{MidHold, is_held, metrics, release, released, releases};

/// How long the new process takes until it serves the package API. Its Deployment is ready before, as a kubelet sees it.
const START: Delay = Delay::seconds(20);

/// How long each of some leaders is there: less than it takes one to see for itself that an App does not move.
const TERM: Duration = Duration::from_secs(40);
const LEADERS: usize = 5;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "kapp-controller-changes",
        "a new kapp-controller is proven, its process another one with the arguments and settings of the new release, before any other package of the hop is touched; while it does not serve its API the Cluster says so",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    let kapp = scene.kapp_controller("2.0.0")?.object(settings());
    let new = Release::new(
        VERSIONS[2],
        format!("{}.1", scene.namespace()),
        kapp.clone(),
        scene.slow_package("antrea", "2.0.0", Delay::Never),
    )
    .additional(metrics(&scene, "2.0.0"));
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let first = process(&cluster).await?;
    runs_with(&first, &scene.kapp_controller("1.0.0")?)?;

    cluster.delay("kapp-controller", Delay::Never);
    cluster.delay(KAPP_CONTROLLER_START, START);
    let before = cluster.upgrade(&new).await?;
    let message = cluster.says("kapp-controller 2.0.0", TIMEOUT).await?;
    cluster
        .milestone(
            "kapp-controller to be worked on",
            TIMEOUT,
            before,
            is_kapp_controller,
        )
        .await?;
    let now = scene.world().observer().catch_up().await?;
    none_between(&cluster.milestones(), (before, now), is_another)
        .with_context(|| format!("while the Cluster says {message:?}"))?;
    ensure!(
        process(&cluster).await? == first,
        "the process was replaced although its Deployment does not get ready"
    );

    cluster.delay("kapp-controller", Delay::NONE);
    is_held(&cluster, &new, before).await?;
    let second = process(&cluster).await?;
    differs(
        "the process of kapp-controller",
        &(first.id, first.started),
        &(second.id, second.started),
    )?;
    runs_with(&second, &kapp)?;
    let proven = cluster
        .milestone("kapp-controller 2.0.0 to be proven", TIMEOUT, before, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name == kapp.ref_name() && version == kapp.version())
        })
        .await?;
    let another = cluster
        .milestone("another package to be worked on", TIMEOUT, before, is_another)
        .await?;
    in_order(&[
        ("the upgrade", before),
        ("the proof of kapp-controller 2.0.0", proven.revision),
        ("the work on another package", another.revision),
    ])?;
    let reasons: BTreeSet<String> = cluster
        .hook_answers()?
        .into_iter()
        .filter(HookAnswer::is_held)
        .map(|answer| answer.reason)
        .collect();
    ensure!(
        reasons.contains("KappControllerRestarting"),
        "for {START} the package API was not served, and the answers were {reasons:?}"
    );
    let app = cluster.app(&metrics(&scene, "2.0.0")).await?;
    let said = app["status"]["deploy"]["stdout"].as_str().unwrap_or_default();
    ensure!(
        said.contains("@@ "),
        "kapp shows no differences, so kapp-controller has not read its settings: {said}"
    );
    released(&cluster, &new, before).await?;
    Ok(())
}

/// Settings of kapp-controller that make kapp print changes.
fn settings() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kapp-controller-config", "namespace": KAPP_CONTROLLER_NAMESPACE},
        "data": {"kappDeployRawOptions": json!(["--diff-changes=true"]).to_string()},
    })
}

async fn process(cluster: &Cluster) -> Result<RunningProcess> {
    let found = cluster.workload()?.kubelet.kapp_controller().await;
    found.context("no kapp-controller runs")
}

fn runs_with(process: &RunningProcess, package: &TestPackage) -> Result<()> {
    let wanted = package.kapp_controller_argument();
    ensure!(
        process.arguments.contains(&wanted),
        "kapp-controller runs without {wanted}: {:?}",
        process.arguments
    );
    Ok(())
}

fn is_kapp_controller(event: &Event) -> bool {
    matches!(event, Event::PackageWorking { ref_name, version } if ref_name.starts_with("kapp-controller.") && version == "2.0.0")
}

fn is_another(event: &Event) -> bool {
    matches!(event, Event::PackageWorking { ref_name, version } if !ref_name.starts_with("kapp-controller.") && version == "2.0.0")
}

pub(crate) fn restarted() -> Scenario {
    Scenario::new(
        "kapp-controller-restarts",
        "the process of kapp-controller ends while it waits for a package: Sluice triggers it long before the end of its sync period, although leaders follow each other quickly",
        |scene| Box::pin(run_restarted(scene)),
    )
    .own_stack()
}

async fn run_restarted(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let restarted = cluster.workload()?.kubelet.restart_kapp_controller().await?;
    ensure!(restarted, "no kapp-controller runs");
    cluster.delay("antrea", Delay::NONE);
    // No leader sees for itself that an App has not moved for a minute and a half.
    for _ in 0..LEADERS {
        let written = cluster
            .control_plane_written(new.kubernetes(), before, TERM)
            .await;
        if written.is_ok() {
            return cluster.is_settled(TIMEOUT).await;
        }
        scene.world().extension()?.restart().await?;
    }
    bail!("{LEADERS} leaders of {TERM:?} each did not ask kapp-controller again")
}

pub(crate) fn installer_restarted() -> Scenario {
    Scenario::new(
        "management-kapp-controller-restarts",
        "the management cluster's kapp-controller ends while it installs the one of a cluster: Sluice triggers it long before the end of its sync period",
        |scene| Box::pin(run_installer_restarted(scene)),
    )
    .own_stack()
}

async fn run_installer_restarted(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    cluster.delay("kapp-controller", Delay::Never);
    cluster.delay("antrea", Delay::NONE);
    let before = cluster.upgrade(&new).await?;
    cluster
        .milestone(
            "kapp-controller to be worked on",
            TIMEOUT,
            before,
            is_kapp_controller,
        )
        .await?;
    cluster.says("kapp-controller 2.0.0", TIMEOUT).await?;
    scene.world().stack().kapp_controller()?.restart().await?;
    cluster.delay("kapp-controller", Delay::NONE);
    cluster
        .control_plane_written(new.kubernetes(), before, 3 * TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await
}
