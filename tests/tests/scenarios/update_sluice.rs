//! Sluice is updated, and the update is taken back, beside Clusters in every state that lasts.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::json;
use sluice_tests::components::previous_sluice;
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::objects::{RESOLVE, Release, Values, cluster};
use sluice_tests::processes::notice;
use sluice_tests::scenario::{Cluster, Scenario, Scene, Snapshot, TIMEOUT, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{is_completed, record_says};
use crate::resolve::{admit, apply_until_accepted, class, image, is_of};
use crate::takeover::{by_the_addons_manager, nothing_is_left};

/// `--sync-period`: the time between drift checks.
const PERIOD: &str = "1m";

/// Drift checks of each Cluster under each binary.
const CHECKS: usize = 2;

/// The first read of a drift check. It is the only reason to read this of a completed Cluster.
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "update-sluice",
        "the previous version of Sluice, this one and the previous one again run beside Clusters at rest, resolved, taken over and held in mid-upgrade: after two drift checks under each only status and events have changed, and the upgrade completes",
        |scene| Box::pin(run(scene)),
    )
    .class(class(None))
    .audited()
    .alone()
}

async fn run(scene: Scene) -> Result<()> {
    // Built before anything has to be in time.
    let previous = previous_sluice().await?;
    // The new definitions, roles and webhooks are installed already, as before an update.
    runs(&scene, Some(previous.as_path())).await?;
    let metrics = scene.package("metrics", "2.0.0");
    let old = release(&scene, VERSIONS[1], "1.0.0", scene.package("metrics", "1.0.0"))?;
    let new = release(
        &scene,
        VERSIONS[2],
        "2.0.0",
        metrics.clone().broken("a value is missing"),
    )?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let (rest, taken, held) = tokio::try_join!(
        at_rest(&scene, "rest", &old),
        at_rest(&scene, "taken", &old),
        at_rest(&scene, "held", &old),
    )?;
    take_over(&taken, &old).await?;
    let webhooks = admit(&scene).await?;
    let resolved = resolved(&scene, &old).await?;
    let before = held.upgrade(&new).await?;
    is_held(&held, &new).await?;

    let clusters = [&rest, &taken, &resolved, &held];
    let objects = scene.snapshot(&clusters).await?;
    notice(format_args!("{} objects are compared", objects.count()));
    for (version, binary) in [
        ("the previous version", Some(previous.as_path())),
        ("this version", None),
        ("the previous version again", Some(previous.as_path())),
    ] {
        let began = Timestamp::now();
        runs(&scene, binary).await?;
        try_join_all(clusters.map(|cluster| is_checked(cluster, &held, &new))).await?;
        is_unchanged(&scene, &clusters, &objects, began)
            .await
            .with_context(|| format!("under {version} of Sluice"))?;
    }

    is_held(&held, &new).await?;
    held.control_plane_is_untouched(before).await?;
    scene.apply(&[metrics.package()]).await?;
    held.control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    held.is_settled(TIMEOUT).await?;
    unregister(&scene.client(), &webhooks).await
}

/// Rolls out a binary, or the one under test, and waits until one of its replicas leads.
async fn runs(scene: &Scene, binary: Option<&Path>) -> Result<()> {
    let extension = scene.world().extension()?;
    extension
        .roll_out(|settings| {
            settings.binary = binary.map(Path::to_path_buf);
            PERIOD.clone_into(&mut settings.sync_period);
        })
        .await?;
    extension.leader().await?;
    Ok(())
}

/// A release whose values come inline and from a Secret, with an image for every part.
fn release(scene: &Scene, kubernetes: &str, version: &str, metrics: TestPackage) -> Result<Release> {
    let release = scene
        .release(kubernetes, version, Delay::NONE)?
        .additional(metrics)
        .values(
            "antrea",
            Values::Inline(json!({"antrea": {"config": {"trafficEncapMode": "encap"}}})),
        )
        .values("metrics", Values::Secret(json!({"replicas": 1})));
    let name = image(&release, "ubuntu");
    Ok(release.image(name, "ubuntu"))
}

async fn at_rest(scene: &Scene, name: &str, release: &Release) -> Result<Cluster> {
    let cluster = scene.cluster(name).workers(1).create_settled(release).await?;
    is_completed(&cluster).await?;
    Ok(cluster)
}

/// Makes a Cluster one of the addons-manager, which Sluice takes over: its PackageInstalls stay as the addons-manager made them.
async fn take_over(cluster: &Cluster, release: &Release) -> Result<()> {
    let extension = cluster.scene().world().extension()?;
    extension.kill().await?;
    by_the_addons_manager(cluster, release).await?;
    let before = cluster.installs().await?;
    extension.restart().await?;
    nothing_is_left(cluster, TIMEOUT).await?;
    for package in release.packages() {
        record_says(cluster, package.short(), "Ready").await?;
    }
    is_completed(cluster).await?;
    let after = cluster.installs().await?;
    ensure!(
        before == after,
        "what the addons-manager has installed was written:\n{before:#?}\n{after:#?}"
    );
    Ok(())
}

/// A Cluster that asks for a release, and whose machines are made of its image.
async fn resolved(scene: &Scene, release: &Release) -> Result<Cluster> {
    let mut manifest = cluster(scene.namespace(), "resolved", release.kubernetes(), None, 1);
    manifest["metadata"]["annotations"] = json!({RESOLVE: ""});
    apply_until_accepted(scene, &manifest).await?;
    let cluster = scene.cluster("resolved").existing();
    is_of(&cluster.object().await?, release, &image(release, "ubuntu"))?;
    cluster.packages_proven(release, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_completed(&cluster).await?;
    Ok(cluster)
}

/// Waits until metrics has failed, all other packages are ready, and the Cluster says so.
async fn is_held(cluster: &Cluster, new: &Release) -> Result<()> {
    for package in new.packages() {
        let state = if package.short() == "metrics" {
            "Failed"
        } else {
            "Ready"
        };
        record_says(cluster, package.short(), state).await?;
    }
    cluster.says("PackageFailed", TIMEOUT).await.map(drop)
}

/// Waits until Sluice has compared a Cluster with its workload cluster as often as is wanted. While an upgrade is held, Sluice checks the
/// copy of a proven Package once per sync period.
async fn is_checked(cluster: &Cluster, held: &Cluster, new: &Release) -> Result<()> {
    let path = if cluster.name() == held.name() {
        let antrea = new.packages().find(|package| package.short() == "antrea");
        let name = antrea.context("a release without antrea")?.name();
        format!("/apis/data.packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packages/{name}")
    } else {
        KUBE_SYSTEM.to_owned()
    };
    let since = Timestamp::now();
    let requests = Mutex::new(cluster.requests()?);
    let what = format!("{CHECKS} drift checks of Cluster {}", cluster.name());
    wait::until(what, TIMEOUT, || async {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        match requests.reads(&path, since)? {
            reads if reads >= CHECKS => Ok(()),
            reads => wait::not_yet(format!("{reads} reads of {path}")),
        }
    })
    .await?;
    Ok(())
}

/// Fails if anything but status and events has changed, or if Sluice has written anything else, even without a change.
async fn is_unchanged(
    scene: &Scene,
    clusters: &[&Cluster],
    before: &Snapshot,
    began: Timestamp,
) -> Result<()> {
    let after = scene.snapshot(clusters).await?;
    let differences = before.differences(&after);
    ensure!(differences.is_empty(), "changed:\n{}", differences.join("\n"));
    for cluster in clusters {
        let writes = cluster.requests()?.writes(began)?;
        ensure!(
            writes.is_empty(),
            "Sluice wrote, in the namespace or in the workload cluster of {}:\n{}",
            cluster.name(),
            writes.join("\n")
        );
    }
    Ok(())
}
