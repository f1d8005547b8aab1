//! Webhook and policy of UpgradeOverrides with a replica on a real kube-apiserver with RBAC, by the shipped manifests.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::requests::apply;
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::stack::manifests::Base;
use sluice_tests::stack::{Options, Stack};
use sluice_tests::wait;

const OVERRIDES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/default/upgradeoverrides";

const CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters/one";

/// A user with the shipped role.
const ADA: &str = "ada";

/// Until the replica knows the Cluster, and the API server calls a webhook that was registered.
const CALLED: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn an_override_gets_its_user_and_the_uid_of_its_cluster() -> Result<()> {
    let stack = Stack::start(Options::new("override-admission").crds(sluice_definitions()?)).await?;
    let client = stack.client();
    let replica = Replica::start(&stack, Settings::new("sluice")).await?;
    apply::apply_all(&client, &cluster()).await?;
    apply::apply(&client, &may_override()).await?;
    let ca_bundle = stack.management().pki().ca_bundle();
    apply::apply(&client, &webhook(&replica.admission_url(), &json!(ca_bundle))?).await?;
    let cluster: Value = client
        .request(http::Request::get(CLUSTER).body(Vec::new())?)
        .await?;
    let uid = &cluster["metadata"]["uid"];
    ensure!(uid.is_string(), "{cluster}");

    wait::until("an override to be completed", CALLED, || async {
        match created(&client, &of_package("antrea")).await? {
            Ok(spec) if spec["requestedBy"] == ADA && spec["clusterUID"] == *uid => Ok(()),
            other => wait::not_yet(format!("{other:?}")),
        }
    })
    .await?;
    for (object, says) in refused() {
        match created(&client, &object).await? {
            Err(message) if message.contains(says) => {}
            other => anyhow::bail!("{}: the answer is {other:?}, not {says:?}", object["spec"]),
        }
    }

    // A GitOps tool applies the same file again and again.
    let mut object = of_package("antrea");
    object["metadata"] = json!({"name": "again", "namespace": "default"});
    apply::apply(&client, &object).await?;
    let first = stored(&client).await?;
    ensure!(first["spec"]["clusterUID"] == *uid, "{first}");
    apply::apply(&client, &object).await?;
    let second = stored(&client).await?;
    // Not the resourceVersion: the replica may write the status between both reads.
    let generations = [&first, &second].map(|of| &of["metadata"]["generation"]);
    ensure!(
        generations[0] == generations[1] && first["spec"] == second["spec"],
        "{first} was changed to {second}"
    );
    stack.check()?;
    stack.stop().await
}

/// A Cluster that nothing reconciles, and its ClusterBootstrap.
fn cluster() -> [Value; 2] {
    let metadata = json!({"name": "one", "namespace": "default"});
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata,
        "spec": {
            "paused": true,
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "None", "name": "none"},
        },
    });
    let bootstrap = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap", "metadata": metadata,
        "spec": {"cni": {"refName": "antrea.tanzu.vmware.com.1.0.0"}},
    });
    [cluster, bootstrap]
}

fn may_override() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "may-override", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sluice-upgrade-override"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ADA}],
    })
}

/// The shipped webhook of UpgradeOverrides, with the address of the replica.
fn webhook(url: &str, ca_bundle: &Value) -> Result<Value> {
    let base = Base::read()?;
    let mut configurations = base.objects().iter();
    let configuration = configurations.find(|object| object["kind"] == "MutatingWebhookConfiguration");
    let webhooks = configuration.and_then(|configuration| configuration["webhooks"].as_array());
    let of_overrides = |webhook: &&Value| webhook["name"] == "upgradeoverride.mutating.lifecycle.sluice.dev";
    let found = webhooks.and_then(|webhooks| webhooks.iter().find(of_overrides));
    let mut webhook = found.context("no webhook of overrides is shipped")?.clone();
    let path = webhook["clientConfig"]["service"]["path"].as_str();
    let url = format!("{url}{}", path.context("a webhook without path")?);
    webhook["clientConfig"] = json!({"url": url, "caBundle": ca_bundle});
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "overrides"},
        "webhooks": [webhook],
    }))
}

fn hours_from_now(hours: i64) -> Value {
    let time = Timestamp::now() + SignedDuration::from_hours(hours);
    json!(format!("{time:.0}"))
}

/// An override as a user writes it.
fn of_package(package: &str) -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
        "metadata": {"generateName": "one-", "namespace": "default"},
        "spec": {
            "clusterName": "one",
            "target": {"kubernetesVersion": "v1.36.3", "release": "v1.36.3---a.1"},
            "gate": "ControlPlane",
            "packages": [package],
            "reason": "CHG-4711",
            "expiresAt": hours_from_now(1),
        },
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut object = of_package("antrea");
    object["spec"][field] = value;
    object
}

/// Overrides with the text of their refusal.
fn refused() -> [(Value, &'static str); 8] {
    [
        (
            with("clusterName", json!("two")),
            "spec.clusterName: Invalid value",
        ),
        (
            with("clusterUID", json!("another")),
            "spec.clusterUID: Invalid value",
        ),
        (of_package("metrics"), "spec.packages[0]: Invalid value"),
        (
            with("expiresAt", hours_from_now(-1)),
            "spec.expiresAt: Invalid value",
        ),
        (
            with("expiresAt", hours_from_now(8 * 24)),
            "spec.expiresAt: Invalid value",
        ),
        (with("reason", json!("")), "spec.reason: Invalid value"),
        // Control characters beyond ASCII, which the definition admits.
        (with("reason", json!("a\u{9b}2J")), "spec.reason: Invalid value"),
        (
            with("requestedBy", json!("eve")),
            "spec.requestedBy: Invalid value",
        ),
    ]
}

/// The spec with which the API server would store an override of ada, or the message of its refusal.
async fn created(client: &Client, object: &Value) -> Result<Result<Value, String>> {
    let request = http::Request::post(format!("{OVERRIDES}?dryRun=All"))
        .header("impersonate-user", ADA)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Ok(mut stored) => Ok(Ok(stored["spec"].take())),
        Err(kube::Error::Api(status)) => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// The stored override that was applied.
async fn stored(client: &Client) -> Result<Value> {
    let get = http::Request::get(format!("{OVERRIDES}/again")).body(Vec::new())?;
    Ok(client.request(get).await?)
}
