//! A user stops the work on a package by hand.

use anyhow::Result;
use serde_json::{Value, json};
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, Work};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{MidHold, additional, held, metrics, record_says, released, revision};

/// How long metrics takes after each change of its values.
const SLOW: Delay = Delay::seconds(8);

/// On an App: cuts it off from its PackageInstall.
const BY_HAND: &str = "ext.packaging.carvel.dev/manually-controlled";

pub(crate) fn stopped() -> Scenario {
    Scenario::new(
        "package-stopped",
        "a package paused or cancelled by hand is no proof, regardless of its conditions, also after the extension was killed",
        |scene| Box::pin(run_stopped(scene)),
    )
    .own_stack()
}

async fn run_stopped(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let metrics = metrics(&scene, "2.0.0");
    let ways = [
        (Work::PackageInstall, "paused"),
        (Work::PackageInstall, "canceled"),
        (Work::App, "paused"),
        (Work::App, "canceled"),
    ];
    for (work, field) in ways {
        let stop = |value: Value, by_hand: Value| {
            // Without this annotation the PackageInstall reverts edits of its App at once.
            let annotations = if work == Work::App {
                json!({BY_HAND: by_hand})
            } else {
                json!({})
            };
            json!({"metadata": {"annotations": annotations}, "spec": {field: value}})
        };
        cluster
            .patch_package(&metrics, work, &stop(json!(true), json!("")))
            .await?;
        record_is_not_ready(&cluster).await?;
        if field == "paused" {
            scene.world().extension()?.restart().await?;
        }
        cluster.control_plane_is_untouched(before).await?;
        cluster
            .patch_package(&metrics, work, &stop(Value::Null, Value::Null))
            .await?;
        record_says(&cluster, "metrics", "Ready").await?;
    }
    released(&cluster, &new, before).await?;
    Ok(())
}

async fn record_is_not_ready(cluster: &Cluster) -> Result<()> {
    let what = "metrics to have lost its proof".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let packages = &bootstrap["status"]["upgrade"]["packages"];
            let ready = packages
                .as_array()
                .into_iter()
                .flatten()
                .any(|package| package["name"] == "metrics" && package["state"] == "Ready");
            if ready {
                sluice_tests::wait::not_yet(packages)
            } else {
                Ok(())
            }
        })
        .await
}

pub(crate) fn values() -> Scenario {
    Scenario::new(
        "values-only",
        "new values at an unchanged package version wait for their own deploy, also across a kill of the extension",
        |scene| Box::pin(run_values(scene)),
    )
    .own_stack()
    .each_time()
}

async fn run_values(scene: Scene) -> Result<()> {
    // Longer than antrea and a restart of the extension take together: a release that does not wait for metrics is too early.
    let metrics = |version| scene.package("metrics", version).rolls_with_values(SLOW);
    let old = scene
        .release(VERSIONS[1], "1.0.0", Delay::NONE)?
        .additional(metrics("1.0.0"));
    let new = scene
        .release(VERSIONS[2], "2.0.0", Delay::Never)?
        .additional(metrics("2.0.0"));
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let metrics = metrics("2.0.0");
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;
    let patch = additional(&cluster, |package| {
        package["valuesFrom"] = json!({"inline": {"colour": "green"}});
    })
    .await?;
    // The values change and the last package becomes ready at the same time; then the extension dies.
    let edited = revision(&cluster.patch_bootstrap(&patch).await?)?;
    cluster.delay("antrea", Delay::NONE);
    scene.world().extension()?.restart().await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    let deployed = deployed(&cluster, &metrics).await?;
    let proven = proven_again(&cluster, deployed).await?;
    in_order(&[
        ("the new values", edited),
        ("the run that deployed them", deployed),
        ("the proof of that run", proven),
        ("the write of the control plane", written.revision),
    ])?;
    cluster.is_settled(TIMEOUT).await
}

/// Revision at which the new values were deployed; waits for it.
async fn deployed(cluster: &Cluster, metrics: &TestPackage) -> Result<Revision> {
    let what = "metrics to be deployed with its new values";
    // The API server is being replaced meanwhile.
    let deployed = sluice_tests::wait::until(what, TIMEOUT, || async {
        let echoed = cluster.echoed(metrics).await?;
        if is_green(&echoed) {
            // kapp writes the ConfigMap only when its content changes: later runs leave it as it is.
            Ok(cluster.deployed_at(metrics).await?)
        } else {
            sluice_tests::wait::not_yet(echoed)
        }
    })
    .await?;
    Ok(deployed)
}

fn is_green(echoed: &Value) -> bool {
    echoed["values"]
        .as_str()
        .is_some_and(|values| values.contains("green"))
}

async fn proven_again(cluster: &Cluster, since: Revision) -> Result<Revision> {
    let milestone = cluster
        .milestone("metrics to be proven with its new values", TIMEOUT, since, |event| {
            matches!(event, Event::PackageProven { ref_name, .. } if ref_name.starts_with("metrics."))
        })
        .await?;
    Ok(milestone.revision)
}
