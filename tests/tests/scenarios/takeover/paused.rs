//! A Cluster that the addons-manager had paused, and whose packages it had begun to upgrade.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_tests::scenario::verdict::{in_order, same_objects};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use super::left;
use crate::common::{record_says, releases};

const TKR: &str = "run.tanzu.vmware.com/tkr";
const PAUSED_FOR: &str = "tkg.tanzu.vmware.com/paused";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "takeover-paused",
        "an upgrade that the addons-manager had begun and paused is taken over: installed packages are proven again before the control plane rolls",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let extension = scene.world().extension()?;
    extension.kill().await?;
    left::by_the_addons_manager(&cluster, &old).await?;
    let installs = cluster.installs().await?;
    // In one write, as its webhook made it.
    let before = cluster
        .patch(&json!({
            "metadata": {"labels": {TKR: new.name()}, "annotations": {PAUSED_FOR: new.name()}},
            "spec": {"paused": true, "topology": {"version": new.kubernetes()}},
        }))
        .await?;
    left::in_mid_upgrade(&cluster, &new).await?;
    extension.restart().await?;

    record_says(&cluster, "metrics", "Ready").await?;
    record_says(&cluster, "antrea", "Reconciling").await?;
    left::nothing_is_left(&cluster, TIMEOUT).await?;
    ensure!(
        cluster.object().await?["spec"]["paused"] == true,
        "the pause went before the packages were proven"
    );
    for package in left::installed(&cluster, &new)? {
        let named = package.named().await?.unwrap_or_default();
        ensure!(named.contains("-data-values-"), "an upgrade uses {named:?}");
    }
    cluster.control_plane_is_untouched(before).await?;
    cluster.delay("antrea", Delay::NONE);
    let what = format!("the addons-manager's pause of {} to be gone", cluster.name());
    cluster
        .until(what, TIMEOUT, |object| {
            let annotation = &object["metadata"]["annotations"][PAUSED_FOR];
            if object["spec"]["paused"] != true && annotation.is_null() {
                Ok(())
            } else {
                wait::not_yet(annotation)
            }
        })
        .await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    let proven = cluster.packages_proven(&new, before, TIMEOUT).await?;
    in_order(&[
        ("the last proof", proven.revision),
        ("the write of the control plane", written.revision),
    ])?;
    cluster.is_settled(TIMEOUT).await?;
    same_objects(&installs, &cluster.installs().await?)
}
