//! Everything starts again while an API that Sluice reads is missing.

use anyhow::{Context as _, Result};
use sluice_tests::observer::Revision;
use sluice_tests::requests::deletion;
use sluice_tests::scenario::{Cluster, PATIENCE, Scenario, Scene};
use sluice_tests::wait;

use crate::common::{MidHold, is_held, released};

/// Which of our definitions is missing.
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tanzukubernetesreleases.run.tanzu.vmware.com";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "started-without",
        "all replicas and Cluster API start again while kapp-controller's API and a definition of ours are missing: Cluster API stays up, the upgrade is held, and goes on by itself",
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
    let stack = scene.world().stack();
    let extension = scene.world().extension()?;
    let definition = scene.objects().get(DEFINITION).await?;
    let definition = definition.context("no definition")?;

    extension.kill().await?;
    stack.kapp_controller().kill().await?;
    scene.objects().delete(DEFINITION).await?;
    let held_without = without(&scene, &cluster, before).await;
    // Other scenarios need it, however this one goes on.
    scene.objects().restore(DEFINITION, &definition).await?;
    held_without?;
    // kapp-controller's API alone is still missing.
    cluster.says("BeforeClusterUpgrade: Starting", PATIENCE).await?;
    stack.kapp_controller().restart().await?;
    // Packages are written by way of its API.
    for release in [&old, &new] {
        scene.publish(release).await?;
    }
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    stack.check()
}

/// Starts Sluice and Cluster API; both wait until what is started is ready.
async fn without(scene: &Scene, cluster: &Cluster, before: Revision) -> Result<()> {
    let world = scene.world();
    // While it is being deleted it is still served, and nothing would be missing.
    wait::until("the definition to be gone", PATIENCE, || async {
        let Some(definition) = scene.objects().get(DEFINITION).await? else {
            return Ok(());
        };
        deletion::look_again(&world.stack().client()).await?;
        wait::not_yet(&definition["status"]["conditions"])
    })
    .await?;
    world.extension()?.restart().await?;
    world.stack().cluster_api().restart().await?;
    cluster.says("BeforeClusterUpgrade: Starting", PATIENCE).await?;
    cluster.control_plane_is_untouched(before).await
}
