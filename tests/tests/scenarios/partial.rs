//! ClusterBootstraps that a user writes in part or completely: Sluice completes them from the release, and a later upgrade keeps user settings.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{Class, Infrastructure, Release, Values};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{given, is_completed, proven_before_written};

const FILL: &str = "tkg.tanzu.vmware.com/add-missing-fields-from-tkr";
const RESOLVED: &str = "lifecycle.sluice.dev/resolved-tkr";
const UNMANAGED: &str = "tkg.tanzu.vmware.com/unmanaged-cni";
const CUSTOM: &str = "tkg.tanzu.vmware.com/custom-clusterbootstrap";
const RUN: &str = "/apis/run.tanzu.vmware.com/v1alpha3/namespaces";

/// With a kind of infrastructure that a CalicoConfig knows.
fn on_vsphere(scenario: Scenario) -> Scenario {
    scenario.class(Class {
        infrastructure: Infrastructure::VSphere,
        ..Class::default()
    })
}

pub(crate) fn partial() -> Scenario {
    on_vsphere(Scenario::new(
        "partial",
        "a ClusterBootstrap that names calico and a release is complete as soon as it is stored, or refused with what is wrong; calico runs with the user's values, also after an upgrade",
        |scene| Box::pin(run_partial(scene)),
    ))
}

pub(crate) fn wildcard() -> Scenario {
    on_vsphere(Scenario::new(
        "wildcard",
        "without webhooks a ClusterBootstrap with a wildcard is completed when its Cluster comes, and upgraded",
        |scene| Box::pin(run_wildcard(scene)),
    ))
}

pub(crate) fn custom() -> Scenario {
    on_vsphere(Scenario::new(
        "custom",
        "two Clusters wait for ClusterBootstraps of their user: a partial one is completed and its Cluster upgraded, a full one is adopted as it is; one of another release holds the Cluster or is refused",
        |scene| Box::pin(run_custom(scene)),
    ))
}

pub(crate) fn unmanaged_cni() -> Scenario {
    Scenario::new(
        "unmanaged-cni",
        "a ClusterBootstrap with the annotation gets all but a CNI, and none in an upgrade",
        |scene| Box::pin(run_unmanaged(scene)),
    )
}

/// A release, and its packages for a Cluster with calico.
struct Pair {
    release: Release,
    with_calico: Release,
}

impl Pair {
    fn of(scene: &Scene, kubernetes: &str, version: &str) -> Result<Self> {
        let calico = scene.package("calico", version);
        let values = |release: Release| {
            release
                .additional(scene.package("metrics", version))
                .values("metrics", Values::Secret(json!({"replicas": 1})))
        };
        let release = values(
            scene
                .release(kubernetes, version, Delay::NONE)?
                .lists(calico.clone()),
        );
        let build = format!("{}.1", scene.namespace());
        let kapp = scene.kapp_controller(version)?;
        Ok(Self {
            release,
            with_calico: values(Release::new(kubernetes, build, kapp, calico)),
        })
    }
}

async fn pairs(scene: &Scene) -> Result<(Pair, Pair)> {
    let old = Pair::of(scene, VERSIONS[1], "1.0.0")?;
    let new = Pair::of(scene, VERSIONS[2], "2.0.0")?;
    scene.publish(&old.release).await?;
    scene.publish(&new.release).await?;
    let calico = json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "CalicoConfig",
        "metadata": {"name": "mine", "namespace": scene.namespace()},
        "spec": {"calico": {"config": {"vethMTU": 1400}}},
    });
    scene.apply(&[calico]).await?;
    Ok((old, new))
}

/// A ClusterBootstrap with only CNI calico and values of the user.
fn with_calico(scene: &Scene, name: &str, ref_name: &str, release: &str) -> Value {
    let mine = json!({"apiGroup": "cni.tanzu.vmware.com", "kind": "CalicoConfig", "name": "mine"});
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        "metadata": {"name": name, "namespace": scene.namespace(), "annotations": {FILL: release}},
        "spec": {"cni": {"refName": ref_name, "valuesFrom": {"providerRef": mine}}},
    })
}

/// Waits until calico runs, and everything that the release has beside it; upgrades the Cluster, and checks again.
async fn runs_and_is_upgraded(cluster: &Cluster, old: &Pair, new: &Pair) -> Result<()> {
    for (pair, before) in [(old, None), (new, Some(cluster.upgrade(&new.release)))] {
        let since = match before {
            Some(upgrade) => upgrade.await?,
            None => 0,
        };
        let view = &pair.with_calico;
        if since > 0 {
            proven_before_written(cluster, view, since).await?;
        } else {
            cluster.packages_proven(view, since, TIMEOUT).await?;
        }
        cluster.is_available(TIMEOUT).await?;
        cluster.is_settled(TIMEOUT).await?;
        is_completed(cluster).await?;
        let values = given(cluster, view, "calico").await?;
        ensure!(
            values["calico"]["config"]["vethMTU"] == "1400",
            "calico runs with {values}"
        );
        let values = given(cluster, view, "metrics").await?;
        ensure!(values == json!({"replicas": 1}), "metrics runs with {values}");
        is_whole(cluster, view).await?;
    }
    Ok(())
}

/// The ClusterBootstrap belongs to the Cluster and has the packages of the release, and its values sources have labels.
async fn is_whole(cluster: &Cluster, view: &Release) -> Result<()> {
    let bootstrap = cluster.bootstrap().await?;
    let owner = &bootstrap["metadata"]["ownerReferences"][0];
    ensure!(
        owner["kind"] == "Cluster" && owner["name"] == cluster.name() && owner["controller"] == true,
        "it belongs to {owner}"
    );
    let spec = &bootstrap["spec"];
    let names = [&spec["kapp"], &spec["cni"], &spec["additionalPackages"][0]];
    for (package, listed) in view.packages().zip(names) {
        ensure!(
            listed["refName"] == package.name(),
            "{listed} is not {}",
            package.name()
        );
    }
    let mine = &spec["cni"]["valuesFrom"]["providerRef"]["name"];
    ensure!(mine == "mine", "the CNI takes values from {mine}");
    let copied = &spec["additionalPackages"][0]["valuesFrom"]["secretRef"];
    let name = format!("{}-metrics-package", cluster.name());
    ensure!(*copied == name, "metrics takes values from {copied}");
    let namespace = cluster.scene().namespace();
    for path in [
        format!("/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/{namespace}/calicoconfigs/mine"),
        format!("/api/v1/namespaces/{namespace}/secrets/{name}"),
    ] {
        let what = format!("{path} to be labelled with its Cluster");
        wait::until(what, TIMEOUT, || async {
            let object = cluster.scene().objects().get(&path).await?.unwrap_or_default();
            let labels = &object["metadata"]["labels"];
            if labels["tkg.tanzu.vmware.com/cluster-name"].is_string() {
                Ok(())
            } else {
                wait::not_yet(labels)
            }
        })
        .await?;
    }
    Ok(())
}

async fn run_partial(scene: Scene) -> Result<()> {
    let (old, new) = pairs(&scene).await?;
    let webhooks = format!("sluice-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit(&webhooks, &[scene.namespace()]).await?;
    let release = old.release.name();
    refusals(&scene, &release).await?;

    scene
        .apply(&[with_calico(&scene, "one", "calico*", &release)])
        .await?;
    let path = format!("{RUN}/{}/clusterbootstraps/one", scene.namespace());
    let stored = scene.objects().get(&path).await?;
    let spec = stored.context("no ClusterBootstrap")?["spec"].take();
    let metrics = scene.package("metrics", "1.0.0").name();
    ensure!(
        spec["additionalPackages"] == json!([{"refName": metrics}])
            && spec["cni"]["refName"] == scene.package("calico", "1.0.0").name()
            && spec["kapp"] == json!({"refName": scene.kapp_controller("1.0.0")?.name()}),
        "it is stored with {spec}"
    );
    let cluster = scene.cluster("one").at(&old.release).create().await?;
    runs_and_is_upgraded(&cluster, &old, &new).await?;

    let before = cluster.bootstrap().await?["spec"].take();
    scene
        .apply(&[with_calico(&scene, "one", "calico*", &release)])
        .await?;
    let after = cluster.bootstrap().await?["spec"].take();
    ensure!(before == after, "the same file changes {before} to {after}");

    // A replacement with the file has neither the owner nor the annotation of Sluice.
    let file = with_calico(&scene, "one", "calico*", &release);
    scene.objects().restore(&path, &file).await?;
    let replaced = cluster.bootstrap().await?;
    let (after, mark) = (&replaced["spec"], &replaced["metadata"]["annotations"][RESOLVED]);
    ensure!(
        before == *after && *mark == new.release.name(),
        "a replacement changes {before} to {after} of {mark}"
    );
    let what = "the replaced ClusterBootstrap to belong to its Cluster again".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let owner = &bootstrap["metadata"]["ownerReferences"][0];
            if owner["name"] == "one" {
                Ok(())
            } else {
                wait::not_yet(owner)
            }
        })
        .await?;
    cluster.is_settled(TIMEOUT).await?;
    unregister(&scene.client(), &webhooks).await
}

/// The API server rejects invalid objects, and stores nothing.
async fn refusals(scene: &Scene, release: &str) -> Result<()> {
    let calico = scene.package("calico", "1.0.0").name();
    let wrong = |edit: &dyn Fn(&mut Value)| {
        let mut object = with_calico(scene, "wrong", &calico, release);
        edit(&mut object);
        object
    };
    for (object, says) in [
        (
            wrong(&|object| object["metadata"]["annotations"][FILL] = json!("")),
            "it must name the TanzuKubernetesRelease",
        ),
        (
            wrong(&|object| object["metadata"]["annotations"][FILL] = json!("v1.0.0")),
            "tanzukubernetesreleases.run.tanzu.vmware.com \"v1.0.0\" not found; the nearest are",
        ),
        (
            wrong(&|object| object["spec"]["cni"]["refName"] = json!("cilium*")),
            "spec.cni.refName: Invalid value: \"cilium*\": no package of TanzuKubernetesRelease",
        ),
        (
            wrong(&|object| object["spec"]["cni"]["refName"] = json!("*")),
            "have this prefix: ",
        ),
        (
            wrong(&|object| object["spec"]["additionalPackages"] = json!([{"refName": "cilium*"}])),
            "spec.additionalPackages[0].refName: Invalid value: \"cilium*\": no package of TanzuKubernetesRelease",
        ),
    ] {
        match scene.apply(std::slice::from_ref(&object)).await {
            Ok(()) => anyhow::bail!("{object} is stored; it has to be refused with {says:?}"),
            Err(error) => ensure!(format!("{error:#}").contains(says), "not {says:?}: {error:#}"),
        }
    }
    let path = format!("{RUN}/{}/clusterbootstraps/wrong", scene.namespace());
    ensure!(scene.objects().get(&path).await?.is_none(), "{path} is stored");
    Ok(())
}

async fn run_wildcard(scene: Scene) -> Result<()> {
    let (old, new) = pairs(&scene).await?;
    scene
        .apply(&[with_calico(&scene, "one", "calico*", &old.release.name())])
        .await?;
    let cluster = scene.cluster("one").at(&old.release).create().await?;
    runs_and_is_upgraded(&cluster, &old, &new).await
}

async fn run_custom(scene: Scene) -> Result<()> {
    let (old, new) = pairs(&scene).await?;
    let cluster = scene
        .cluster("one")
        .at(&old.release)
        .annotated(CUSTOM, "")
        .create()
        .await?;
    let release = old.release.name();
    let other = with_calico(&scene, "one", "calico*", &new.release.name());
    scene.apply(&[other]).await?;
    let what = "a gate to say that the two releases differ".to_owned();
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            if gates.to_string().contains("MissingFieldsNotFilled") {
                Ok(())
            } else {
                wait::not_yet(gates)
            }
        })
        .await?;
    scene
        .apply(&[with_calico(&scene, "one", "calico*", &release)])
        .await?;
    runs_and_is_upgraded(&cluster, &old, &new).await?;

    let two = scene
        .cluster("two")
        .at(&old.release)
        .annotated(CUSTOM, "")
        .create()
        .await?;
    let webhooks = format!("sluice-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit(&webhooks, &[scene.namespace()]).await?;
    let other = with_calico(&scene, "two", "calico*", &new.release.name());
    let refused = scene.apply(&[other]).await.map_err(|error| format!("{error:#}"));
    ensure!(
        refused
            .as_ref()
            .is_err_and(|error| error.contains("write the same release in both")),
        "another release than that of the Cluster: {refused:?}"
    );
    let full = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        "metadata": {"name": "two", "namespace": scene.namespace()},
        "spec": {
            "kapp": {"refName": scene.kapp_controller("1.0.0")?.name()},
            "cni": {"refName": scene.package("antrea", "1.0.0").name()},
        },
    });
    scene.apply(&[full]).await?;
    unregister(&scene.client(), &webhooks).await?;
    let core = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    two.packages_proven(&core, 0, TIMEOUT).await?;
    two.is_settled(TIMEOUT).await?;
    let bootstrap = two.bootstrap().await?;
    ensure!(
        bootstrap["spec"]["additionalPackages"].is_null(),
        "what a user leaves out of a full one stays out: {}",
        bootstrap["spec"]
    );
    let owner = &bootstrap["metadata"]["ownerReferences"][0];
    ensure!(
        owner["name"] == "two" && owner["controller"] == true,
        "it belongs to {owner}"
    );
    Ok(())
}

async fn run_unmanaged(scene: Scene) -> Result<()> {
    let (old, new) = pairs(&scene).await?;
    let bootstrap = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        "metadata": {
            "name": "one", "namespace": scene.namespace(),
            "annotations": {FILL: old.release.name(), UNMANAGED: ""},
        },
        "spec": {},
    });
    scene.apply(&[bootstrap]).await?;
    let cluster = scene.cluster("one").at(&old.release).create().await?;
    let without_cni = |version: &str, kubernetes: &str| -> Result<Release> {
        let kapp = scene.kapp_controller(version)?;
        // The second one of two that a release always has.
        let metrics = scene.package("metrics", version);
        Ok(Release::new(
            kubernetes,
            format!("{}.1", scene.namespace()),
            kapp,
            metrics,
        ))
    };
    let view = without_cni("1.0.0", VERSIONS[1])?;
    cluster.packages_proven(&view, 0, TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    let before = cluster.upgrade(&new.release).await?;
    let view = without_cni("2.0.0", VERSIONS[2])?;
    cluster.packages_proven(&view, before, TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    let spec = cluster.bootstrap().await?["spec"].take();
    ensure!(spec["cni"].is_null(), "it has the CNI {}", spec["cni"]);
    Ok(())
}
