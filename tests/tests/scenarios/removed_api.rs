//! A package uses an API that the new control plane does not serve.
//!
//! No API is removed by default between the emulated minors: all of them come from the sources of the newest one. So the old
//! control plane serves a beta API that is off by default, as an operator may have it, and the new one does not.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Class;
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::observer::Event;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

const REMOVED: &str = "resource.k8s.io/v1beta1";
const SUCCESSOR: &str = "resource.k8s.io/v1";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "removed-api",
        "a package that uses an API which the new control plane does not serve holds the workers, by name; a corrected one releases them",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        runtime_config: BTreeMap::from([(VERSIONS[1].to_owned(), vec![format!("{REMOVED}=true")])]),
        ..Class::default()
    })
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene
        .release(VERSIONS[1], "1.0.0", Delay::NONE)?
        .additional(devices(&scene, "1.0.0", REMOVED));
    let new = scene
        .release(VERSIONS[2], "2.0.0", Delay::NONE)?
        .additional(devices(&scene, "2.0.0", REMOVED));
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("removed").at(&old).workers(1).create().await?;
    cluster.packages_proven(&old, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;

    let before = cluster.upgrade(&new).await?;
    cluster
        .control_plane_written(VERSIONS[2], before, TIMEOUT)
        .await?;
    let failed = cluster
        .milestone("devices to fail on the new control plane", TIMEOUT, before, |event| {
            matches!(event, Event::PackageFailed { ref_name, .. } if ref_name.starts_with("devices."))
        })
        .await?;
    let message = cluster.says("devices", TIMEOUT).await?;
    ensure!(
        message.contains("AfterControlPlaneUpgrade"),
        "the Cluster says {message:?}"
    );
    workers_are_untouched(&cluster).await?;

    scene
        .apply(&[devices(&scene, "2.0.0", SUCCESSOR).package()])
        .await?;
    let workers = cluster
        .milestone("the workers to be written", TIMEOUT * 2, before, |event| {
            matches!(event, Event::WorkersWritten { .. })
        })
        .await?;
    ensure!(workers.revision > failed.revision);
    cluster.is_settled(TIMEOUT).await
}

fn devices(scene: &Scene, version: &str, api_version: &str) -> TestPackage {
    scene
        .package("devices", version)
        .object(device_class(api_version))
}

/// No finalizer is put on it, so it goes away without a controller too.
fn device_class(api_version: &str) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": "DeviceClass",
        "metadata": {"name": "fast"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'devices.harness.test'"}}]},
    })
}

async fn workers_are_untouched(cluster: &Cluster) -> Result<()> {
    cluster.scene().world().observer().catch_up().await?;
    match cluster
        .milestones()
        .into_iter()
        .find(|milestone| matches!(milestone.event, Event::WorkersWritten { .. }))
    {
        Some(milestone) => bail!("{milestone:?}"),
        None => Ok(()),
    }
}
