//! Readiness `Applied`: a DaemonSet whose pods are not replaced, so that kapp waits for it for as long as it may.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::objects::packages::NAMESPACE;
use sluice_tests::processes::slow_file::SlowFile;
use sluice_tests::scenario::{Cluster, HookAnswer, Scenario, Scene, TIMEOUT, VERSIONS, Work};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait::{self, Unmet};

use crate::common::{additional, metrics, record_says};

pub(crate) fn interrupted() -> Scenario {
    Scenario::new(
        "applied-interrupted",
        "readiness Applied: kapp-controller is killed while it waits for a DaemonSet that never finishes; the steps of that run do not count for the next values, whose own run does",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

fn release(scene: &Scene, kubernetes: &str, version: &str, file: &SlowFile) -> Result<Release> {
    let agent = scene
        .package("agent", version)
        .on_delete_daemon_set(Delay::NONE)
        .fetches(file.url());
    Ok(scene
        .release(kubernetes, version, Delay::NONE)?
        .additional(agent)
        .additional(metrics(scene, version)))
}

async fn run(scene: Scene) -> Result<()> {
    let file = SlowFile::serve().await?;
    let old = release(&scene, VERSIONS[1], "1.0.0", &file)?;
    let new = release(&scene, VERSIONS[2], "2.0.0", &file)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let (agent, metrics) = (scene.package("agent", "2.0.0"), metrics(&scene, "2.0.0"));
    let policy = json!({"packages": [{"package": "agent", "readiness": "Applied"}]});
    cluster
        .patch_bootstrap(&json!({"spec": {"upgradePolicy": policy}}))
        .await?;

    let recording = cluster.record(&agent)?;
    // The upgrade is held by a package that is paused by hand, and by nothing else.
    cluster.delay("agent", Delay::Never);
    cluster
        .patch_package(&metrics, Work::PackageInstall, &json!({"spec": {"paused": true}}))
        .await?;
    let before = cluster.upgrade(&new).await?;
    cluster.says("metrics 2.0.0", TIMEOUT).await?;
    record_says(&cluster, "agent", "Ready").await?;
    let waiting = app(&cluster, "to wait for its DaemonSet", waits).await?;

    // The next process finds new values, and its first step takes its time.
    let restarted = cluster.workload()?.kubelet.restart_kapp_controller().await?;
    ensure!(restarted, "no kapp-controller runs");
    file.set_given(false);
    let green = additional(&cluster, |package| {
        if package["refName"] == agent.name() {
            package["valuesFrom"] = json!({"inline": {"colour": "green"}});
        }
    })
    .await?;
    cluster.patch_bootstrap(&green).await?;
    app(&cluster, "to show the steps of the killed run", |app| {
        let is_next = app["metadata"]["generation"].as_i64() > waiting["metadata"]["generation"].as_i64();
        let steps = ["fetch", "template", "deploy"];
        is_next
            && waits(app)
            && steps
                .iter()
                .all(|step| app["status"][step] == waiting["status"][step])
    })
    .await?;
    cluster
        .patch_package(&metrics, Work::PackageInstall, &json!({"spec": {"paused": null}}))
        .await?;
    record_says(&cluster, "metrics", "Ready").await?;
    for answer in asked_again(&cluster, 2).await? {
        ensure!(
            answer.is_held(),
            "released by the steps of the killed run: {answer:?}"
        );
    }
    cluster.says("agent 2.0.0", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;

    file.set_given(true);
    let written = cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    recording.end().await;
    let applied = applied(&cluster).await?;
    ensure!(
        applied < written.revision,
        "{} was written at revision {}, the new values of agent were applied at {applied}",
        new.kubernetes(),
        written.revision
    );
    // The nodes are new, and so are the pods.
    cluster.delay("agent", Delay::NONE);
    cluster.is_settled(2 * TIMEOUT).await
}

/// The next answers that Cluster API gets, `count` of them or more.
async fn asked_again(cluster: &Cluster, count: usize) -> Result<Vec<HookAnswer>> {
    let before = cluster.hook_answers()?.len();
    let what = format!("Cluster API to ask {count} times more");
    let answers = wait::until(what, TIMEOUT, || async {
        let answers = cluster.hook_answers()?;
        if answers.len() < before + count {
            return wait::not_yet(format!("{} answers", answers.len()));
        }
        Ok(answers)
    })
    .await?;
    Ok(answers.into_iter().skip(before).collect())
}

/// Whether kapp waits for the current generation of the App, by its status.
fn waits(app: &Value) -> bool {
    let status = &app["status"];
    let output = status["deploy"]["stdout"].as_str().unwrap_or_default();
    status["observedGeneration"] == app["metadata"]["generation"]
        && status["conditions"][0]["type"] == "Reconciling"
        && output.contains("waiting on 1 changes")
}

async fn app(cluster: &Cluster, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let agent = cluster.scene().package("agent", "2.0.0");
    let probe = |app: &Value| -> Result<Value, Unmet> {
        if wanted(app) {
            Ok(app.clone())
        } else {
            wait::not_yet(&app["status"])
        }
    };
    let what = format!("the App of agent {what}");
    cluster.app_until(&agent, what, TIMEOUT, probe).await
}

/// Revision of the write by which kapp brought the new values of the agent.
async fn applied(cluster: &Cluster) -> Result<i64> {
    let configs: Api<ConfigMap> = Api::namespaced(cluster.workload()?.api.admin_client(), NAMESPACE);
    let what = "the new values of agent to be there".to_owned();
    let revision = wait::until(what, TIMEOUT, || async {
        let config = configs.get("agent-values").await?;
        let values = config.data.as_ref().and_then(|data| data.get("values")).cloned();
        match values {
            Some(values) if values.contains("green") => Ok(config.resource_version().unwrap_or_default()),
            values => wait::not_yet(values.unwrap_or_default()),
        }
    })
    .await?;
    Ok(revision.parse()?)
}
