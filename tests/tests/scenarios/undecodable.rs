//! Objects that kube-apiserver takes and that cannot be decoded.

use anyhow::{Context as _, Result, ensure};
use http::{Method, Request};
use kube::Client;
use serde_json::json;
use sluice_tests::objects::Release;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

/// More levels than a decoder of JSON in Rust goes down.
const DEEP: usize = 300;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "undecodable-object",
        "values nested 300 levels deep and managedFields of the year 9999: only the Cluster of the deep values is held, with the reason; others go on, also after a restart; corrected values heal without one",
        |scene| Box::pin(run(scene)),
    )
    .alone()
}

async fn run(scene: Scene) -> Result<()> {
    let releases = [
        ("1.0.0", VERSIONS[0]),
        ("2.0.0", VERSIONS[1]),
        ("3.0.0", VERSIONS[2]),
    ];
    let releases = releases.map(|(version, kubernetes)| scene.release(kubernetes, version, Delay::NONE));
    let [first, second, third] = releases;
    let (first, second, third) = (first?, second?, third?);
    for release in [&first, &second, &third] {
        scene.publish(release).await?;
    }
    let (one, odd) = (scene.cluster("one").at(&first), scene.cluster("odd").at(&first));
    let (one, odd) = tokio::try_join!(one.create_settled(&first), odd.create_settled(&first))?;

    let client = scene.client();
    for path in late(&scene) {
        let entry = json!([{
            "manager": "odd", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {},
            "time": "9999-12-31T23:59:59Z",
        }]);
        send(
            &client,
            Method::PATCH,
            &path,
            &json!({"metadata": {"managedFields": entry}}).to_string(),
        )
        .await?;
    }
    let bootstrap = bootstrap(&scene, "odd");
    send(&client, Method::PATCH, &bootstrap, &inline(DEEP)).await?;

    // The watch has brought the object.
    odd.has_event("ObjectUndecodable", &named(&scene), TIMEOUT)
        .await?;
    let since = odd.upgrade(&second).await?;
    goes_on(&one, &second).await?;
    odd.says(&named(&scene), TIMEOUT).await?;

    // The first list of a new process brings it.
    let extension = scene.world().extension()?;
    extension.restart().await?;
    goes_on(&one, &third).await?;
    odd.says(&named(&scene), TIMEOUT).await?;
    odd.control_plane_is_untouched(since).await?;
    let shown = extension.metrics().await?;
    let labels = format!(
        "kind=\"ClusterBootstrap\",namespace=\"{}\",name=\"odd\"",
        scene.namespace()
    );
    ensure!(
        shown
            .lines()
            .any(|line| line.starts_with("sluice_undecodable_object_info{") && line.contains(&labels)),
        "the metric does not name {labels}:\n{}",
        shown
            .lines()
            .filter(|line| line.contains("undecodable"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    let logs: Result<Vec<String>, _> = extension.logs().map(std::fs::read_to_string).collect();
    let logs = logs.context("read the logs of the extension")?;
    let says = |line: &str| {
        line.contains("Failed to decode object")
            && line.contains("ClusterBootstrap")
            && line.contains(scene.namespace())
    };
    ensure!(
        logs.iter().flat_map(|log| log.lines()).any(says),
        "the logs do not name the ClusterBootstrap"
    );

    send(
        &client,
        Method::PATCH,
        &bootstrap,
        r#"{"spec":{"cni":{"valuesFrom":null}}}"#,
    )
    .await?;
    odd.control_plane_written(second.kubernetes(), since, TIMEOUT)
        .await?;
    odd.is_settled(TIMEOUT).await?;
    let what = "the metric to name no object any more";
    wait::until(what, TIMEOUT, || async {
        let shown = extension.metrics().await?;
        match shown
            .lines()
            .find(|line| line.starts_with("sluice_undecodable_object_info{"))
        {
            None => Ok(()),
            Some(line) => wait::not_yet(line),
        }
    })
    .await?;
    Ok(())
}

/// Upgrades a Cluster that has nothing to do with it.
async fn goes_on(cluster: &Cluster, release: &Release) -> Result<()> {
    let before = cluster.upgrade(release).await?;
    cluster
        .control_plane_written(release.kubernetes(), before, TIMEOUT)
        .await?;
    cluster.is_settled(TIMEOUT).await
}

/// Part of a reason that concerns the ClusterBootstrap.
fn named(scene: &Scene) -> String {
    format!(
        "ClusterBootstrap {}/odd cannot be decoded: field spec.cni.valuesFrom",
        scene.namespace()
    )
}

fn bootstrap(scene: &Scene, cluster: &str) -> String {
    let namespace = scene.namespace();
    format!("/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{namespace}/clusterbootstraps/{cluster}")
}

/// Objects of a tenant that are followed: of the Cluster that goes on as well.
fn late(scene: &Scene) -> Vec<String> {
    let namespace = scene.namespace();
    let of =
        |group: &str, kind: &str, name: &str| format!("/apis/{group}/namespaces/{namespace}/{kind}/{name}");
    vec![
        of("cluster.x-k8s.io/v1beta2", "clusters", "odd"),
        of("cluster.x-k8s.io/v1beta2", "clusters", "one"),
        of(
            "packaging.carvel.dev/v1alpha1",
            "packageinstalls",
            "one-kapp-controller",
        ),
        of("kappctrl.k14s.io/v1alpha1", "apps", "one-kapp-controller"),
        bootstrap(scene, "one"),
    ]
}

/// A merge patch that gives the CNI values which are so many lists in each other.
fn inline(levels: usize) -> String {
    let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    format!(r#"{{"spec":{{"cni":{{"valuesFrom":{{"inline":{{"a":{nested}}}}}}}}}}}"#)
}

/// Sends text as it is; of the answer only the status counts.
async fn send(client: &Client, method: Method, path: &str, body: &str) -> Result<()> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/merge-patch+json");
    let sent = client.request_text(request.body(body.as_bytes().to_vec())?).await;
    sent.map(drop).with_context(|| format!("patch {path}"))
}
