//! Packages of a ClusterBootstrap that belong to the target release, or to none.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use sluice_tests::objects::{Release, Values};
use sluice_tests::observer::{Event, Milestone, Revision};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{additional, record_says, release, released, releases};

const MARK: &str = "lifecycle.sluice.dev/resolved-tkr";
const KEEP: &str = "lifecycle.sluice.dev/keep-package-versions";

/// Calls of a hook that an answer has to last for, to be one that stays. Cluster API asks every second.
const CALLS: usize = 6;

pub(crate) fn merge_that_fails() -> Scenario {
    Scenario::new(
        "merge-that-fails",
        "the values of a package that the new release adds are missing, then the annotation with the release is lost: held, and nothing counts as merged",
        |scene| Box::pin(run_merge_that_fails(scene)),
    )
    .each_time()
}

async fn run_merge_that_fails(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "2.0.0", Delay::NONE)?
        .additional(scene.package("secretgen-controller", "2.0.0"))
        .values("secretgen-controller", Values::Secret(json!({"replicas": 1})));
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let secret = take_values_away(&scene, &new).await?;

    let before = cluster.upgrade(&new).await?;
    cluster.says("ValuesNotFound", TIMEOUT).await?;
    stays_held(&cluster, before).await?;

    // From here on the spec is that of the old release, without a mark.
    cluster
        .patch_bootstrap(&json!({"metadata": {"annotations": {MARK: null}}, "spec": {"upgradePolicy": {"deadline": "1h"}}}))
        .await?;
    is_seen(&cluster).await?;
    stays_held(&cluster, before).await?;
    cluster.says("ValuesNotFound", TIMEOUT).await?;
    is_recorded_as(&cluster, &old).await?;

    scene.apply(&[secret]).await?;
    ends_with(
        &cluster,
        &new,
        new.packages()
            .map(|package| (package.ref_name(), package.version())),
        before,
    )
    .await
}

/// Deletes the Secret of a release's values; returns it.
async fn take_values_away(scene: &Scene, release: &Release) -> Result<Value> {
    let objects = release.objects();
    let secret = objects.into_iter().find(|object| object["kind"] == "Secret");
    let secret = secret.context("a release without a Secret")?;
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    Api::<k8s_openapi::api::core::v1::Secret>::namespaced(scene.client(), SYSTEM_NAMESPACE)
        .delete(name, &DeleteParams::default())
        .await?;
    Ok(secret)
}

pub(crate) fn old_manifest() -> Scenario {
    Scenario::new(
        "old-manifest",
        "packages of the old release are restored in the ClusterBootstrap in mid-hold: held although all of them run, until their versions rise",
        |scene| Box::pin(run_old_manifest(scene)),
    )
    .each_time()
}

async fn run_old_manifest(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let manifest = packages(&cluster).await?;
    // The old versions can only return before kapp-controller deploys the new ones.
    cluster.delay("kapp-controller", Delay::Never);
    let before = cluster.upgrade(&new).await?;
    cluster.says("kapp-controller 2.0.0", TIMEOUT).await?;
    let merged = packages(&cluster).await?;
    ensure!(merged != manifest, "nothing was merged: {merged}");

    apply(&scene, &cluster, &manifest).await?;
    is_seen(&cluster).await?;
    cluster.delay("kapp-controller", Delay::NONE);
    record_says(&cluster, "kapp-controller", "Ready").await?;
    stays_held(&cluster, before).await?;
    let message = cluster.says("PackageBelowRelease", TIMEOUT).await?;
    for named in ["spec.cni", "antrea", "1.0.0", "2.0.0", KEEP] {
        ensure!(message.contains(named), "no {named:?} in {message:?}");
    }

    // One of the two is not enough.
    apply(
        &scene,
        &cluster,
        &json!({"cni": merged["cni"], "additionalPackages": manifest["additionalPackages"]}),
    )
    .await?;
    let message = cluster.says("spec.additionalPackages", TIMEOUT).await?;
    ensure!(message.contains("PackageBelowRelease"), "{message:?}");
    apply(
        &scene,
        &cluster,
        &json!({"cni": merged["cni"], "additionalPackages": []}),
    )
    .await?;
    cluster.says("PackageMissing", TIMEOUT).await?;
    stays_held(&cluster, before).await?;

    apply(&scene, &cluster, &merged).await?;
    cluster.says("antrea 2.0.0", TIMEOUT).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}

pub(crate) fn kept_package() -> Scenario {
    Scenario::new(
        "kept-package",
        "a package that is kept at its version by annotation does not follow the release and holds nothing; an invalid annotation does",
        |scene| Box::pin(run_kept_package(scene)),
    )
}

async fn run_kept_package(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let kept = scene.package("metrics", "1.5.0+own.1");
    scene.apply(&[kept.package()]).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let own = additional(&cluster, |package| package["refName"] = json!(kept.name())).await?;
    cluster.patch_bootstrap(&own).await?;
    proven(&cluster, kept.ref_name(), kept.version(), 0).await?;

    let annotate = async |text: &str| {
        let patch = json!({"metadata": {"annotations": {KEEP: text}}});
        cluster.patch_bootstrap(&patch).await
    };
    annotate("metrics 1.5.0").await?;
    let before = cluster.upgrade(&new).await?;
    let message = cluster.says("KeptVersionsInvalid", TIMEOUT).await?;
    ensure!(
        message.contains(KEEP) && message.contains("metrics 1.5.0"),
        "{message:?}"
    );
    stays_held(&cluster, before).await?;
    is_recorded_as(&cluster, &old).await?;

    annotate(&format!("metrics={}", kept.version())).await?;
    let followed = new
        .packages()
        .filter(|package| package.short() != "metrics")
        .map(|package| (package.ref_name(), package.version()));
    ends_with(
        &cluster,
        &new,
        followed.chain([(kept.ref_name(), kept.version())]),
        before,
    )
    .await?;
    let echoed = cluster.echoed(&kept).await?;
    ensure!(
        echoed["version"] == kept.version(),
        "metrics is installed as {echoed}"
    );
    let named = packages(&cluster).await?["additionalPackages"][0]["refName"].take();
    ensure!(named == kept.name(), "the ClusterBootstrap names {named}");
    Ok(())
}

/// CNI and additional packages of the ClusterBootstrap.
async fn packages(cluster: &Cluster) -> Result<Value> {
    let spec = cluster.bootstrap().await?["spec"].take();
    Ok(json!({"cni": spec["cni"], "additionalPackages": spec["additionalPackages"]}))
}

/// Applies a part of the spec of the ClusterBootstrap, as GitOps does.
async fn apply(scene: &Scene, cluster: &Cluster, spec: &Value) -> Result<()> {
    let manifest = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3",
        "kind": "ClusterBootstrap",
        "metadata": {"name": cluster.name(), "namespace": scene.namespace()},
        "spec": spec,
    });
    scene.apply(&[manifest]).await
}

/// Fails unless the next calls of hooks are held, too, and the control plane is left alone.
async fn stays_held(cluster: &Cluster, before: Revision) -> Result<()> {
    let answered = cluster.hook_answers()?.len();
    let what = format!("{CALLS} more calls of hooks about {}", cluster.name());
    wait::until(what, TIMEOUT, || async {
        match cluster.hook_answers()?.len() - answered {
            calls if calls >= CALLS => Ok(()),
            calls => wait::not_yet(format!("{calls} calls")),
        }
    })
    .await?;
    let released = cluster
        .hook_answers()?
        .into_iter()
        .skip(answered)
        .find(|answer| !answer.is_held());
    ensure!(released.is_none(), "{released:?}");
    cluster.control_plane_is_untouched(before).await
}

/// Waits until the record has seen the latest ClusterBootstrap.
async fn is_seen(cluster: &Cluster) -> Result<()> {
    let what = "the record to have seen the ClusterBootstrap".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let seen = &bootstrap["status"]["upgrade"]["observedBootstrapGeneration"];
            if *seen == bootstrap["metadata"]["generation"] {
                Ok(())
            } else {
                wait::not_yet(seen)
            }
        })
        .await
}

/// Fails if the status names a release other than `release`.
async fn is_recorded_as(cluster: &Cluster, release: &Release) -> Result<()> {
    let resolved = cluster.bootstrap().await?["status"]["resolvedTKR"].take();
    ensure!(resolved == release.name(), "status.resolvedTKR is {resolved}");
    Ok(())
}

async fn proven(cluster: &Cluster, ref_name: &str, version: &str, since: Revision) -> Result<Milestone> {
    let what = format!("proof of {ref_name} {version} in Cluster {}", cluster.name());
    cluster
        .milestone(&what, TIMEOUT, since, |event| {
            matches!(event, Event::PackageProven { ref_name: of, version: at } if of == ref_name && at == version)
        })
        .await
}

/// Waits for the end of the upgrade. The control plane has to be written after a proof of each of `packages` that is newer than
/// `before`.
async fn ends_with<'a>(
    cluster: &Cluster,
    new: &Release,
    packages: impl Iterator<Item = (&'a str, &'a str)>,
    before: Revision,
) -> Result<()> {
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    for (ref_name, version) in packages {
        let proven = proven(cluster, ref_name, version, before).await?;
        ensure!(
            proven.revision < written.revision,
            "{} was written at revision {}, {ref_name} {version} had proof only at {}",
            new.kubernetes(),
            written.revision,
            proven.revision
        );
    }
    cluster.is_settled(TIMEOUT).await
}
