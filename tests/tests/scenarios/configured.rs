//! The CNI takes its values from an AntreaConfig that its user edits.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use sluice_tests::objects::{Class, Infrastructure, Release};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{antrea_config, given, released};

const GROUP: &str = "cni.tanzu.vmware.com";
const KIND: &str = "AntreaConfig";
const PACKAGE_NAME: &str = "tkg.tanzu.vmware.com/package-name";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "configured",
        "an AntreaConfig that its user edited before the upgrade keeps its settings; the new package gets them, with those that only its version knows, before the control plane is written",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        infrastructure: Infrastructure::Docker,
        ..Class::default()
    })
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.5.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "1.9.0", Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").at(&old).create().await?;
    cluster.packages_proven(&old, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_labelled(&scene, &old).await?;
    let first = config_of(&cluster, &old).await?;
    ensure!(
        first["defaultMTU"].is_null() && first["serviceCIDR"] == "10.0.0.0/24",
        "antrea runs with {first}"
    );

    let gates = json!({"AntreaPolicy": false, "TopologyAwareHints": true});
    let edit = json!({"spec": {"antrea": {"config": {"defaultMTU": "1400", "tunnelPort": 7000, "featureGates": gates}}}});
    let configs = configs(&scene);
    configs
        .patch("one-antrea-package", &PatchParams::default(), &Patch::Merge(edit))
        .await?;
    let edited = configs.get("one-antrea-package").await?.data["spec"].clone();
    runs_with(&cluster, &old, "antrea 1.5.0 to run with the edit", |config| {
        config["defaultMTU"] == "1400" && config["featureGates"]["AntreaPolicy"] == false
    })
    .await?;
    let before_upgrade = config_of(&cluster, &old).await?;
    ensure!(
        before_upgrade["tunnelPort"].is_null()
            && before_upgrade["featureGates"]["TopologyAwareHints"].is_null(),
        "antrea 1.5.0 knows no tunnelPort and no TopologyAwareHints, and was given {before_upgrade}"
    );

    let before = cluster.upgrade(&new).await?;
    cluster.says("antrea 1.9.0", TIMEOUT).await?;
    let user_settings = |config: &Value| {
        config["defaultMTU"] == "1400"
            && config["tunnelPort"] == 7000
            && config["featureGates"]["AntreaPolicy"] == false
            && config["featureGates"]["TopologyAwareHints"] == true
    };
    runs_with(
        &cluster,
        &new,
        "antrea 1.9.0 to be installed with the settings",
        user_settings,
    )
    .await?;
    is_labelled(&scene, &new).await?;
    released(&cluster, &new, before).await?;

    let after = config_of(&cluster, &new).await?;
    ensure!(
        user_settings(&after),
        "antrea runs with {after} on the new control plane"
    );
    let kept = configs.get("one-antrea-package").await?.data["spec"].clone();
    ensure!(
        kept == edited,
        "the AntreaConfig was changed from {edited} to {kept}"
    );
    Ok(())
}

fn release(scene: &Scene, kubernetes: &str, version: &str, antrea: Delay) -> Result<Release> {
    Ok(scene
        .release(kubernetes, version, antrea)?
        .values("antrea", antrea_config()))
}

fn configs(scene: &Scene) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1alpha1", KIND);
    Api::namespaced_with(scene.client(), scene.namespace(), &ApiResource::from_gvk(&kind))
}

/// The settings that antrea of `release` runs with in the workload cluster.
async fn config_of(cluster: &Cluster, release: &Release) -> Result<Value> {
    let mut values = given(cluster, release, "antrea").await?;
    ensure!(values["infraProvider"] == "docker", "antrea was given {values}");
    Ok(values["antrea"]["config"].take())
}

async fn runs_with(
    cluster: &Cluster,
    release: &Release,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<()> {
    wait::until(what, TIMEOUT, || async {
        let config = config_of(cluster, release).await?;
        if wanted(&config) {
            Ok(())
        } else {
            wait::not_yet(config)
        }
    })
    .await?;
    Ok(())
}

/// The label follows the package, for readers who need its version.
async fn is_labelled(scene: &Scene, release: &Release) -> Result<()> {
    let package = release.packages().find(|package| package.short() == "antrea");
    let name = package.context("a release without antrea")?.name();
    let config = configs(scene).get("one-antrea-package").await?;
    let label = config.labels().get(PACKAGE_NAME);
    ensure!(label == Some(&name), "labelled {label:?}, the package is {name}");
    Ok(())
}
