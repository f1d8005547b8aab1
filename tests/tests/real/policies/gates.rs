//! Policy and webhook `sluice-gates` of `manifests/base`, without Sluice: which deletions of UpgradeGates are refused, and which writes the
//! webhook reviews.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use sluice_tests::components::MANAGEMENT_VERSION;
use sluice_tests::objects::{Check, Gate};
use sluice_tests::requests::apply;
use sluice_tests::scenario::gate_definitions;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::manifests::Base;
use sluice_tests::wait;

use super::IN_EFFECT;

const AUTHOR: &str = "author";
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

const CONFIRM: &str = "lifecycle.sluice.dev/confirm-delete";
const MOVED: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// A namespace that ends. None of its objects is deleted, because no controller runs.
const ENDING: &str = "ending";

/// A gate that is being deleted.
const DELETED: &str = "deleted";

/// What the API server says when it cannot have a gate reviewed.
const REVIEWED: &str = "failed calling webhook \"upgradegate.validating.lifecycle.sluice.dev\"";

#[tokio::test(flavor = "multi_thread")]
async fn gates_that_hold_are_not_deleted_and_their_edits_are_reviewed() -> Result<()> {
    let core = StackCore::start("gate-policies").await?;
    let server = ApiServer::start(&core, "gate-policies", MANAGEMENT_VERSION).await?;
    let client = server.admin_client();
    apply::apply_crds(&client, &gate_definitions()?).await?;
    for namespace in ["default", ENDING] {
        apply::namespace(&client, namespace).await?;
    }
    apply::apply(&client, &all_rights()).await?;
    put(&client, "default").await?;
    put(&client, ENDING).await?;

    apply::apply_all(&client, &shipped("ValidatingAdmissionPolicy", 2)?).await?;
    is_in_effect(&client).await?;
    deletions(&client).await?;
    a_namespace_ends(&client).await?;

    apply::apply_all(&client, &shipped("ValidatingWebhookConfiguration", 1)?).await?;
    is_called(&client).await?;
    reviews(&client).await?;
    core.directory().close().await
}

/// Objects of `manifests/base` for gates, of kinds that begin so.
fn shipped(kind: &str, count: usize) -> Result<Vec<Value>> {
    let base = Base::read()?;
    let is_one = |object: &&Value| {
        let is_kind = object["kind"]
            .as_str()
            .is_some_and(|found| found.starts_with(kind));
        is_kind && object["metadata"]["name"] == "sluice-gates"
    };
    let found: Vec<Value> = base.objects().iter().filter(is_one).cloned().collect();
    ensure!(
        found.len() == count,
        "manifests/base has {} objects sluice-gates of kind {kind}",
        found.len()
    );
    Ok(found)
}

/// Without rights, RBAC would refuse a deletion before the policy does.
fn all_rights() -> Value {
    let users = [AUTHOR, NAMESPACE_CONTROLLER, GARBAGE_COLLECTOR];
    let subjects =
        users.map(|user| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}));
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "all-rights"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": subjects,
    })
}

/// Name of a gate, how many Clusters it holds, and an annotation.
type Given = (&'static str, Option<u32>, Option<(&'static str, &'static str)>);

const GATES: [Given; 7] = [
    ("new", None, None),
    ("idle", Some(0), None),
    ("holds-one", Some(1), None),
    ("holds-two", Some(2), None),
    ("confirmed", Some(2), Some((CONFIRM, "true"))),
    ("unconfirmed", Some(2), Some((CONFIRM, "false"))),
    ("moved", Some(2), Some((MOVED, ""))),
];

fn gate(name: &str) -> Gate {
    let check = Check::workload("agent", ("apps/v1", "DaemonSet"), "kube-system", "agent");
    Gate::new(name)
        .row("1.35", &[("image", "v1")])
        .check(check.container("agent").version_key("image"))
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{namespace}/upgradegates/{name}")
}

/// Creates all gates in a namespace.
async fn put(client: &Client, namespace: &str) -> Result<()> {
    for (name, holding, annotation) in GATES {
        let mut object = gate(name).object(namespace);
        if let Some((key, value)) = annotation {
            object["metadata"]["annotations"] = json!({key: value});
        }
        apply::apply(client, &object).await?;
        if let Some(holding) = holding {
            let status = json!({"status": {"holding": holding}});
            let path = format!("{}/status", path(namespace, name));
            let refused = patched(client, &path, &status).await?;
            ensure!(refused.is_none(), "the status of {name} is refused: {refused:?}");
        }
    }
    let audited = gate("audited").audit().object(namespace);
    let late = gate("late").deadline("1h").object(namespace);
    let mut deleted = gate(DELETED).object(namespace);
    deleted["metadata"]["finalizers"] = json!(["harness.test/stays"]);
    apply::apply_all(client, &[audited, late, deleted]).await?;
    let delete = http::Request::delete(path(namespace, DELETED)).body(Vec::new())?;
    client.request::<Value>(delete).await?;
    Ok(())
}

/// Waits until the API server applies the policy, and until the user has its rights.
async fn is_in_effect(client: &Client) -> Result<()> {
    wait::until("policy sluice-gates to be in effect", IN_EFFECT, || async {
        match deleted(client, AUTHOR, &path("default", "holds-two")).await? {
            Some(message) if message.contains("holds the upgrades") => Ok(()),
            other => wait::not_yet(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// Deletions of gates by a user, and the message of a refusal.
const DELETIONS: [(&str, &str, Option<&str>); 9] = [
    ("new", AUTHOR, None),
    ("idle", AUTHOR, None),
    (
        "holds-one",
        AUTHOR,
        Some("UpgradeGate default/holds-one holds the upgrades of 1 Cluster, "),
    ),
    (
        "holds-two",
        AUTHOR,
        Some("UpgradeGate default/holds-two holds the upgrades of 2 Clusters, "),
    ),
    ("holds-two", GARBAGE_COLLECTOR, Some("holds the upgrades")),
    ("holds-two", NAMESPACE_CONTROLLER, None),
    ("confirmed", AUTHOR, None),
    ("unconfirmed", AUTHOR, Some("holds the upgrades")),
    ("moved", AUTHOR, None),
];

async fn deletions(client: &Client) -> Result<()> {
    for (name, user, says) in DELETIONS {
        let answered = deleted(client, user, &path("default", name)).await?;
        is_answered(&format!("{user} deletes {name}"), answered.as_deref(), says)?;
    }
    let refused = deleted(client, AUTHOR, &path("default", "holds-two")).await?;
    let refused = refused.context("the deletion of holds-two is not refused")?;
    for way_out in [
        "set spec.mode to Audit",
        "lifecycle.sluice.dev/confirm-delete: \"true\"",
    ] {
        ensure!(refused.contains(way_out), "{way_out} is not in {refused}");
    }

    // Each object of a collection is judged.
    let all = path("default", "");
    let all = all.trim_end_matches('/');
    let answered = deleted(client, AUTHOR, all).await?;
    is_answered(
        "all gates are deleted",
        answered.as_deref(),
        Some("holds the upgrades"),
    )?;
    let answered = deleted(client, NAMESPACE_CONTROLLER, all).await?;
    is_answered(
        "the namespace controller deletes all gates",
        answered.as_deref(),
        None,
    )
}

/// The namespace controller may have any user name.
async fn a_namespace_ends(client: &Client) -> Result<()> {
    let gate = path(ENDING, "holds-two");
    let answered = deleted(client, AUTHOR, &gate).await?;
    is_answered("before the end", answered.as_deref(), Some("holds the upgrades"))?;
    let delete = http::Request::delete(format!("/api/v1/namespaces/{ENDING}")).body(Vec::new())?;
    client.request::<Value>(delete).await?;
    let what = "the gates of a namespace that ends to be deletable";
    wait::until(what, IN_EFFECT, || async {
        match deleted(client, AUTHOR, &gate).await? {
            None => Ok(()),
            Some(message) => wait::not_yet(message),
        }
    })
    .await?;
    Ok(())
}

/// Waits until the API server calls the webhook.
async fn is_called(client: &Client) -> Result<()> {
    wait::until("webhook sluice-gates to be called", IN_EFFECT, || async {
        match created(client).await? {
            Some(message) if message.contains(REVIEWED) => Ok(()),
            other => wait::not_yet(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// Changes of gates, and whether they are reviewed.
fn changes() -> [(&'static str, Value, bool); 13] {
    [
        ("new", json!({"metadata": {"labels": {"a": "b"}}}), false),
        (
            "new",
            json!({"metadata": {"annotations": {CONFIRM: "true"}}}),
            false,
        ),
        (
            "new",
            json!({"metadata": {"finalizers": ["harness.test/stays"]}}),
            false,
        ),
        ("new", json!({"spec": {"before": "Workers"}}), true),
        // The way out of a hold. Whatever else changes with it is reviewed.
        ("new", json!({"spec": {"mode": "Audit"}}), false),
        (
            "new",
            json!({"spec": {"mode": "Audit", "before": "Workers"}}),
            true,
        ),
        ("new", json!({"spec": {"mode": "Audit", "deadline": "1h"}}), true),
        ("late", json!({"spec": {"mode": "Audit"}}), false),
        ("late", json!({"spec": {"mode": "Audit", "deadline": null}}), true),
        ("audited", json!({"spec": {"before": "Workers"}}), true),
        ("audited", json!({"spec": {"mode": "Enforce"}}), true),
        (DELETED, json!({"metadata": {"finalizers": null}}), false),
        (DELETED, json!({"spec": {"before": "Workers"}}), true),
    ]
}

async fn reviews(client: &Client) -> Result<()> {
    for (name, change, is_reviewed) in changes() {
        let path = format!("{}?dryRun=All", path("default", name));
        let answered = patched(client, &path, &change).await?;
        let says = is_reviewed.then_some(REVIEWED);
        is_answered(&format!("{name} with {change}"), answered.as_deref(), says)?;
    }
    let status = format!("{}/status?dryRun=All", path("default", "new"));
    let answered = patched(client, &status, &json!({"status": {"holding": 1}})).await?;
    is_answered("a status", answered.as_deref(), None)?;
    let answered = deleted(client, AUTHOR, &path("default", "new")).await?;
    is_answered("a deletion", answered.as_deref(), None)
}

/// Checks that a request is admitted, or refused with this text.
pub(super) fn is_answered(what: &str, answered: Option<&str>, says: Option<&str>) -> Result<()> {
    let is_expected = match says {
        None => answered.is_none(),
        Some(says) => answered.is_some_and(|message| message.contains(says)),
    };
    ensure!(is_expected, "{what}: the answer is {answered:?}, not {says:?}");
    Ok(())
}

/// The message with which the API server refuses a new gate. It is not stored in any case.
async fn created(client: &Client) -> Result<Option<String>> {
    let path = path("default", "");
    let request = http::Request::post(format!("{}?dryRun=All", path.trim_end_matches('/')))
        .header("content-type", "application/json")
        .body(gate("created").object("default").to_string().into_bytes())?;
    refusal(client, request).await
}

/// The message with which the API server refuses a change of an object.
async fn patched(client: &Client, path: &str, change: &Value) -> Result<Option<String>> {
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(change.to_string().into_bytes())?;
    refusal(client, request).await
}

/// The message with which the API server refuses a deletion by a user. Nothing is deleted.
async fn deleted(client: &Client, user: &str, path: &str) -> Result<Option<String>> {
    let request = http::Request::delete(format!("{path}?dryRun=All"))
        .header("impersonate-user", user)
        .body(Vec::new())?;
    refusal(client, request).await
}

pub(super) async fn refusal(client: &Client, request: http::Request<Vec<u8>>) -> Result<Option<String>> {
    match client.request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}
