//! Everything starts again while APIs that Sluice reads are missing.

use anyhow::{Context as _, Result};
use sluice_tests::observer::Revision;
use sluice_tests::requests::deletion;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::wait;

use crate::common::{MidHold, is_held, released};

/// Which of our definitions is missing.
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tanzukubernetesreleases.run.tanzu.vmware.com";

/// What holds a managed Cluster without kapp-controller's API.
const WITHOUT_PACKAGES: &str = "waiting for packages.data.packaging.carvel.dev to be listed";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "started-without",
        "all replicas and Cluster API start again while kapp-controller's API and a definition of ours are missing: Cluster API stays up, the upgrade of a managed Cluster is held and goes on by itself, another Cluster is upgraded and deleted meanwhile",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster,
        old,
        new,
        before,
    } = MidHold::of(&scene).await?;
    let unmanaged = scene.cluster("free").unmanaged(VERSIONS[1]).create().await?;
    unmanaged.is_available(TIMEOUT).await?;
    unmanaged.is_settled(TIMEOUT).await?;
    let stack = scene.world().stack();
    let extension = scene.world().extension()?;
    let definition = scene.objects().get(DEFINITION).await?;
    let definition = definition.context("no definition")?;

    extension.kill().await?;
    stack.kapp_controller()?.kill().await?;
    scene.objects().delete(DEFINITION).await?;
    let held_without = without(&scene, &cluster, &unmanaged, before).await;
    // Other scenarios need it, however this one goes on.
    scene.objects().restore(DEFINITION, &definition).await?;
    held_without?;
    // kapp-controller's API alone is still missing.
    let held = format!("BeforeClusterUpgrade: APIUnavailable: {WITHOUT_PACKAGES}");
    cluster.says(&held, TIMEOUT).await?;
    cluster
        .has_event("APIUnavailable", WITHOUT_PACKAGES, TIMEOUT)
        .await?;
    gates_say(&cluster, "APIUnavailable").await?;
    unmanaged.delete().await?;
    cluster.control_plane_is_untouched(before).await?;
    stack.kapp_controller()?.restart().await?;
    // Packages are written by way of its API.
    for release in [&old, &new] {
        scene.publish(release).await?;
    }
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    stack.check()
}

/// Starts Sluice and Cluster API; both wait until the started processes are ready.
async fn without(scene: &Scene, managed: &Cluster, unmanaged: &Cluster, before: Revision) -> Result<()> {
    let world = scene.world();
    // While it is being deleted it is still served, and nothing would be missing.
    wait::until("the definition to be gone", TIMEOUT, || async {
        let Some(definition) = scene.objects().get(DEFINITION).await? else {
            return Ok(());
        };
        deletion::look_again(&world.stack().client()).await?;
        wait::not_yet(&definition["status"]["conditions"])
    })
    .await?;
    world.extension()?.restart().await?;
    world.stack().cluster_api().restart().await?;
    let begun = unmanaged.upgrade_unmanaged(VERSIONS[2]).await?;
    unmanaged
        .control_plane_written(VERSIONS[2], begun, TIMEOUT)
        .await?;
    unmanaged.is_settled(TIMEOUT).await?;
    let releases = "BeforeClusterUpgrade: APIUnavailable: waiting for tanzukubernetesreleases.run.tanzu.vmware.com to be listed";
    managed.says(releases, TIMEOUT).await?;
    managed.control_plane_is_untouched(before).await
}

/// Waits until the record holds BeforeClusterUpgrade for `reason`.
async fn gates_say(cluster: &Cluster, reason: &str) -> Result<()> {
    let what = format!("the record of {} to be held for {reason}", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            let mut gates_of_hook = gates.as_array().into_iter().flatten();
            let is_held =
                gates_of_hook.any(|gate| gate["hook"] == "BeforeClusterUpgrade" && gate["reason"] == reason);
            if is_held { Ok(()) } else { wait::not_yet(gates) }
        })
        .await
}
