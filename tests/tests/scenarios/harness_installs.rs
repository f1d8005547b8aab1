//! The harness itself: a package installs kapp-controller, the kubelet stand-in runs it, and it installs another package.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::{Value, json};
use sluice_tests::objects::packages::{NAMESPACE, TestPackage};
use sluice_tests::observer::Event;
use sluice_tests::requests::apply;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "harness-installs",
        "the harness: a package brings a real kapp-controller into a workload cluster, and that one installs packages",
        |scene| Box::pin(run(scene)),
    )
    .without_sluice()
}

async fn run(scene: Scene) -> Result<()> {
    let kapp = scene.kapp_controller("1.0.0")?;
    let antrea = scene.slow_package("antrea", "1.0.0", Delay::seconds(3));
    let newer = scene.slow_package("antrea", "2.0.0", Delay::seconds(3));
    scene.apply(&[kapp.package()]).await?;
    let cluster = scene.cluster("bare").unmanaged(VERSIONS[1]).create().await?;
    cluster.is_available(TIMEOUT).await?;

    scene.apply(&[remote_install(&scene, &cluster, &kapp)]).await?;
    proven(&cluster, &kapp).await?;

    let workload = cluster.workload()?.api.admin_client();
    apply::namespace(&workload, SYSTEM_NAMESPACE).await?;
    let objects = [
        account(),
        binding(),
        antrea.package(),
        newer.package(),
        local_install(&antrea),
    ];
    apply::apply_all(&workload, &objects).await?;
    let first = proven(&cluster, &antrea).await?;
    apply::apply(&workload, &local_install(&newer)).await?;
    let second = proven(&cluster, &newer).await?;

    let between = second.seen.duration_since(first.seen);
    ensure!(
        between.as_secs() >= 3,
        "the Deployment was to take 3 s, but {between} passed between two proofs"
    );
    let values = Api::<ConfigMap>::namespaced(workload, NAMESPACE)
        .get("antrea-values")
        .await?;
    let version = values.data.and_then(|data| data.get("version").cloned());
    ensure!(
        version.as_deref() == Some("2.0.0"),
        "the package deployed {version:?}"
    );
    Ok(())
}

async fn proven(cluster: &Cluster, package: &TestPackage) -> Result<sluice_tests::observer::Milestone> {
    let what = format!("proof of {}", package.name());
    cluster
        .milestone(&what, TIMEOUT, 0, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name == package.ref_name() && version == package.version())
        })
        .await
}

fn remote_install(scene: &Scene, cluster: &Cluster, package: &TestPackage) -> Value {
    json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1",
        "kind": "PackageInstall",
        "metadata": {"name": format!("{}-kapp-controller", cluster.name()), "namespace": scene.namespace()},
        "spec": {
            "noopDelete": true,
            "packageRef": reference(package),
            "cluster": {"kubeconfigSecretRef": {"name": format!("{}-kubeconfig", cluster.name()), "key": "value"}},
        },
    })
}

fn local_install(package: &TestPackage) -> Value {
    json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1",
        "kind": "PackageInstall",
        "metadata": {"name": package.short(), "namespace": SYSTEM_NAMESPACE},
        "spec": {"serviceAccountName": "installer", "packageRef": reference(package)},
    })
}

fn reference(package: &TestPackage) -> Value {
    json!({
        "refName": package.ref_name(),
        "versionSelection": {"constraints": package.version(), "prereleases": {}},
    })
}

fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": SYSTEM_NAMESPACE}})
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "installer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": SYSTEM_NAMESPACE}],
    })
}
