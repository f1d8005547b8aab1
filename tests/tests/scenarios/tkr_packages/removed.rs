//! Objects in use stay after their package leaves the repository.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::repository::{Files, Source, TkrPackage};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;

use super::{image, image_path, is_gone, is_installed, is_ready, paths, there, until};
use crate::common::proven_before_written;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "tkr-removed",
        "a package that leaves the repository leaves its release, image and Packages, and Clusters are created from them; a Package that only the repository has holds the upgrade that needs it",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let source = Source::Files(Files::serve().await?);
    let late = scene.package("late", "2.0.0");
    let old = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[2], "2.0.0", Delay::NONE)?;
    let noble = format!("noble-{}", old.name());
    let first = scene
        .tkr_package(&source, &old, &[image(&noble, old.kubernetes())])
        .await?;
    // The repository has one of its Packages beside it, and the bundle all others.
    let whole = new.additional(late.clone());
    scene.withdraws(&whole);
    let second = without(&scene, &source, &whole, &late.name()).await?;
    let both = [first.package(), second.package(), late.package()];
    scene.offer(&source, &both).await?;
    for release in [&old, &whole] {
        is_ready(&scene, &release.name()).await?;
    }
    let cluster = scene.cluster("one").create_settled(&old).await?;
    is_installed(&scene, &first).await?;
    let kept = [
        paths(&old),
        vec![image_path(&noble), format!("{}/{}", Release::PATH, old.name())],
    ]
    .concat();
    let mut uids = Vec::new();
    for path in &kept {
        uids.push(there(&scene, path).await?["metadata"]["uid"].clone());
    }

    // Both leave: the package of the release in use, and a Package of the next one.
    scene.offer(&source, &[second.package()]).await?;
    for path in [first.install_path(), app_path(&first)] {
        is_gone(&scene, &path).await?;
    }
    for (path, uid) in kept.iter().zip(&uids) {
        let object = there(&scene, path).await?;
        ensure!(object["metadata"]["uid"] == *uid, "{path} was made again");
        ensure!(
            object["metadata"]["deletionTimestamp"].is_null(),
            "{path} is being deleted"
        );
    }
    is_ready(&scene, &old.name()).await?;
    cluster.is_settled(TIMEOUT).await?;
    scene.cluster("two").create_settled(&old).await?;

    let path = format!("{}/{}", Release::PATH, whole.name());
    until(
        &scene,
        &path,
        "the next release to lack a Package".to_owned(),
        |release| {
            super::condition(release, "Valid").is_some_and(|valid| valid["reason"] == "PackageNotFound")
        },
    )
    .await?;
    let before = cluster.upgrade(&whole).await?;
    let said = cluster.says(&late.name(), TIMEOUT).await?;
    ensure!(said.contains("PackageNotFound"), "the Cluster reports {said:?}");
    cluster.control_plane_is_untouched(before).await?;

    // Labels of others, which kapp does not manage.
    let labelled = [format!("{}/{}", Release::PATH, old.name()), image_path(&noble)];
    for path in &labelled {
        let mark = json!({"metadata": {"labels": {"deactivated": "", "team": "one"}}});
        scene.objects().merge(path, &mark).await?;
    }
    scene.offer(&source, &both).await?;
    proven_before_written(&cluster, &whole, before).await?;
    cluster.is_settled(TIMEOUT * 2).await?;
    is_ready(&scene, &whole.name()).await?;
    // The same App again: kapp finds its earlier objects.
    is_installed(&scene, &first).await?;
    for path in &labelled {
        let labels = there(&scene, path).await?["metadata"]["labels"].take();
        ensure!(
            labels["deactivated"] == "" && labels["team"] == "one" && labels["v1"] == "",
            "kapp has taken labels of others from {path}: {labels}"
        );
    }
    Ok(())
}

/// The Package of a release whose bundle lacks one of the Packages.
async fn without(scene: &Scene, source: &Source, release: &Release, name: &str) -> Result<TkrPackage> {
    let objects = release.objects().into_iter();
    let others: Vec<Value> = objects
        .filter(|object| object["metadata"]["name"] != name)
        .collect();
    let version = release.name().trim_start_matches('v').replace("---", "+");
    TkrPackage::publish_objects(source, scene.namespace(), &version, &others)
        .await
        .context("publish a bundle")
}

fn app_path(package: &TkrPackage) -> String {
    format!(
        "/apis/kappctrl.k14s.io/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/apps/{}",
        package.install()
    )
}
