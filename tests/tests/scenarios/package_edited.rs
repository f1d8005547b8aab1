//! A Package is edited in place, at the same version.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use sluice_tests::objects::packages::NAMESPACE;
use sluice_tests::observer::{Event, Revision};
use sluice_tests::requests::apply::apply_all;
use sluice_tests::scenario::{Cluster, Objects, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{MidHold, REFUSED, Refusal, is_deployed, metrics, record_says};

/// What an edit adds to a Package.
pub(crate) fn marker() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "edited", "namespace": NAMESPACE},
    })
}

pub(crate) fn held_back() -> Scenario {
    Scenario::new(
        "package-edited",
        "a Package edited in place at its version in mid-hold: the gate does not open before the new content is deployed",
        |scene| Box::pin(run_held_back(scene)),
    )
    .each_time()
}

/// All that is missing arrives while nothing may be written, so one reconcile finds the edit and the last proof.
async fn run_held_back(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    pause(&cluster).await?;
    cluster.delay("antrea", Delay::NONE);
    record_says(&cluster, "antrea", "Ready").await?;
    let edited = metrics(&scene, "2.0.0").deployment(Delay::Never);
    scene.apply(&[edited.package()]).await?;
    let since = scene.world().observer().catch_up().await?;
    go_on(&cluster).await?;

    is_waited_for(&cluster).await?;
    cluster.control_plane_is_untouched(before).await?;
    cluster.delay("metrics", Delay::NONE);
    let proven = proven(&cluster, "2.0.0", since).await?;
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    ensure!(
        proven < written.revision,
        "released at revision {}, the edited Package was proven at {proven}",
        written.revision
    );
    gate_was_closed(&cluster, new.kubernetes(), since..written.revision, proven).await?;
    cluster.is_settled(TIMEOUT).await
}

pub(crate) fn on_the_workload() -> Scenario {
    Scenario::new(
        "package-copy-edited",
        "the copy of a Package edited on the workload and put back: the gate does not open for the App that was made from the edit",
        |scene| Box::pin(run_on_the_workload(scene)),
    )
    .each_time()
}

/// The edit is deployed while Sluice may write nothing, so all is proven when Sluice finds it.
async fn run_on_the_workload(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    pause(&cluster).await?;
    let metrics = metrics(&scene, "2.0.0");
    let objects = Objects::of(cluster.workload()?.api.admin_client());
    let app = format!(
        "/apis/kappctrl.k14s.io/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/apps/{}-metrics",
        cluster.name()
    );
    let copy = format!(
        "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packages/{}",
        metrics.name()
    );
    let edited = metrics.object(marker()).package();
    objects.merge(&copy, &json!({"spec": edited["spec"]})).await?;
    let is_of_the_edit = |app: &Value| app["spec"]["fetch"] == edited["spec"]["template"]["spec"]["fetch"];
    wait::until("the edited copy to be deployed", TIMEOUT, || async {
        let app = objects.get(&app).await?.unwrap_or_default();
        if is_of_the_edit(&app) && is_deployed(&app) {
            Ok(())
        } else {
            wait::not_yet(app)
        }
    })
    .await?;
    cluster.delay("antrea", Delay::NONE);
    record_says(&cluster, "antrea", "Ready").await?;
    record_says(&cluster, "metrics", "Ready").await?;
    // kapp-controller cannot reconcile the restored Package, nor report it.
    let workload = cluster.workload()?.api.admin_client();
    apply_all(&workload, &REFUSAL.objects()).await?;
    let touched = json!({"metadata": {"labels": {"harness.test/touched": "yes"}}});
    wait::until("writes of Apps to be refused", TIMEOUT, || async {
        match objects.merge(&app, &touched).await {
            Ok(()) => wait::not_yet("allowed"),
            Err(refused) if format!("{refused:#}").contains(REFUSED) => Ok(()),
            Err(other) => wait::not_yet(format!("{other:#}")),
        }
    })
    .await?;
    go_on(&cluster).await?;
    is_to_be_deployed_again(&cluster).await?;
    cluster.control_plane_is_untouched(before).await?;
    objects.delete(&REFUSAL.binding()).await?;

    let opened = format!("the gate of {} to open", cluster.name());
    cluster
        .bootstrap_until(opened, TIMEOUT, |bootstrap| {
            let gates = bootstrap["status"]["upgrade"]["gates"].as_array();
            let mut open = gates.into_iter().flatten().filter(|gate| gate["open"] == true);
            if open.any(|gate| gate["version"] == new.kubernetes()) {
                Ok(())
            } else {
                wait::not_yet(bootstrap)
            }
        })
        .await?;
    let app = objects.get(&app).await?.unwrap_or_default();
    ensure!(
        !is_of_the_edit(&app) && is_deployed(&app),
        "a gate is open, and the App was made from the edit, or is not deployed: {app}"
    );
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await
}

/// Has Sluice write nothing for a Cluster.
async fn pause(cluster: &Cluster) -> Result<()> {
    cluster
        .patch_bootstrap(&json!({"spec": {"paused": true}}))
        .await?;
    cluster.says("BootstrapPaused", TIMEOUT).await.map(drop)
}

async fn go_on(cluster: &Cluster) -> Result<()> {
    cluster
        .patch_bootstrap(&json!({"spec": {"paused": false}}))
        .await
        .map(drop)
}

/// Waits until the record reports metrics as altered and unproven.
async fn is_to_be_deployed_again(cluster: &Cluster) -> Result<()> {
    let what = "the record to say that metrics was altered and is deployed again".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let packages = &bootstrap["status"]["upgrade"]["packages"];
            let mut packages = packages.as_array().into_iter().flatten();
            let metrics = packages.find(|found| found["name"] == "metrics");
            match metrics {
                Some(metrics) if metrics["repairs"] == 1 && metrics["state"] != "Ready" => Ok(()),
                found => wait::not_yet(found.unwrap_or(&Value::Null)),
            }
        })
        .await
}

/// Blocks writes of kapp-controller to Apps and to the status of PackageInstalls.
const REFUSAL: Refusal<'_> = Refusal {
    name: "no-writes-of-kapp-controller",
    operation: "UPDATE",
    users: "",
    resources: &[
        ("kappctrl.k14s.io", "apps"),
        ("packaging.carvel.dev", "packageinstalls/status"),
    ],
};

/// Waits until the edited Package is written and has no proof.
async fn is_waited_for(cluster: &Cluster) -> Result<()> {
    let what = "the record to say that the edited Package is waited for".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let packages = &bootstrap["status"]["upgrade"]["packages"];
            let mut found = packages.as_array().into_iter().flatten();
            // kapp-controller ignores a new generation while it waits for its deployment of the previous one.
            match found.find(|found| found["name"] == "metrics") {
                Some(found) if found["state"] == "Applied" || found["state"] == "Reconciling" => Ok(()),
                _ => wait::not_yet(packages),
            }
        })
        .await
}

/// Waits until metrics has a proof at this version that is newer than `since`.
pub(crate) async fn proven(cluster: &Cluster, wanted: &str, since: Revision) -> Result<Revision> {
    let what = format!("metrics {wanted} to be proven");
    let milestone = cluster
        .milestone(&what, TIMEOUT, since, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == wanted)
        })
        .await?;
    Ok(milestone.revision)
}

/// Fails if any write before `proven` opened a gate of `version`. Every write in `window` is checked.
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
