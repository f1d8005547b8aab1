//! The harness itself: Flux delivers a chart and files to a workload cluster, from the management cluster and from inside.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::{Chart, FLUX_NAMESPACE, HelmRelease, HelmRepository};
use sluice_tests::scenario::gates::CNI;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::flux::FluxController;
use sluice_tests::wait;

/// Versions of the chart and tags of its image.
const CHARTS: [(&str, &str); 2] = [("1.17.4", "v1.17.4"), ("1.18.2", "v1.18.2")];

/// Another chart, for the release of the workload cluster's own Flux.
const INNER: (&str, &str, &str) = ("inner", "0.1.0", "v0.1.0");

/// Longer than the intervals of all objects, and the retries of all controllers.
const QUIET: Duration = Duration::from_secs(12);

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "harness-delivers",
        "the harness: Flux installs, upgrades and rolls back a chart and applies commits, from the management cluster and from inside; not while suspended or stopped",
        |scene| Box::pin(run(scene)),
    )
    .gates_only()
    .without_sluice()
}

async fn run(scene: Scene) -> Result<()> {
    let cluster = scene.cluster("one").unmanaged(VERSIONS[2]).workers(1);
    let cluster = cluster.create().await?;
    cluster.is_available(TIMEOUT).await?;
    charts_are_released(&scene, &cluster).await?;
    commits_are_applied(&scene, &cluster).await?;
    own_flux_delivers(&scene, &cluster).await
}

async fn charts_are_released(scene: &Scene, cluster: &Cluster) -> Result<()> {
    let old = scene.helm_release(cluster.name(), &CHARTS).await?;
    apply(scene, &old).await?;
    cluster.released(&old, TIMEOUT).await?;
    cluster.rolled_out(CNI, CHARTS[0].1, TIMEOUT).await?;

    // An edit of a suspended one is observed, and not delivered.
    let new = old.clone().version(CHARTS[1].0);
    apply(scene, &new.clone().suspended(true)).await?;
    let status = status_until(scene, &new, "to be observed", |status, generation| {
        status["observedGeneration"] == *generation
    })
    .await?;
    ensure!(
        status["history"][0]["chartVersion"] == CHARTS[0].0,
        "a suspended HelmRelease was upgraded: {status}"
    );
    apply(scene, &new).await?;
    cluster.released(&new, TIMEOUT).await?;
    cluster.rolled_out(CNI, CHARTS[1].1, TIMEOUT).await?;

    let flux = scene.world().flux().await?;
    flux.kill(FluxController::Helm).await?;
    apply(scene, &old).await?;
    let is_early = cluster.released(&old, QUIET).await.is_ok();
    // Whatever came of it: other scenarios need the controller.
    flux.restart(FluxController::Helm).await?;
    ensure!(!is_early, "helm-controller delivers although it was killed");
    cluster.released(&old, TIMEOUT).await?;

    // A failed upgrade to a version is followed by a release of the version before.
    apply(scene, &new.clone().values(Chart::REJECTED).rolls_back()).await?;
    let status = status_until(scene, &new, "to be rolled back", |status, _| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|condition| condition["type"] == "Remediated");
        conditions.any(|condition| condition["status"] == "True")
            && status["history"][0]["status"] == "deployed"
    })
    .await?;
    ensure!(
        status["history"][0]["chartVersion"] == CHARTS[0].0,
        "the release before was not deployed again: {status}"
    );
    apply(scene, &new).await?;
    cluster.released(&new, TIMEOUT).await?;
    cluster.rolled_out(CNI, CHARTS[1].1, TIMEOUT).await
}

async fn apply(scene: &Scene, release: &HelmRelease) -> Result<()> {
    scene.apply(&[release.manifest(scene.namespace())]).await
}

/// Waits until status and generation of a HelmRelease are as wanted. Returns the status.
async fn status_until(
    scene: &Scene,
    release: &HelmRelease,
    what: &str,
    wanted: impl Fn(&Value, &Value) -> bool,
) -> Result<Value> {
    let path = scene.helm_release_path(release.name());
    let status = wait::until(format!("{path} {what}"), TIMEOUT, || async {
        let object = scene.objects().get(&path).await?.unwrap_or_default();
        let status = &object["status"];
        if wanted(status, &object["metadata"]["generation"]) {
            Ok(status.clone())
        } else {
            wait::not_yet(status)
        }
    })
    .await?;
    Ok(status)
}

async fn commits_are_applied(scene: &Scene, cluster: &Cluster) -> Result<()> {
    let kustomization = scene.kustomization(cluster.name(), "settings").await?;
    let first = commit(scene, "red").await?;
    scene.apply(&[kustomization.manifest(scene.namespace())]).await?;
    cluster.applied(&kustomization, &first, TIMEOUT).await?;
    colour_is(cluster, "red").await?;

    let second = commit(scene, "green").await?;
    cluster.applied(&kustomization, &second, TIMEOUT).await?;
    colour_is(cluster, "green").await?;

    let flux = scene.world().flux().await?;
    flux.freeze(FluxController::Source).await?;
    let third = commit(scene, "blue").await?;
    let is_early = cluster.applied(&kustomization, &third, QUIET).await.is_ok();
    flux.thaw(FluxController::Source).await?;
    ensure!(
        !is_early,
        "a commit arrives although source-controller is stopped"
    );
    cluster.applied(&kustomization, &third, TIMEOUT).await?;
    colour_is(cluster, "blue").await
}

/// Commits a ConfigMap. Returns the revision.
async fn commit(scene: &Scene, colour: &str) -> Result<String> {
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "colour", "namespace": "default"},
        "data": {"colour": colour},
    })
    .to_string();
    let git = scene.world().git().await?;
    git.commit(&[("settings/colour.yaml", config_map.as_str())]).await
}

async fn colour_is(cluster: &Cluster, colour: &str) -> Result<()> {
    let path = "/api/v1/namespaces/default/configmaps/colour";
    let found = cluster.in_workload(path).await?.unwrap_or_default();
    ensure!(
        found["data"]["colour"] == colour,
        "the colour is {}, not {colour}",
        found["data"]
    );
    Ok(())
}

async fn own_flux_delivers(scene: &Scene, cluster: &Cluster) -> Result<()> {
    let (name, version, image) = INNER;
    let charts = scene.world().charts().await?;
    charts.publish(&Chart::new(name, version, image))?;
    let flux = cluster.own_flux().await?;
    let release = HelmRelease::new(name, name).version(version);
    let repository = HelmRepository::new(charts.url());
    cluster
        .apply_inside(&[
            repository.manifest(FLUX_NAMESPACE),
            release.manifest(FLUX_NAMESPACE),
        ])
        .await?;
    cluster.released(&release, TIMEOUT).await?;
    cluster.rolled_out(name, image, TIMEOUT).await?;
    drop(flux);
    Ok(())
}
