//! A Cluster at rest, and webhook configurations that were left behind.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{RESOLVE, Release, TKR, cluster as new_cluster};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use super::{REGISTRATION, commands, left, registration};
use crate::common::{held, record_says, released};
use crate::resolve::admit;

const PAUSE: &str = "clusterpause.mutating.vmware.com";
const BOOTSTRAP: &str = "clusterbootstrap.validating.vmware.com";
const SYSTEM: &str = "tkg-system";

/// Data of tkr-source.
const BOM: &str = "/api/v1/namespaces/tkg-system/configmaps/bom-metadata";

/// Mark of data that nothing maintains any more.
const FROZEN: &str = "lifecycle.sluice.dev/frozen";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "takeover-rest",
        "a Cluster of the addons-manager at rest keeps its PackageInstalls as they are, loses its finalizers once the webhook configurations that were left behind are named and deleted, and is upgraded later; a release that is published after tkr-source was stopped is resolved",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene.full_release(VERSIONS[1], "1.0.0", Delay::NONE, Delay::NONE)?;
    let new = scene.full_release(VERSIONS[2], "2.0.0", Delay::Never, Delay::NONE)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let extension = scene.world().extension()?;
    extension.kill().await?;
    left::by_the_addons_manager(&cluster, &old).await?;
    let before = identities(&cluster, &old).await?;
    // The order of the page, but for the webhook configurations, which are forgotten.
    scene.apply(&programs()).await?;
    commands::run(&scene, "Check the stored versions").await?;
    scene.apply(&[bom()]).await?;
    commands::run(&scene, "Stop what was there before").await?;
    let [validating, mutating] = webhooks(&scene);
    scene.apply(&[validating, mutating]).await?;
    extension.restart().await?;

    // The ClusterBootstrap is to be written first.
    says(&cluster, BOOTSTRAP).await?;
    let validating = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/clusterbootstrap-validating-webhook-configuration";
    scene.objects().delete(validating).await?;
    says(&cluster, PAUSE).await?;
    commands::run(&scene, "Webhook configurations that were left behind").await?;
    left::nothing_is_left(&cluster, TIMEOUT).await?;
    cluster
        .has_event("LegacyLeftoversRemoved", left::FINALIZER, TIMEOUT)
        .await?;
    for package in old.packages() {
        record_says(&cluster, package.short(), "Ready").await?;
    }
    settled(&cluster).await?;
    let after = identities(&cluster, &old).await?;
    ensure!(
        before == after,
        "what the addons-manager has installed was written:\n{before:#?}\n{after:#?}"
    );

    let upgraded = held(&cluster, &new).await?;
    released(&cluster, &new, upgraded).await?;
    commands::run(&scene, "See whether anything is left").await?;
    moved(&cluster, &old, &new, &before).await?;
    resolved(&scene).await?;
    // It does not run there.
    let replicas = deployment("sluice", "sluice-system");
    scene.apply(std::slice::from_ref(&replicas)).await?;
    let registration = registration(&scene).await?;
    commands::run(&scene, "Going back").await?;
    ensure!(
        scene.objects().get(REGISTRATION).await?.is_none(),
        "Sluice is registered still"
    );
    let data = scene.objects().get(BOM).await?.unwrap_or_default();
    ensure!(
        data["metadata"]["annotations"].get(FROZEN).is_none(),
        "the data of tkr-source is frozen still: {}",
        data["metadata"]["annotations"]
    );
    scene.objects().delete(BOM).await?;
    // Later scenarios of the stack need it.
    scene.objects().restore(REGISTRATION, &registration).await?;
    for program in programs().into_iter().chain([replicas]) {
        scene.objects().delete(&commands::path_of(&program)?).await?;
    }
    Ok(())
}

/// The data of tkr-source, which lists no release of this scenario.
fn bom() -> Value {
    let text = "version: v1\nmanagementClusterVersions: [{version: v2.5.1, supportedKubernetesVersions: [v1.30.0]}]\n";
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bom-metadata", "namespace": SYSTEM},
        "binaryData": {"compatibility": BASE64_STANDARD.encode(text)},
    })
}

/// Publishes a release, and waits until a new Cluster would be resolved to it.
async fn resolved(scene: &Scene) -> Result<()> {
    let build = format!("{}.2", scene.namespace());
    let later = scene.release(VERSIONS[2], "3.0.0", Delay::NONE)?.build(build);
    scene.publish(&later).await?;
    let webhooks = admit(scene).await?;
    let prefix = later.kubernetes().rsplit_once('.').map_or("", |(minor, _)| minor);
    let mut manifest = new_cluster(scene.namespace(), "later", prefix, None, 0);
    manifest["metadata"]["annotations"] = json!({RESOLVE: ""});
    let what = format!("a new Cluster of {prefix} to be resolved to {}", later.name());
    wait::until(what, TIMEOUT, || async {
        let path = format!(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters?dryRun=All",
            scene.namespace()
        );
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(manifest.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        let written: Value = scene.client().request(request).await?;
        let label = &written["metadata"]["labels"][TKR];
        if *label == later.name() {
            Ok(())
        } else {
            wait::not_yet(label)
        }
    })
    .await?;
    let path = format!("{}/{}", Release::PATH, later.name());
    let what = format!("{path} to be excluded by no data");
    wait::until(what, TIMEOUT, || async {
        let release = scene.objects().get(&path).await?.unwrap_or_default();
        let conditions = release["status"]["conditions"].as_array().into_iter().flatten();
        let mut compatible = conditions.filter(|condition| condition["type"] == "Compatible");
        match compatible.next() {
            Some(found) if found["reason"] == "CompatibilityDataFrozen" => Ok(()),
            _ => wait::not_yet(&release["status"]),
        }
    })
    .await?;
    unregister(&scene.client(), &webhooks).await
}

/// Workloads that the page stops; none of them runs here.
fn programs() -> Vec<Value> {
    let packages = ["tanzu-addons-manager", "tkr-service", "tkr-source-controller"];
    let installs = packages.map(|name| {
        json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "metadata": {"name": name, "namespace": SYSTEM},
            "spec": {
                "serviceAccountName": "none", "paused": false,
                "packageRef": {"refName": format!("{name}.tanzu.vmware.com"), "versionSelection": {"constraints": "0.29.0"}},
            },
        })
    });
    let names = [
        "tanzu-addons-controller-manager",
        "tkr-source-controller-manager",
        "tkr-status-controller-manager",
        "tkr-resolver-cluster-webhook-manager",
    ];
    let deployments = names.map(|name| deployment(name, SYSTEM));
    installs.into_iter().chain(deployments).collect()
}

fn deployment(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "manager", "image": "none.test/none"}]},
            },
        },
    })
}

/// The webhook configurations whose Service is gone, as the addons-manager registered them, but for Clusters of the scenario alone.
fn webhooks(scene: &Scene) -> [Value; 2] {
    let webhook = |name: &str, group: &str, version: &str, resource: &str, path: &str| {
        json!({
            "name": name,
            "clientConfig": {
                "service": {"name": "tanzu-addons-manager-webhook-service", "namespace": SYSTEM, "path": path},
            },
            "rules": [{
                "apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": ["CREATE", "UPDATE"],
            }],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace()}},
            "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 30, "admissionReviewVersions": ["v1", "v1beta1"],
        })
    };
    let of = |kind: &str, name: &str, webhooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "labels": {"tkg.tanzu.vmware.com/addon-webhooks": "addon-webhooks"}},
            "webhooks": webhooks,
        })
    };
    let validating = webhook(
        BOOTSTRAP,
        "run.tanzu.vmware.com",
        "v1alpha3",
        "clusterbootstraps",
        "/validate-run-tanzu-vmware-com-v1alpha3-clusterbootstrap",
    );
    let pause = webhook(
        PAUSE,
        "cluster.x-k8s.io",
        "v1beta1",
        "clusters",
        "/mutate-cluster-x-k8s-io-v1beta1-cluster",
    );
    [
        of(
            "ValidatingWebhookConfiguration",
            "clusterbootstrap-validating-webhook-configuration",
            vec![validating],
        ),
        of(
            "MutatingWebhookConfiguration",
            "clusterbootstrap-mutating-webhook-configuration",
            vec![pause],
        ),
    ]
}

/// Waits until the condition names the webhook that refuses writes.
async fn says(cluster: &Cluster, webhook: &str) -> Result<()> {
    let what = format!(
        "condition TakeoverIncomplete of {} to name {webhook}",
        cluster.name()
    );
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let found = incomplete(bootstrap);
            let message = found["message"].as_str().unwrap_or_default();
            if found["reason"] == "WebhookUnavailable" && message.contains(webhook) {
                Ok(())
            } else {
                wait::not_yet(found)
            }
        })
        .await
}

fn incomplete(bootstrap: &Value) -> Value {
    let conditions = bootstrap["status"]["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == "TakeoverIncomplete");
    found.next().cloned().unwrap_or_default()
}

/// Waits until the record is completed and nothing is in the way any more.
async fn settled(cluster: &Cluster) -> Result<()> {
    let what = format!("the record of {} to be completed", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let outcome = &bootstrap["status"]["upgrade"]["outcome"];
            let found = incomplete(bootstrap);
            if *outcome == "Completed" && found.is_null() {
                Ok(())
            } else {
                wait::not_yet(format!("{outcome} {found}"))
            }
        })
        .await
}

async fn identities(cluster: &Cluster, release: &Release) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for package in left::installed(cluster, release)? {
        all.push(package.identity().await?);
    }
    Ok(all)
}

/// After an upgrade values are in Secrets that are named after them, and nothing was made again.
async fn moved(cluster: &Cluster, old: &Release, new: &Release, before: &[Value]) -> Result<()> {
    let after = identities(cluster, new).await?;
    for ((before, after), package) in before.iter().zip(&after).zip(old.packages()) {
        let uids = |of: &Value| [of[0]["uid"].clone(), of[1]["uid"].clone()];
        ensure!(uids(before) == uids(after), "{} was made again", package.short());
    }
    for (package, of) in left::installed(cluster, new)?.iter().zip(new.packages()) {
        let named = package.named().await?.unwrap_or_default();
        let prefix = format!("{}-{}-data-values-", cluster.name(), of.short());
        ensure!(
            named.starts_with(&prefix),
            "{} takes values from {named:?}",
            of.short()
        );
    }
    for (package, of) in left::installed(cluster, new)?.iter().zip(new.packages()) {
        if of.short() == "kapp-controller" {
            continue;
        }
        let what = format!(
            "the values Secret of the addons-manager for {} to be gone",
            of.short()
        );
        wait::until(what, TIMEOUT, || async {
            if package.has_fixed_secret().await? {
                wait::not_yet("it is there")
            } else {
                Ok(())
            }
        })
        .await?;
    }
    Ok(())
}
