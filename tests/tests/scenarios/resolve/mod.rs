//! Clusters that set only a version prefix.

mod down;
mod pools;
mod prefix;
mod refused;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice_tests::objects::{Class, Images, Release, TKR};
use sluice_tests::scenario::{Cluster, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

pub(crate) use down::scenario as down;
pub(crate) use pools::scenario as pools;
pub(crate) use prefix::scenario as prefix;
pub(crate) use refused::scenario as refused;

/// A class whose machines are made of images of the release.
pub(crate) fn class(releases: Option<&'static str>) -> Class {
    Class {
        images: Some(Images {
            releases,
            other_workers: Some(("photon", "os-name=photon")),
            node_labels: false,
        }),
        ..Class::default()
    }
}

/// A release with one image of each distribution, `ubuntu` the one that parts get which do not select any.
pub(crate) fn release(
    scene: &Scene,
    kubernetes: &str,
    build: u32,
    distributions: &[&str],
) -> Result<Release> {
    let version = format!("{build}.0.0");
    let release = Release::new(
        kubernetes,
        format!("{}.{build}", scene.namespace()),
        scene.kapp_controller(&version)?,
        scene.slow_package("antrea", &version, Delay::NONE),
    );
    let name = release.name().replace('.', "-");
    Ok(distributions.iter().fold(release, |release, distribution| {
        release.image(format!("{name}-{distribution}"), *distribution)
    }))
}

/// The name of an image of [`release`].
pub(crate) fn image(release: &Release, distribution: &str) -> String {
    format!("{}-{distribution}", release.name().replace('.', "-"))
}

/// Registers the webhooks for the scenario's namespace; returns their name.
pub(crate) async fn admit(scene: &Scene) -> Result<String> {
    let webhooks = format!("addons-sluice-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit(&webhooks, &[scene.namespace()]).await?;
    Ok(webhooks)
}

/// Applies the manifest of a Cluster with a version prefix. Cluster API rejects it until the API server calls the webhook,
/// which it does only some time after its registration.
pub(crate) async fn apply_until_accepted(scene: &Scene, manifest: &Value) -> Result<()> {
    wait::until(
        format!("Cluster {} to be accepted", manifest["metadata"]["name"]),
        TIMEOUT,
        || async {
            scene
                .apply(std::slice::from_ref(manifest))
                .await
                .map_err(Into::into)
        },
    )
    .await?;
    Ok(())
}

/// Fails unless the Cluster is of this release: label, version, and the image that all parts have in common.
pub(crate) fn is_of(cluster: &Value, release: &Release, image: &str) -> Result<()> {
    let topology = &cluster["spec"]["topology"];
    ensure!(
        topology["version"] == release.kubernetes(),
        "topology.version is {}, not {}",
        topology["version"],
        release.kubernetes()
    );
    let label = &cluster["metadata"]["labels"][TKR];
    ensure!(
        *label == release.name(),
        "the label names {label}, not {}",
        release.name()
    );
    let entry = &data(&topology["variables"])?[release.kubernetes()];
    ensure!(
        entry["osImageRef"]["name"] == image && entry["labels"][TKR] == release.name(),
        "TKR_DATA has {entry} for {}, not {image} of {}",
        release.kubernetes(),
        release.name()
    );
    Ok(())
}

/// `TKR_DATA` among these variables.
fn data(variables: &Value) -> Result<&Value> {
    let variables = variables.as_array().context("no variables")?;
    let found = variables.iter().find(|variable| variable["name"] == "TKR_DATA");
    Ok(&found.context("no TKR_DATA")?["value"])
}

/// Waits until all machines of a pool are made of this image, and there are as many.
pub(crate) async fn machines_are_of(cluster: &Cluster, pool: &str, image: &str, count: usize) -> Result<()> {
    let scene = cluster.scene();
    let path = format!(
        "/apis/harness.test/v1beta1/namespaces/{}/harnessmachines?labelSelector=cluster.x-k8s.io/cluster-name%3D{},topology.cluster.x-k8s.io/deployment-name%3D{pool}",
        scene.namespace(),
        cluster.name(),
    );
    let what = format!("{count} machines of pool {pool} to be made of {image}");
    wait::until(what, TIMEOUT, || async {
        let machines = scene
            .objects()
            .get(&path)
            .await?
            .context("no machines are served")?;
        let images: Vec<&Value> = machines["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|machine| &machine["spec"]["image"])
            .collect();
        if images.len() == count && images.iter().all(|found| **found == image) {
            Ok(())
        } else {
            wait::not_yet(format!("{images:?}"))
        }
    })
    .await?;
    Ok(())
}
