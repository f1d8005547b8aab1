//! Admission while no replica responds.

use anyhow::Result;
use serde_json::{Value, json};
use sluice_tests::extension::admission::{TEMPLATES, unregister};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use super::{Bench, RUN, UNMANAGED, admitted, refused};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "admission-down",
        "without any replica Clusters, status, labels and leases are written as before; refused are only specs of ClusterBootstraps and templates",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let bench = Bench::of(scene.clone()).await?;
    let release = scene.release(VERSIONS[1], "1.0.0", Delay::NONE)?;
    scene.publish(&release).await?;
    let cluster = scene.cluster("one").create_settled(&release).await?;
    let extension = scene.world().extension()?;
    let webhooks = bench.admit().await?;
    extension.kill().await?;

    let namespace = scene.namespace();
    let path = format!("{RUN}/{namespace}/clusterbootstraps/one");
    let topology = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/one");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/sluice-system/leases/sluice-leader";
    let unanswered = "failed calling webhook";
    let mut table = [
        (
            &*topology,
            admitted(
                "a label of a Cluster",
                json!({"metadata": {"labels": {"team": "a"}}}),
            ),
        ),
        (
            &*topology,
            admitted("a pause of a Cluster", json!({"spec": {"paused": true}})),
        ),
        (
            &*path,
            admitted(
                "a label of a ClusterBootstrap",
                json!({"metadata": {"labels": {"team": "a"}}}),
            ),
        ),
        (
            &*path,
            admitted(
                "a finalizer of a ClusterBootstrap",
                json!({"metadata": {"finalizers": ["a.test/b"]}}),
            ),
        ),
        (
            lease,
            admitted("a lease", json!({"spec": {"holderIdentity": "none"}})),
        ),
        (
            &*path,
            refused(
                "the spec of a ClusterBootstrap",
                json!({"spec": {"paused": true}}),
                unanswered,
            ),
        ),
        (
            &*path,
            refused(
                "unmanaged-cni",
                json!({"metadata": {"annotations": {UNMANAGED: ""}}}),
                unanswered,
            ),
        ),
    ];
    for (path, case) in &mut table {
        let written = bench.patch(path, &case.change).await;
        case.check(written)?;
    }
    let status = json!({"status": {"resolvedTKR": release.name()}});
    let written = bench.patch(&format!("{path}/status"), &status).await;
    admitted("the status of a ClusterBootstrap", json!({})).check(written)?;
    created(&bench, &cluster.object().await?, &topology).await?;
    // The ClusterBootstrap goes without an answer.
    scene.objects().delete(&path).await?;
    let gone = format!("{path} to be gone");
    wait::until(gone, TIMEOUT, || async {
        match scene.objects().get(&path).await? {
            None => Ok(()),
            Some(object) => wait::not_yet(&object["metadata"]),
        }
    })
    .await?;

    extension.restart().await?;
    let written = bench.create(bench.good("new"), &json!({})).await;
    admitted("a new ClusterBootstrap, with Sluice", json!({})).check(written)?;
    let login = json!({"spec": {"additionalPackages": [{
        "refName": bench.package("metrics", "2.0.0"), "valuesFrom": {"secretRef": "one-kubeconfig"},
    }]}});
    let written = bench.create(bench.good("new"), &login).await;
    let says = "is a credential of Kubernetes or Cluster API";
    refused("the kubeconfig of a Cluster as values", json!({}), says).check(written)?;
    cluster.is_available(TIMEOUT).await?;
    unregister(&scene.client(), &webhooks).await
}

/// New objects, of which `cluster` at `path` is an example.
async fn created(bench: &Bench, cluster: &Value, path: &str) -> Result<()> {
    let unanswered = "failed calling webhook";
    let written = bench.create(bench.good("new"), &json!({})).await;
    refused("a new ClusterBootstrap", json!({}), unanswered).check(written)?;
    let mut template = bench.good(&format!("{TEMPLATES}new"));
    template["kind"] = json!("ClusterBootstrapTemplate");
    template["metadata"]["namespace"] = json!(SYSTEM_NAMESPACE);
    let written = bench.create(template, &json!({})).await;
    refused("a new template", json!({}), unanswered).check(written)?;
    let mut another = cluster.clone();
    another["metadata"] = json!({"name": "two", "namespace": bench.scene.namespace()});
    let clusters = path.trim_end_matches("/one");
    let request = http::Request::post(format!("{clusters}?dryRun=All"));
    let written = bench.write(request, "application/json", &another).await;
    admitted("a new Cluster", json!({})).check(written)?;
    Ok(())
}
