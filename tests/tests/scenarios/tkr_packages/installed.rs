//! One PackageRepository is all that is applied.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::objects::{Class, Infrastructure, Release, Values};
use sluice_tests::repository::{Registry, Source, TkrPackage};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use super::{image, image_path, is_installed, is_ready, paths, there, until};
use crate::common::{antrea_config, proven_before_written};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "tkr-package",
        "from one PackageRepository, an imgpkg bundle in a registry, come releases, images, templates, values and Packages; a Cluster is created from them and upgraded",
        |scene| Box::pin(run(scene)),
    )
    // The values of antrea depend on the infrastructure kind.
    .class(Class {
        infrastructure: Infrastructure::Docker,
        ..Class::default()
    })
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let registry = Registry::start(scene.world().stack().core()).await?;
    let source = Source::Registry(registry);
    let release = |kubernetes, version| -> Result<Release> {
        Ok(scene
            .release(kubernetes, version, Delay::NONE)?
            .additional(scene.package("metrics", version))
            .values("antrea", antrea_config())
            .values("metrics", Values::Secret(json!({"replicas": 1}))))
    };
    let (old, new) = (release(VERSIONS[1], "1.0.0")?, release(VERSIONS[2], "2.0.0")?);
    let mut packages = Vec::new();
    for release in [&old, &new] {
        let image = image(&format!("noble-{}", release.name()), release.kubernetes());
        packages.push(scene.tkr_package(&source, release, &[image]).await?);
    }
    // Of the same version but for the build, which kapp-controller has to tell apart.
    packages.push(rebuilt(&scene, &source, &old).await?);
    let offered: Vec<_> = packages.iter().map(TkrPackage::package).collect();
    scene.offer(&source, &offered).await?;

    for release in [&old, &new] {
        is_ready(&scene, &release.name()).await?;
        for path in paths(release) {
            there(&scene, &path).await?;
        }
        let path = image_path(&format!("noble-{}", release.name()));
        until(&scene, &path, format!("{path} to be Ready"), |image| {
            super::condition(image, "Ready").is_some_and(|ready| ready["status"] == "True")
        })
        .await?;
    }
    for package in &packages {
        let install = is_installed(&scene, package).await?;
        ensure!(
            install["status"]["version"] == package.package()["spec"]["version"],
            "{} has installed {}",
            package.name(),
            install["status"]["version"]
        );
        ensure!(install["spec"]["noopDelete"] == true, "{}", install["spec"]);
    }

    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = cluster.upgrade(&new).await?;
    proven_before_written(&cluster, &new, before).await?;
    cluster.is_settled(TIMEOUT * 2).await?;

    for package in &packages {
        let install = there(&scene, &package.install_path()).await?;
        ensure!(
            install["metadata"]["generation"] == 1,
            "{} was written to again: {}",
            package.name(),
            install["spec"]
        );
    }
    Ok(())
}

/// A Package with another build of the same version, which brings an image.
async fn rebuilt(scene: &Scene, source: &Source, release: &Release) -> Result<TkrPackage> {
    let version = format!(
        "{}+{}.2",
        release.kubernetes().trim_start_matches('v'),
        scene.namespace()
    );
    let image = image(&format!("jammy-{}", release.name()), release.kubernetes());
    TkrPackage::publish_objects(source, scene.namespace(), &version, &[image]).await
}
