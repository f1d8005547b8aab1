//! A Package is edited in place, at the same version.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::kubelet::Delay;
use sluice_tests::observer::{Event, Revision};
use sluice_tests::packages::NAMESPACE;
use sluice_tests::scenario::{Cluster, PATIENCE, Scenario, Scene};
use sluice_tests::wait;

use crate::common::{MidHold, metrics, record_says, releases};

pub(crate) fn settled() -> Scenario {
    Scenario::new(
        "package-edited-settled",
        "a Package edited in place at its version reaches a settled cluster within a sync period",
        |scene| Box::pin(run_settled(scene)),
    )
    .alone()
}

async fn run_settled(scene: Scene) -> Result<()> {
    let (old, _) = releases(&scene).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let outcome = format!("the record of {} to be complete", cluster.name());
    cluster
        .bootstrap_until(outcome, PATIENCE, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["outcome"] == "Completed" {
                Ok(())
            } else {
                wait::not_yet(record)
            }
        })
        .await?;
    // Within a sync period, so with an extension whose period is short.
    let world = scene.world();
    world.extension()?.kill().await?;
    let hasty = Settings {
        sync_period: "20s".to_owned(),
        ..Settings::new("package-edited")
    };
    let hasty = Replica::start(world.stack(), hasty).await?;

    let marker = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "edited", "namespace": NAMESPACE},
    });
    let since = world.observer().catch_up().await?;
    scene
        .apply(&[metrics(&scene, "1.0.0").object(marker).package()])
        .await?;
    let configs: Api<ConfigMap> = Api::namespaced(cluster.workload()?.api.admin_client(), NAMESPACE);
    wait::until("the edited Package to be deployed", PATIENCE, || async {
        configs.get("edited").await.map(drop).map_err(Into::into)
    })
    .await?;
    proven(&cluster, "1.0.0", since).await?;
    record_says(&cluster, "metrics", "Ready").await?;
    hasty.kill().await?;
    world.extension()?.restart().await
}

pub(crate) fn held_back() -> Scenario {
    Scenario::new(
        "package-edited",
        "a Package edited in place at its version in mid-hold: the gate does not open before the new content is deployed",
        |scene| Box::pin(run_held_back(scene)),
    )
}

/// All that is missing arrives while nothing may be written, so one pass finds the edit and the last proof.
async fn run_held_back(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let pause = |paused: Value| json!({"spec": {"paused": paused}});
    cluster.patch_bootstrap(&pause(json!(true))).await?;
    cluster.says("BootstrapPaused", PATIENCE).await?;
    cluster.delay("antrea", Delay::NONE);
    record_says(&cluster, "antrea", "Ready").await?;
    let edited = metrics(&scene, "2.0.0").deployment(Delay::Never);
    scene.apply(&[edited.package()]).await?;
    let since = scene.world().observer().catch_up().await?;
    cluster.patch_bootstrap(&pause(json!(false))).await?;

    is_waited_for(&cluster).await?;
    cluster.control_plane_is_untouched(before).await?;
    cluster.delay("metrics", Delay::NONE);
    let proven = proven(&cluster, "2.0.0", since).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, PATIENCE)
        .await?;
    ensure!(
        proven < written.revision,
        "released at revision {}, the edited Package was proven at {proven}",
        written.revision
    );
    gate_was_closed(&cluster, new.kubernetes(), since..written.revision, proven).await?;
    cluster.is_settled(PATIENCE).await
}

/// Waits until the edited Package is written and has no proof.
async fn is_waited_for(cluster: &Cluster) -> Result<()> {
    let what = "the record to say that the edited Package is waited for".to_owned();
    cluster
        .bootstrap_until(what, PATIENCE, |bootstrap| {
            let packages = &bootstrap["status"]["upgrade"]["packages"];
            let mut found = packages.as_array().into_iter().flatten();
            // kapp-controller does not look at a new generation while it waits for what it deployed at the one before.
            match found.find(|found| found["name"] == "metrics") {
                Some(found) if found["state"] == "Applied" || found["state"] == "Reconciling" => Ok(()),
                _ => wait::not_yet(packages),
            }
        })
        .await
}

async fn proven(cluster: &Cluster, wanted: &str, since: Revision) -> Result<Revision> {
    let what = format!("metrics {wanted} to be proven");
    let milestone = cluster
        .milestone(&what, PATIENCE, since, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == wanted)
        })
        .await?;
    Ok(milestone.revision)
}

/// Fails if any write before `proven` opened a gate of `version`. Every write in `window` is looked at.
async fn gate_was_closed(
    cluster: &Cluster,
    version: &str,
    window: Range<Revision>,
    proven: Revision,
) -> Result<()> {
    let kind = GroupVersionKind::gvk("run.tanzu.vmware.com", "v1alpha3", "ClusterBootstrap");
    let scene = cluster.scene();
    let bootstraps: Api<DynamicObject> =
        Api::namespaced_with(scene.client(), scene.namespace(), &ApiResource::from_gvk(&kind));
    let limit = Duration::from_secs(30);
    let mine = WatchParams::default()
        .fields(&format!("metadata.name={}", cluster.name()))
        .timeout(u32::try_from(limit.as_secs())?);
    let mut writes = Box::pin(bootstraps.watch(&mine, &window.start.to_string()).await?);
    while let Some(write) = writes.try_next().await? {
        let WatchEvent::Modified(bootstrap) = write else {
            bail!("not a change of the ClusterBootstrap: {write:?}");
        };
        let revision: Revision = bootstrap
            .resource_version()
            .context("no resourceVersion")?
            .parse()?;
        let gates = bootstrap.data["status"]["upgrade"]["gates"].as_array();
        let open = gates
            .into_iter()
            .flatten()
            .find(|gate| gate["version"] == version && gate["open"] == true);
        if let Some(open) = open.filter(|_| revision < proven) {
            bail!(
                "at revision {revision} a gate was open, the edited Package was proven at {proven}: {open}"
            );
        }
        if revision > window.end {
            return Ok(());
        }
    }
    bail!(
        "no write of the ClusterBootstrap after revision {} within {limit:?}",
        window.end
    )
}
