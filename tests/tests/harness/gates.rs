//! Stacks without packages: real controllers roll out workloads, CAAPH delivers charts, and etcd holds JSON.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::{Client, Config};
use serde_json::{Value, json};
use sluice_tests::objects::Chart;
use sluice_tests::requests::apply;
use sluice_tests::scenario::{Cluster, Hooks, Scene, TIMEOUT, VERSIONS, World, gates};
use sluice_tests::stack::Options;
use sluice_tests::stack::kubelet::{DELAY_ANNOTATION, Delay, FAILS_ANNOTATION};
use sluice_tests::wait;

/// Starts a stack without packages and without Sluice, with a Cluster of one worker.
async fn cluster(name: &str) -> Result<Cluster> {
    let world = World::start_with(Options::new(name).without_packages(), &Hooks::Absent).await?;
    let scene = Scene::open(&world, name, &gates::class()).await?;
    let version = VERSIONS.last().context("a version")?;
    let cluster = scene
        .cluster("one")
        .unmanaged(version)
        .workers(1)
        .create()
        .await?;
    cluster.is_available(TIMEOUT).await?;
    Ok(cluster)
}

async fn stop(cluster: &Cluster) -> Result<()> {
    let stack = cluster.scene().world().stack();
    stack.check()?;
    stack.stop().await
}

/// Waits until the status of an object of the workload cluster is as wanted.
async fn reaches(cluster: &Cluster, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    wait::until(format!("{path} to be as wanted"), TIMEOUT, || async {
        match cluster.in_workload(path).await? {
            Some(object) if wanted(&object["status"]) => Ok(()),
            Some(object) => wait::not_yet(&object["status"]),
            None => wait::not_yet("it does not exist"),
        }
    })
    .await?;
    Ok(())
}

fn pod(name: &str, annotations: &Value, restart: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}, "annotations": annotations},
        "spec": {
            "restartPolicy": restart,
            "containers": [{"name": "main", "image": format!("registry.invalid/{name}:v1")}],
        },
    })
}

fn rolled_out(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": pod(name, &json!({}), "Always"),
        },
    })
}

fn job(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"backoffLimit": 0, "template": pod(name, annotations, "Never")},
    })
}

fn has(status: &Value, kind: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|condition| condition["type"] == kind);
    conditions.any(|condition| condition["status"] == "True")
}

/// The value of an object in etcd, by the end of its key.
async fn stored(cluster: &Cluster, key: &str) -> Result<Vec<u8>> {
    let etcd = cluster.scene().world().stack().core().etcd();
    let client = Client::try_from(Config::new(etcd.url().parse()?))?;
    let range = json!({"key": BASE64_STANDARD.encode("/wl/"), "range_end": BASE64_STANDARD.encode("/wl0")});
    let request = http::Request::post("/v3/kv/range")
        .header("content-type", "application/json")
        .body(range.to_string().into_bytes())?;
    let found: Value = client.request(request).await?;
    for object in found["kvs"].as_array().into_iter().flatten() {
        let decode = |field: &str| BASE64_STANDARD.decode(object[field].as_str().unwrap_or_default());
        if decode("key")?.ends_with(key.as_bytes()) {
            return Ok(decode("value")?);
        }
    }
    anyhow::bail!("nothing in etcd has a key that ends with {key}")
}

#[tokio::test(flavor = "multi_thread")]
async fn real_controllers_roll_out_workloads_without_packages() -> Result<()> {
    let cluster = cluster("workloads").await?;
    let stack = cluster.scene().world().stack();
    ensure!(stack.kapp_controller().is_err(), "kapp-controller runs");
    let never = json!({DELAY_ANNOTATION: Delay::Never.to_string()});
    cluster.delay("slow", Delay::Never);
    let objects = [
        rolled_out("Deployment", "fast"),
        rolled_out("Deployment", "slow"),
        rolled_out("StatefulSet", "set"),
        job("succeeds", &json!({})),
        job("fails", &json!({FAILS_ANNOTATION: "true"})),
        job("runs", &never),
    ];
    apply::apply_all(&cluster.workload()?.api.admin_client(), &objects).await?;

    let apps = "/apis/apps/v1/namespaces/default";
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let is_available = |status: &Value| status["availableReplicas"] == 2;
    reaches(&cluster, &format!("{apps}/deployments/fast"), is_available).await?;
    reaches(&cluster, &format!("{apps}/statefulsets/set"), is_available).await?;
    reaches(&cluster, &format!("{jobs}/succeeds"), |status| {
        has(status, "Complete")
    })
    .await?;
    reaches(&cluster, &format!("{jobs}/fails"), |status| has(status, "Failed")).await?;
    reaches(&cluster, &format!("{jobs}/runs"), |status| status["active"] == 1).await?;

    let slow = format!("{apps}/deployments/slow");
    reaches(&cluster, &slow, |status| status["unavailableReplicas"] == 2).await?;
    cluster.delay("slow", Delay::NONE);
    reaches(&cluster, &slow, is_available).await?;

    let value = stored(&cluster, "/deployments/default/fast").await?;
    ensure!(
        value.starts_with(b"{"),
        "etcd holds {}",
        String::from_utf8_lossy(&value)
    );
    stop(&cluster).await
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_are_delivered_and_errors_are_reported() -> Result<()> {
    let cluster = cluster("charts").await?;
    let scene = cluster.scene();
    let old = scene.cni(&[("1.17.4", "v1.17.4"), ("1.18.2", "v1.18.2")]).await?;
    scene.deliver(&old).await?;
    cluster.delivered(&old, TIMEOUT).await?;
    cluster.rolled_out(old.name(), "v1.17.4", TIMEOUT).await?;

    // CAAPH renders no values for the Cluster, and its HelmReleaseProxy stays.
    let new = old.clone().version("1.18.2");
    scene
        .deliver(&new.clone().values(&Chart::broken_for(cluster.name())))
        .await?;
    says(scene, &scene.proxy_path(new.name()), "no value for this Cluster").await?;
    cluster.delivered(&old, TIMEOUT).await?;

    // Helm renders no chart.
    scene.deliver(&new.clone().values(Chart::BROKEN)).await?;
    let releases = format!(
        "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/{}/helmreleaseproxies",
        scene.namespace()
    );
    says(scene, &releases, "value broken is set").await?;

    // An edit while CAAPH is stopped is delivered once it runs.
    let caaph = scene.world().caaph().await?;
    caaph.kill().await?;
    scene.deliver(&new).await?;
    caaph.restart().await?;
    cluster.delivered(&new, TIMEOUT).await?;
    cluster.rolled_out(new.name(), "v1.18.2", TIMEOUT).await?;
    stop(&cluster).await
}

/// Waits until the status of an object, or of one in a list, contains a text.
async fn says(scene: &Scene, path: &str, text: &str) -> Result<()> {
    wait::until(format!("{path} to say {text:?}"), TIMEOUT, || async {
        let found = scene.objects().get(path).await?.unwrap_or_default();
        let listed = found["items"].as_array().into_iter().flatten();
        let statuses: Vec<String> = listed
            .chain([&found])
            .map(|object| object["status"].to_string())
            .collect();
        if statuses.iter().any(|status| status.contains(text)) {
            Ok(())
        } else {
            wait::not_yet(statuses.concat())
        }
    })
    .await?;
    Ok(())
}
