//! A release that needs a package of the management cluster.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, Table, VERSIONS};
use sluice_tests::stack::{SYSTEM_NAMESPACE, kubelet::Delay};
use sluice_tests::wait;

use crate::common::{is_completed, is_deployed, proven_before_written, revision};

const PACKAGE: &str = "tkg-clusterclass";
const REASON: &str = "ManagementPackageNotReady";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "management-package",
        "a release waits for a package of the management cluster, which its own PackageInstall upgrades; no Cluster moves to the release before",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[2], "2.0.0", Delay::NONE)?;
    scene.publish(&old).await?;
    let packages = ["0.30.0", "0.31.0"].map(|version| scene.package(PACKAGE, version));
    publish_requiring(&scene, &new, &format!("{}>=0.31.0", packages[0].ref_name())).await?;
    says_of_release(&scene, &new, "found no PackageInstall").await?;
    scene.apply(&account(&scene)).await?;
    scene
        .apply(&[packages[0].package(), packages[1].package()])
        .await?;
    scene
        .apply(&[install(&scene, packages[0].ref_name(), "0.30.0")])
        .await?;
    says_of_release(&scene, &new, "wanted >=0.31.0, found 0.30.0").await?;

    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let before = cluster.upgrade(&new).await?;
    waits(&cluster).await?;
    ensure!(
        cluster.bootstrap().await?["spec"]["cni"]["refName"] == cni(&old)?,
        "packages of the release were merged"
    );
    cluster.control_plane_is_untouched(before).await?;

    let constraints = json!({"spec": {"packageRef": {"versionSelection": {"constraints": "0.31.0"}}}});
    let path = path(&scene, "apis/packaging.carvel.dev/v1alpha1", "packageinstalls");
    scene.objects().merge(&path, &constraints).await?;
    let proven = deployed(&scene, "0.31.0").await?;
    proven_before_written(&cluster, &new, before).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_after(&cluster, before, proven)?;
    is_completed(&cluster).await?;
    shows(&cluster, &new).await?;
    remove(&scene, &path).await
}

/// Publishes a release with requirements.
async fn publish_requiring(scene: &Scene, release: &Release, requires: &str) -> Result<()> {
    scene.withdraws(release);
    let mut objects = release.objects();
    for object in &mut objects {
        if object["kind"] == "TanzuKubernetesRelease" {
            object["metadata"]["annotations"]["lifecycle.sluice.dev/requires"] = json!(requires);
        }
    }
    scene.apply(&objects).await
}

fn cni(release: &Release) -> Result<String> {
    let mut packages = release.packages();
    let cni = packages.find(|package| package.short() == "antrea");
    Ok(cni.context("a release without a CNI")?.name())
}

fn account_name(scene: &Scene) -> String {
    format!("{}-management", scene.namespace())
}

/// The ServiceAccount that kapp-controller deploys the package with.
fn account(scene: &Scene) -> [Value; 2] {
    let name = account_name(scene);
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}],
        }),
    ]
}

/// The PackageInstall of the package.
fn install(scene: &Scene, ref_name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
        "metadata": {"name": account_name(scene), "namespace": SYSTEM_NAMESPACE},
        "spec": {
            "serviceAccountName": account_name(scene), "noopDelete": true,
            "packageRef": {"refName": ref_name, "versionSelection": {"constraints": version}},
        },
    })
}

/// The path of the PackageInstall, or of its App.
fn path(scene: &Scene, group: &str, plural: &str) -> String {
    format!(
        "/{group}/namespaces/{SYSTEM_NAMESPACE}/{plural}/{}",
        account_name(scene)
    )
}

/// Waits until kubectl shows that the release waits, with this text in the message of its condition.
async fn says_of_release(scene: &Scene, release: &Release, text: &str) -> Result<()> {
    let path = format!("{}/{}", Release::PATH, release.name());
    wait::until(format!("{path} to say {text:?}"), TIMEOUT, || async {
        let found = scene.objects().get(&path).await?.unwrap_or_default();
        let message = condition(&found, "Compatible")["message"].clone();
        let table = Table::get(&scene.client(), Release::PATH).await?;
        let is_shown = table
            .row(&release.name())
            .is_some_and(|row| row["COMPATIBLE"] == "False" && row["REASON"] == REASON);
        let is_labelled = !found["metadata"]["labels"]["incompatible"].is_null();
        if is_shown && is_labelled && message.as_str().is_some_and(|message| message.contains(text)) {
            Ok(())
        } else {
            wait::not_yet(format!("{message} {table}"))
        }
    })
    .await?;
    Ok(())
}

fn condition(object: &Value, type_: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == type_);
    found.next().cloned().unwrap_or_default()
}

/// Waits until both gates before the control plane name the reason, and the columns show the release that the Cluster waits for.
async fn waits(cluster: &Cluster) -> Result<()> {
    let what = format!("gates of {} to wait for {PACKAGE}", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            let is_held = |hook: &str| {
                let mut gates = gates.as_array().into_iter().flatten();
                gates.any(|gate| gate["hook"] == hook && gate["reason"] == REASON)
            };
            // Columns COMPATIBLE and UPDATES AVAILABLE of `kubectl get clusterbootstraps -o wide`.
            let compatible = condition(bootstrap, "ReleaseCompatible");
            let is_shown = compatible["status"] == "False" && compatible["reason"] == REASON;
            if is_held("BeforeClusterUpgrade") && is_held("BeforeControlPlaneUpgrade") && is_shown {
                Ok(())
            } else {
                wait::not_yet(json!([gates, compatible]))
            }
        })
        .await
}

/// Waits until kapp-controller has deployed a version. Returns the revision of that status.
async fn deployed(scene: &Scene, version: &str) -> Result<Revision> {
    let path = path(scene, "apis/kappctrl.k14s.io/v1alpha1", "apps");
    let app = wait::until(format!("{path} to be at {version}"), TIMEOUT, || async {
        let app = scene.objects().get(&path).await?.unwrap_or_default();
        let is_at = app["metadata"]["annotations"]["packaging.carvel.dev/package-version"] == version;
        if is_at && is_deployed(&app) {
            Ok(app)
        } else {
            wait::not_yet(&app["status"])
        }
    })
    .await?;
    revision(&app)
}

/// Fails if a package of the Cluster, or the control plane, was written before the management package was proven, or never.
fn is_after(cluster: &Cluster, before: Revision, proven: Revision) -> Result<()> {
    let of_control_plane = |event: &Event| matches!(event, Event::ControlPlaneWritten { .. });
    let of_package = |event: &Event| match event {
        Event::PackageWorking { version, .. } | Event::PackageProven { version, .. } => version == "2.0.0",
        _ => false,
    };
    let milestones = cluster.milestones();
    let since = milestones.iter().filter(|milestone| milestone.revision > before);
    let first = |what: &str, is_it: &dyn Fn(&Event) -> bool| {
        let moved = since.clone().filter(|milestone| is_it(&milestone.event));
        let first = moved.min_by_key(|milestone| milestone.revision);
        first.with_context(|| format!("no {what} was written since revision {before}"))
    };
    for early in [
        first("package", &of_package)?,
        first("control plane", &of_control_plane)?,
    ] {
        ensure!(
            early.revision > proven,
            "{:?} at revision {}, {PACKAGE} had its proof only at {proven}",
            early.event,
            early.revision
        );
    }
    Ok(())
}

/// Waits until release, Cluster and ClusterBootstrap show the release as compatible.
async fn shows(cluster: &Cluster, release: &Release) -> Result<()> {
    let scene = cluster.scene();
    let path = format!("{}/{}", Release::PATH, release.name());
    wait::until(format!("{path} to be shown as compatible"), TIMEOUT, || async {
        let found = scene.objects().get(&path).await?.unwrap_or_default();
        let said = [
            condition(&found, "Compatible"),
            condition(&cluster.object().await?, "ReleaseCompatible"),
            condition(&cluster.bootstrap().await?, "ReleaseCompatible"),
        ];
        if said.iter().all(|condition| condition["status"] == "True") {
            Ok(())
        } else {
            wait::not_yet(json!(said))
        }
    })
    .await?;
    Ok(())
}

/// Removes the package. Its objects stay.
async fn remove(scene: &Scene, install: &str) -> Result<()> {
    scene.objects().delete(install).await?;
    wait::until(format!("{install} to be gone"), TIMEOUT, || async {
        match scene.objects().get(install).await? {
            None => Ok(()),
            Some(found) => wait::not_yet(&found["status"]),
        }
    })
    .await?;
    let name = account_name(scene);
    let binding = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}");
    scene.objects().delete(&binding).await?;
    let account = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/{name}");
    scene.objects().delete(&account).await
}
