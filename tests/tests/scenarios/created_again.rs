//! A Cluster is deleted and created again under its name before the garbage collector has deleted what belonged to the first one.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_tests::objects::{Release, Values};
use sluice_tests::observer::Revision;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{given, is_completed, release};

/// Kinds of the management cluster that a Cluster of Sluice owns.
const OWNED: [(&str, &str); 3] = [
    ("/api/v1", "secrets"),
    ("/apis/run.tanzu.vmware.com/v1alpha3", "clusterbootstraps"),
    ("/apis/packaging.carvel.dev/v1alpha1", "packageinstalls"),
];

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "created-again",
        "a Cluster is deleted and created again under its name while the garbage collector is stopped: it keeps its values during the later collection, and is upgraded",
        |scene| Box::pin(run(scene)),
    )
    .alone()
}

async fn run(scene: Scene) -> Result<()> {
    let (old, new) = (with_values(&scene, 1)?, with_values(&scene, 2)?);
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let first = scene.cluster("again").create_settled(&old).await?;
    is_completed(&first).await?;
    let uid = uid(&first.object().await?)?;

    let collector = scene.world().stack().controller_manager();
    collector.freeze()?;
    let second = replaced(&scene, &first, &old).await;
    collector.thaw()?;
    let (second, before) = second?;

    is_collected(&scene, &uid).await?;
    second.packages_proven(&old, before, TIMEOUT).await?;
    second.is_available(TIMEOUT).await?;
    is_completed(&second).await?;
    has_values(&second, &old).await?;
    // Each reconcile of an upgrade reads all values.
    let before = second.upgrade(&new).await?;
    second.packages_proven(&new, before, TIMEOUT).await?;
    is_completed_at(&second, &new).await?;
    has_values(&second, &new).await
}

/// A release with values that its template holds, and values in a Secret.
fn with_values(scene: &Scene, number: usize) -> Result<Release> {
    let version = format!("{number}.0.0");
    Ok(release(scene, VERSIONS[number], &version, Delay::NONE)?
        .values("antrea", Values::Inline(json!({"from": "template"})))
        .values("metrics", Values::Secret(json!({"from": "secret"}))))
}

/// Deletes the Cluster and creates it again. Nothing of the first one is collected but its ClusterBootstrap, as if the collector had been
/// stopped after that.
///
/// Returns the second Cluster, with the revision from before it.
async fn replaced(scene: &Scene, first: &Cluster, release: &Release) -> Result<(Cluster, Revision)> {
    let bootstrap = first.bootstrap().await?;
    first.delete().await?;
    let before = scene.world().observer().catch_up().await?;
    let second = scene.cluster("again").at(release).create().await?;
    first.force_bootstrap_away().await?;
    let what = "a ClusterBootstrap of the second Cluster".to_owned();
    second
        .bootstrap_until(what, TIMEOUT, |other| {
            if other["metadata"]["uid"] == bootstrap["metadata"]["uid"] {
                wait::not_yet(&other["metadata"])
            } else {
                Ok(())
            }
        })
        .await?;
    Ok((second, before))
}

fn uid(object: &Value) -> Result<String> {
    let uid = object["metadata"]["uid"].as_str();
    Ok(uid.context("an object without UID")?.to_owned())
}

/// Waits until nothing is left that belongs to the Cluster with this UID.
async fn is_collected(scene: &Scene, uid: &str) -> Result<()> {
    wait::until(
        "what belonged to the first Cluster to be collected",
        TIMEOUT,
        || async {
            for (group, plural) in OWNED {
                let path = format!("{group}/namespaces/{}/{plural}", scene.namespace());
                let listed = scene.objects().get(&path).await?.unwrap_or_default();
                let mut items = listed["items"].as_array().into_iter().flatten();
                let left = items.find(|object| {
                    let owners = object["metadata"]["ownerReferences"].as_array();
                    owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
                });
                if let Some(left) = left {
                    return wait::not_yet(format!("{plural} {}", left["metadata"]["name"]));
                }
            }
            Ok(())
        },
    )
    .await?;
    Ok(())
}

/// Fails if a Secret is missing that holds values of the template, or belongs to another Cluster, or if a package was given others.
async fn has_values(cluster: &Cluster, release: &Release) -> Result<()> {
    let scene = cluster.scene();
    let uid = uid(&cluster.object().await?)?;
    let secrets = Api::<Secret>::namespaced(scene.client(), scene.namespace());
    let secrets = secrets.list_metadata(&ListParams::default()).await?;
    for (package, from) in [("antrea", "template"), ("metrics", "secret")] {
        let name = format!("{}-{package}-package", cluster.name());
        let mut found = secrets.items.iter();
        let found = found.find(|secret| secret.metadata.name.as_ref() == Some(&name));
        let found = found.with_context(|| format!("Secret {name} is missing"))?;
        let owners = found.metadata.owner_references.iter().flatten();
        ensure!(
            owners.clone().any(|owner| owner.uid == uid),
            "Secret {name} belongs to {owners:?}"
        );
        let given = given(cluster, release, package).await?;
        ensure!(given["from"] == from, "{package} was given {given}");
    }
    Ok(())
}

/// Waits until the record shows a completed upgrade to `release`.
async fn is_completed_at(cluster: &Cluster, release: &Release) -> Result<()> {
    let what = format!("the upgrade of {} to be complete", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["outcome"] == "Completed" && record["to"] == release.kubernetes() {
                Ok(())
            } else {
                wait::not_yet(record)
            }
        })
        .await
}
